//! Delay between attempts to reconnect.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(20);
const CAP: Duration = Duration::from_secs(2);

/// Exponential backoff up to a cap, with a random reduction, so that a fleet does not reconnect at the same time.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    pub(crate) fn next(&mut self) -> Duration {
        self.next_with(random())
    }

    fn next_with(&mut self, random: u64) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(16)).min(CAP);
        self.failures += 1;
        let half = whole / 2;
        half + half.mul_f64(random as f64 / u64::MAX as f64)
    }
}

/// Returns a number that differs between threads, processes and calls, from the random keys of the standard hasher.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_cap_and_start_again() {
        let mut backoff = Backoff::default();
        let longest: Vec<_> = (0..9).map(|_| backoff.next_with(u64::MAX).as_millis()).collect();
        assert_eq!(longest, [20, 40, 80, 160, 320, 640, 1280, 2000, 2000]);
        backoff.reset();
        let shortest: Vec<_> = (0..9).map(|_| backoff.next_with(0).as_millis()).collect();
        assert_eq!(shortest, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        let mut long_gone = Backoff { failures: u32::MAX - 1 };
        assert_eq!(long_gone.next_with(u64::MAX), CAP);
    }

    #[test]
    fn no_two_numbers_are_alike() {
        let numbers: std::collections::BTreeSet<u64> = (0..100).map(|_| random()).collect();
        assert_eq!(numbers.len(), 100);
    }
}
