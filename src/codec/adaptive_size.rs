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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIN: usize = 4 << 10;
    const MAX: usize = 64 << 10;

    fn at(ms: u64) -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_millis(ms)
    }

    #[test]
    fn a_flood_that_is_taken_grows_it_to_the_bound() {
        let mut buffer = AdaptiveSize::new(MIN..=MAX, MIN);
        for ms in 0..4 {
            assert_eq!(buffer.size(), MIN << ms);
            buffer.came(buffer.size(), at(ms));
            buffer.left(buffer.size(), at(ms));
        }
        buffer.came(MAX, at(5));
        buffer.left(MAX, at(5));
        assert_eq!(buffer.size(), MAX);
    }

    #[test]
    fn what_is_never_full_does_not_grow() {
        let mut buffer = AdaptiveSize::new(MIN..=MAX, MIN);
        for ms in 0..10_000 {
            buffer.came(MIN - 1, at(ms));
            buffer.left(MIN - 1, at(ms));
        }
        assert_eq!(buffer.size(), MIN);
    }

    #[test]
    fn it_settles_at_what_leaves_in_a_window() {
        let mut buffer = AdaptiveSize::new(MIN..=MAX, MAX);
        let mut sizes = Vec::new();
        for ms in (0..10_000).step_by(20) {
            buffer.mark_full(at(ms));
            buffer.left(2 << 10, at(ms));
            sizes.push(buffer.size());
        }
        assert!(sizes[sizes.len() / 2..].iter().all(|size| [8 << 10, 16 << 10].contains(size)), "{sizes:?}");
    }

    #[test]
    fn a_trickle_shrinks_it_after_a_flood() {
        let mut buffer = AdaptiveSize::new(MIN..=MAX, MAX);
        buffer.came(MAX, at(0));
        buffer.left(MAX, at(0));
        for ms in (1..=100).step_by(9) {
            buffer.came(50, at(ms));
        }
        assert_eq!(buffer.size(), MAX, "the window has not ended");
        for ms in (100..1000).step_by(10) {
            buffer.came(50, at(ms));
            buffer.left(50, at(ms));
        }
        assert_eq!(buffer.size(), MIN);
    }

    #[test]
    fn bytes_that_left_before_it_was_full_do_not_count() {
        let mut buffer = AdaptiveSize::new(MIN..=MAX, MIN);
        buffer.left(MAX, at(0));
        buffer.mark_full(at(0));
        buffer.left(MIN - 1, at(1));
        assert_eq!(buffer.size(), MIN);
        buffer.left(1, at(2));
        assert_eq!(buffer.size(), 2 * MIN);
    }

    #[derive(Clone, Debug)]
    enum SizeStep {
        Came(usize),
        Full,
        Left(usize),
    }

    proptest! {
        #[test]
        fn it_stays_in_its_bounds(
            min in 1usize..10_000, more in 0usize..100_000, start in 0usize..200_000,
            steps in proptest::collection::vec((0u64..300, prop_oneof![
                (0usize..200_000).prop_map(SizeStep::Came), Just(SizeStep::Full), (0usize..200_000).prop_map(SizeStep::Left),
            ]), 0..200),
        ) {
            let mut buffer = AdaptiveSize::new(min..=min + more, start);
            let mut ms = 0;
            for (later, step) in steps {
                let before = buffer.size();
                ms += later;
                match step {
                    SizeStep::Came(n) => buffer.came(n, at(ms)),
                    SizeStep::Full => buffer.mark_full(at(ms)),
                    SizeStep::Left(n) => buffer.left(n, at(ms)),
                }
                let size = buffer.size();
                prop_assert!((min..=min + more).contains(&size));
                prop_assert!(size <= before.saturating_mul(2) && size >= before / 2, "{before} to {size} in one step");
                if size > before {
                    prop_assert!(matches!(step, SizeStep::Left(_)), "grows only when bytes were drained");
                }
            }
        }
    }
}
