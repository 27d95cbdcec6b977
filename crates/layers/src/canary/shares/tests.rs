//! Unit tests of `shares`.

use super::*;
use proptest::prelude::*;

fn drawn(shares: &Shares, draws: &Draws, count: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    (0..count).for_each(|_| counts[shares.draw(draws) as usize] += 1);
    counts
}

#[test]
fn shares_are_exact_over_any_ten_thousand() {
    let (shares, draws) = (Shares::default(), Draws::default());
    for (path, percent) in PATHS.into_iter().skip(1).zip([12.34, 57.01]) {
        shares.set(path, percent).unwrap();
        assert_eq!(shares.get(path), percent);
    }
    assert_eq!(shares.get(SendStrategy::Auto), 30.65);
    drawn(&shares, &draws, 777);
    for _ in 0..3 {
        assert_eq!(drawn(&shares, &draws, 10_000), [3065, 1234, 5701]);
    }
}

#[test]
fn shares_are_from_nothing_to_all() {
    let shares = Shares::default();
    shares.set(SendStrategy::NoSendfile, 60.0).unwrap();
    for (path, percent) in [
        (SendStrategy::NoCork, 40.01),
        (SendStrategy::NoCork, -1.0),
        (SendStrategy::NoCork, f64::NAN),
        (SendStrategy::NoSendfile, 101.0),
        (SendStrategy::Auto, 10.0),
    ] {
        let error = shares.set(path, percent).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }
    shares.set(SendStrategy::NoCork, 40.0).unwrap();
    shares.set(SendStrategy::NoSendfile, 10.0).unwrap();
    assert_eq!((shares.get(SendStrategy::Auto), shares.version()), (50.0, 3));
    shares.set(SendStrategy::NoCork, 90.0).unwrap();
    assert_eq!(drawn(&shares, &Draws::default(), 100), [0, 10, 90]);
}

#[test]
fn threads_that_draw_together_keep_the_shares() {
    let (shares, draws) = (Shares::default(), Draws::default());
    shares.set(SendStrategy::NoCork, 33.0).unwrap();
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| drawn(&shares, &draws, 25_000))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()[SendStrategy::NoCork as usize]).sum::<usize>()
    });
    assert_eq!(counts, 33_000);
}

proptest! {
    #[test]
    fn whole_percents_are_exact_over_any_hundred(start in 0u64..1 << 40, a in 0u8..=100, b in 0u8..=100) {
        let (shares, draws) = (Shares::default(), Draws(AtomicU64::new(start)));
        let b = b.min(100 - a);
        shares.set(SendStrategy::NoSendfile, a.into()).unwrap();
        shares.set(SendStrategy::NoCork, b.into()).unwrap();
        let counts = drawn(&shares, &draws, 100);
        prop_assert_eq!(counts, [usize::from(100 - a - b), a.into(), b.into()]);
        // Every part of them has about its share.
        let counts = drawn(&shares, &draws, 20);
        prop_assert!(counts[1].abs_diff(usize::from(a) / 5) <= 4, "{} of 20 at {} %", counts[1], a);
    }
}
