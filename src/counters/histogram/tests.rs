//! Unit tests of `histogram`.

use super::*;

fn filled(scale: &'static Scale, values: &[u64]) -> Histogram {
    let part = Buckets::new();
    values.iter().for_each(|&value| part.add(Adder::Alone, scale, value, 1));
    let mut all = Histogram::new(scale);
    all.absorb(&part);
    all
}

#[test]
fn every_scale_rises_and_has_a_bucket_beyond_its_last_bound() {
    for scale in [&DURATION, &TIME_TO_HEAD, &GAP, &SIZE, &FRAMES] {
        assert!(scale.bounds.is_sorted_by(|a, b| a < b) && scale.bounds.len() < BUCKETS, "{scale:?}");
    }
    let advised = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, f64::INFINITY];
    let uppers: Vec<f64> = Histogram::new(&DURATION).buckets().map(|bucket| bucket.upper).collect();
    assert_eq!(uppers, advised, "the bounds are exactly those of OpenTelemetry");
}

#[test]
fn a_bound_belongs_to_its_bucket() {
    let all = filled(&SIZE, &[0, 64, 65, 256, u64::MAX / 2]);
    let counts: Vec<u64> = all.buckets().map(|bucket| bucket.count).collect();
    assert_eq!((counts[0], counts[1], counts[15], all.count()), (2, 2, 1, 5));
    let first = all.buckets().next().unwrap();
    assert_eq!((first.upper, first.sum), (64.0, 64.0));
}

#[test]
fn sums_and_differences_are_exact() {
    let (old, new) = (filled(&DURATION, &[1_500_000]), filled(&DURATION, &[1_500_000, 250_000_000]));
    assert_eq!(new.sum(), 0.2515);
    let since = new.since(&old);
    assert_eq!((since.count(), since.sum()), (1, 0.25));
    let mut both = old;
    both.join(&since);
    assert_eq!((both.count(), both.sum()), (2, 0.2515));
    let taken_for_later = old.since(&new);
    assert_eq!((taken_for_later.count(), taken_for_later.sum()), (0, 0.0));
}

#[test]
fn quantiles_claim_no_more_than_the_buckets_know() {
    let bounds = |all: &Histogram, share| all.quantile(share).map(|quantile| (quantile.lower, quantile.upper));
    assert_eq!(bounds(&Histogram::new(&GAP), 0.5), None);
    let all = filled(&GAP, &[[4 * MILLI].repeat(98), vec![200 * MILLI, 90 * SECOND]].concat());
    assert_eq!(bounds(&all, 0.0), Some((0.0, 0.005)));
    assert_eq!(bounds(&all, 0.5), Some((0.0, 0.005)));
    assert_eq!(bounds(&all, 0.99), Some((0.1, 0.25)));
    assert_eq!(bounds(&all, 1.0), Some((60.0, f64::INFINITY)));
    // A clock that ticks every few milliseconds does not resolve shorter times.
    assert_eq!(bounds(&filled(&GAP, &[0; 9]), 0.99), Some((0.0, 0.005)));
}
