//! Unit tests of `pace`.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn excess_bytes_delay_later_sends(
        rate in 1000u64..1 << 30, sends in proptest::collection::vec(0u64..10_000_000, 1..50),
    ) {
        let pace = SharedPace::new(NonZeroU64::new(rate).unwrap());
        let mut state = pace.0.state();
        let (mut now, mut sent) = (Duration::ZERO, 0u128);
        let mut largest = 0;
        for bytes in sends {
            while let Err(wait) = state.grant(now) {
                prop_assert!(wait > Duration::ZERO);
                now += wait;
            }
            state.spend(bytes, now);
            sent += u128::from(bytes);
            largest = largest.max(bytes);
            let due = u128::from(rate) * now.as_nanos() / 1_000_000_000;
            prop_assert!(sent <= due + u128::from(rate / 10 + largest) + 1, "{sent} after {now:?}");
        }
    }
}
