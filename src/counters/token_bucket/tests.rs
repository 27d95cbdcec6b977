//! Unit tests of `token_bucket`.

use super::*;
use proptest::prelude::*;

fn pace(rate: u64, burst: u64) -> TokenBucket {
    TokenBucket::with_burst(NonZeroU64::new(rate).unwrap(), NonZeroU64::new(burst).unwrap())
}

#[test]
fn a_full_bucket_goes_at_once_and_then_at_the_rate() {
    let mut pace = pace(1000, 100);
    assert_eq!(pace.grant(Duration::ZERO), Ok(100));
    pace.spend(100);
    assert_eq!(pace.grant(Duration::ZERO), Err(Duration::from_millis(50)));
    assert_eq!(pace.grant(Duration::from_millis(49)), Err(Duration::from_millis(1)));
    assert_eq!(pace.grant(Duration::from_millis(50)), Ok(50));
    pace.spend(1);
    assert_eq!(pace.grant(Duration::from_secs(3600)), Ok(100), "it holds no more than a burst");
}

#[test]
fn the_slowest_rate_gives_a_byte_a_second() {
    let mut pace = TokenBucket::new(NonZeroU64::MIN);
    assert_eq!(pace.grant(Duration::ZERO), Ok(1));
    pace.spend(1);
    assert_eq!(pace.grant(Duration::ZERO), Err(Duration::from_secs(1)));
    assert_eq!(pace.grant(Duration::from_secs(1)), Ok(1));
}

#[test]
fn the_fastest_rate_overflows_nothing() {
    let mut pace = pace(u64::MAX, u64::MAX);
    assert_eq!(pace.grant(Duration::MAX), Ok(u64::MAX));
    pace.spend(u64::MAX);
    assert!(pace.grant(Duration::MAX).is_err());
}

#[test]
fn a_clock_that_stands_grants_nothing_more() {
    let mut pace = pace(10, 10);
    pace.spend(10);
    assert!(pace.grant(Duration::from_secs(1)).is_ok());
    pace.spend(10);
    assert!(pace.grant(Duration::from_secs(1)).is_err());
    assert!(pace.grant(Duration::ZERO).is_err(), "a clock that runs backwards grants nothing");
    assert!(pace.grant(Duration::from_secs(1)).is_err());
}

proptest! {
    #[test]
    fn never_more_than_the_rate_and_never_less(
        rate in 1u64..1 << 40,
        burst in 1u64..1 << 40,
        steps in prop::collection::vec((0u64..2_000_000_000, 0u64..=100), 1..200),
    ) {
        let mut pace = pace(rate, burst);
        let (mut now, mut sent) = (Duration::ZERO, 0u128);
        for (nanos, percent) in steps {
            now += Duration::from_nanos(nanos);
            let most = u128::from(burst) * SECOND + u128::from(rate) * now.as_nanos();
            match pace.grant(now) {
                Ok(granted) => {
                    prop_assert!((1..=burst).contains(&granted));
                    let spent = granted / 100 * percent;
                    pace.spend(spent);
                    sent += u128::from(spent) * SECOND;
                }
                Err(wait) => {
                    prop_assert!(wait > Duration::ZERO);
                    let mut later = pace.clone();
                    prop_assert!(later.grant(now + wait).is_ok(), "nothing was granted after the wait");
                }
            }
            prop_assert!(sent <= most);
        }
    }

    #[test]
    fn taking_every_grant_yields_the_rate(rate in 1u64..1 << 40, rounds in 1usize..100) {
        let mut pace = TokenBucket::new(NonZeroU64::new(rate).unwrap());
        let (mut now, mut sent) = (Duration::ZERO, 0u128);
        for _ in 0..rounds {
            match pace.grant(now) {
                Ok(granted) => { pace.spend(granted); sent += u128::from(granted) * SECOND; }
                Err(wait) => now += wait,
            }
        }
        // Only half a burst, or an incomplete byte, is left in the bucket.
        let due = u128::from(rate) * now.as_nanos();
        prop_assert!(sent + pace.burst + SECOND >= due, "{sent} of {due}");
    }
}
