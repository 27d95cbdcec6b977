//! A clock that is cheaper to read than the exact one.

use rustix::time::{ClockId, clock_gettime};

/// Returns nanoseconds of `CLOCK_MONOTONIC_COARSE`,
/// [clock_gettime(2)](https://man7.org/linux/man-pages/man2/clock_gettime.2.html), as of the kernel's last tick, which
/// is 1 to 10 ms old at most.
#[inline]
pub(crate) fn coarse() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// As [`coarse`], in milliseconds. The value wraps around.
#[inline]
pub(crate) fn coarse_millis() -> u32 {
    (coarse() / 1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forward_by_ticks() {
        let (first, started) = (coarse(), std::time::Instant::now());
        let later = std::iter::repeat_with(coarse).find(|&now| now != first).unwrap();
        assert!(later > first);
        // The bounds on both sides show that the unit is nanoseconds; the first reading may be just before a tick.
        assert!(later - first >= 500_000 && started.elapsed().as_nanos() + 20_000_000 >= u128::from(later - first));
    }
}
