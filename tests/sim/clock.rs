//! The clock of the machine, which stands still within a run: h2 forgets a stream that the server has reset after a second by
//! it, and hyper has no option for that. So a run is the same on a slow machine, and is not disturbed by other programs.

// A program has a clock of its own only by the name of a function of the C library.
#![allow(unsafe_code)]

/// Whether the clock can stand still.
pub(crate) const STANDS: bool = cfg!(all(target_os = "linux", target_env = "gnu"));

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod still {
    use std::cell::Cell;
    use std::ptr;

    use libc::{CLOCK_MONOTONIC, SYS_clock_gettime, c_int, clockid_t, timespec};

    thread_local! {
        /// The time of the clock of this thread while it stands still.
        static STILL: Cell<Option<(i64, i64)>> = const { Cell::new(None) };
    }

    /// The clock of this program, in place of that of the C library.
    ///
    /// # Safety
    ///
    /// `time` points to a place for a time.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
        if clock == CLOCK_MONOTONIC
            && let Some((tv_sec, tv_nsec)) = STILL.get()
        {
            // SAFETY: the caller's promise.
            unsafe { ptr::write(time, timespec { tv_sec, tv_nsec }) };
            return 0;
        }
        // SAFETY: the same call, without the vDSO.
        unsafe { libc::syscall(SYS_clock_gettime, clock, time) as c_int }
    }

    /// Lets the clock go on when it is dropped.
    pub(super) struct Still;

    impl Still {
        pub(super) fn new() -> Self {
            let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: `now` is a time.
            unsafe { clock_gettime(CLOCK_MONOTONIC, &raw mut now) };
            STILL.set(Some((now.tv_sec, now.tv_nsec)));
            Self
        }
    }

    impl Drop for Still {
        fn drop(&mut self) {
            STILL.set(None);
        }
    }
}

/// Does `work` while the clock of this thread stands still, if it can.
pub(crate) fn stand_still<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    let _still = still::Still::new();
    work()
}

#[test]
fn the_clock_stands_still() {
    let passes = || {
        let start = std::time::Instant::now();
        std::thread::park_timeout(std::time::Duration::from_millis(1));
        start.elapsed()
    };
    assert_eq!(stand_still(passes).is_zero(), STANDS);
    assert!(!passes().is_zero());
}
