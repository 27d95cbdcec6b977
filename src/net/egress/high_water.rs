//! High-water mark: 50 ms of input, more while input outpaces output.
//!
//! ```text
//!  mark = α · in + β · max(0, in − out)      between two bounds; rates over a sliding window
//! ```
//!
//! A stream whose reader keeps up queues a twentieth of a second of input, and more during a burst. A slow reader
//! stalls its writer, so input drops and the mark shrinks: queued bytes would only become stale.
//!
//! [`AdaptiveSize`](crate::codec::adaptive_size::AdaptiveSize) differs: it sizes a buffer by the time that filling and emptying it
//! takes.

use std::ops::RangeInclusive;

/// α and β, in milliseconds.
const KEEP: u64 = 50;
const BURST: u64 = 100;
/// Length of the sliding window in milliseconds.
const WINDOW: u32 = 1000;

/// The mark of one stream. Times are milliseconds of a clock that may wrap around.
#[derive(Clone, Debug)]
pub(crate) struct HighWater {
    bounds: RangeInclusive<usize>,
    /// Bytes written and sent in the previous window and in this one.
    before: (u64, u64),
    now: (u64, u64),
    since: u32,
}

impl HighWater {
    pub(crate) fn new(bounds: RangeInclusive<usize>, now: u32) -> Self {
        Self { bounds, before: (0, 0), now: (0, 0), since: now }
    }

    /// Records bytes written and sent. Returns the current mark in bytes.
    pub(crate) fn note(&mut self, came: usize, left: usize, now: u32) -> usize {
        let mut passed = now.wrapping_sub(self.since);
        if passed >= WINDOW {
            let next = passed < 2 * WINDOW;
            self.before = if next { self.now } else { (0, 0) };
            self.now = (0, 0);
            self.since = if next { self.since.wrapping_add(WINDOW) } else { now };
            passed = now.wrapping_sub(self.since);
        }
        self.now.0 = self.now.0.saturating_add(came as u64);
        self.now.1 = self.now.1.saturating_add(left as u64);
        // The part of the previous window that is within one window from now.
        let rest = u64::from(WINDOW - passed);
        let rate = |before: u64, now: u64| now.saturating_add(before.saturating_mul(rest) / u64::from(WINDOW));
        let (came, left) = (rate(self.before.0, self.now.0), rate(self.before.1, self.now.1));
        let behind = came.saturating_sub(left);
        let mark = came.saturating_mul(KEEP).saturating_add(behind.saturating_mul(BURST)) / u64::from(WINDOW);
        usize::try_from(mark).unwrap_or(usize::MAX).clamp(*self.bounds.start(), *self.bounds.end())
    }
}

#[cfg(test)]
mod tests;
