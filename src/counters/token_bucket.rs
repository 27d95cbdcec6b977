//! A token bucket: the number of bytes that may be sent now, or the time to wait.
//!
//! Invariants:
//! 1. In any span of time at most `burst + rate × span` bytes are granted, to the nanosecond. Nothing is rounded.
//! 2. A caller that waits for the returned time is granted at least one byte.

use std::num::NonZeroU64;
use std::time::Duration;

const SECOND: u128 = 1_000_000_000;

/// A token bucket, full at the start. Times count from any fixed point and do not go backwards.
#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    /// Bytes per second, which are nanobytes per nanosecond.
    rate: u128,
    /// Capacity in nanobytes.
    burst: u128,
    /// Content at `at`, in nanobytes.
    level: u128,
    at: Duration,
}

impl TokenBucket {
    /// Creates a bucket with a rate in bytes per second and a burst of a tenth of a second.
    pub(crate) fn new(rate: NonZeroU64) -> Self {
        Self::with_burst(rate, NonZeroU64::new(rate.get() / 10).unwrap_or(NonZeroU64::MIN))
    }

    fn with_burst(rate: NonZeroU64, burst: NonZeroU64) -> Self {
        let burst = u128::from(burst.get()) * SECOND;
        Self { rate: rate.get().into(), burst, level: burst, at: Duration::ZERO }
    }

    /// Returns the bytes that may be sent at `now`, at least 1, or the time until half a burst is available.
    pub(crate) fn grant(&mut self, now: Duration) -> Result<u64, Duration> {
        let passed = now.saturating_sub(self.at).as_nanos();
        self.level = self.burst.min(self.level.saturating_add(self.rate.saturating_mul(passed)));
        self.at = self.at.max(now);
        let worth = (self.burst / 2).max(SECOND);
        if self.level >= worth {
            return Ok((self.level / SECOND) as u64);
        }
        let nanos = (worth - self.level).div_ceil(self.rate);
        Err(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Removes bytes that were sent, at most those of the last grant.
    pub(crate) fn spend(&mut self, bytes: u64) {
        let spent = u128::from(bytes) * SECOND;
        debug_assert!(spent <= self.level, "{bytes} bytes were not granted");
        self.level = self.level.saturating_sub(spent);
    }
}

#[cfg(test)]
mod tests;
