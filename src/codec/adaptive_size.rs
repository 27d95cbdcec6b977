//! Adaptive size of a buffer between two bounds.
//!
//! The size doubles when the buffer was full and drained fast: more input was available, and a larger buffer saves
//! calls. It halves when the buffer was full and drained slowly, because a larger one only makes bytes wait, and when
//! no single input in a window exceeded a quarter of it.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// A full buffer that drains within this time grows. A buffer with small inputs for this time shrinks.
const WINDOW: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub(crate) struct AdaptiveSize {
    bounds: RangeInclusive<usize>,
    size: usize,
    /// Time when the buffer became full, and the number of bytes drained since.
    full: Option<(Instant, usize)>,
    since: Option<Instant>,
    peak: usize,
}

impl AdaptiveSize {
    /// Creates a buffer of `start` bytes whose size stays within `bounds`, which must not start at 0.
    pub(crate) fn new(bounds: RangeInclusive<usize>, start: usize) -> Self {
        assert!(*bounds.start() > 0 && !bounds.is_empty(), "internal: a buffer of {bounds:?} bytes");
        let size = start.clamp(*bounds.start(), *bounds.end());
        Self { bounds, size, full: None, since: None, peak: 0 }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    fn set(&mut self, size: usize) {
        self.size = size.clamp(*self.bounds.start(), *self.bounds.end());
    }

    pub(crate) fn came(&mut self, n: usize, now: Instant) {
        self.peak = self.peak.max(n);
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) >= WINDOW {
            if self.peak <= self.size / 4 {
                self.set(self.size / 2);
            }
            self.since = Some(now);
            self.peak = 0;
        }
        if n >= self.size {
            self.mark_full(now);
        }
    }

    pub(crate) fn mark_full(&mut self, now: Instant) {
        self.full.get_or_insert((now, 0));
    }

    pub(crate) fn left(&mut self, n: usize, now: Instant) {
        let Some((since, left)) = &mut self.full else { return };
        *left += n;
        if *left >= self.size {
            let fast = now.duration_since(*since) <= WINDOW;
            self.full = None;
            self.set(if fast { self.size.saturating_mul(2) } else { self.size / 2 });
        }
    }
}

#[cfg(test)]
mod tests;
