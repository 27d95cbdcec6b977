//! How long to wait before trying to connect again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// After the first failure.
const FIRST: Duration = Duration::from_millis(20);
/// Never longer than this.
const CAP: Duration = Duration::from_secs(2);

/// Twice as long after each failure up to a cap, each time a random part of it shorter, so that a fleet that has lost its
/// Redis does not come back in step.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// It works again: the next failure is a first one.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Counts a failure and says how long to wait now.
    pub(super) fn next(&mut self) -> Duration {
        self.next_with(random())
    }

    fn next_with(&mut self, random: u64) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(16)).min(CAP);
        self.failures += 1;
        // From a half of it to all of it.
        let half = whole / 2;
        half + half.mul_f64(random as f64 / u64::MAX as f64)
    }
}

/// A number that differs from thread to thread, from process to process and from call to call. The standard library
/// seeds its hashers from the operating system; this is no key for secrets.
pub(super) fn random() -> u64 {
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
