//! A monotonic clock.

use std::sync::LazyLock;
use std::time::Instant;

/// Returns nanoseconds since a moment before the first call of this process, so that no time is 0.
pub(crate) fn coarse() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64 + 1_000_000_000
}

/// As [`coarse`], in milliseconds. The value wraps around.
pub(crate) fn coarse_millis() -> u32 {
    (coarse() / 1_000_000) as u32
}
