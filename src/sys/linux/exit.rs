//! The end of the process ([exit(3)](https://man7.org/linux/man-pages/man3/exit.3.html)).

#![allow(unsafe_code)]

use std::panic::catch_unwind;
use std::sync::OnceLock;

use rustix::process::{Pid, getpid};

static HANDLER: OnceLock<(fn(), Pid)> = OnceLock::new();

/// Runs `handler` when `main` returns or `std::process::exit` is called, on the calling thread, while other threads
/// still run. Only the first handler is registered; repeated calls with it have no effect. Thread-local values are
/// already destroyed. The handler does not run in a forked child, whose descriptors are shared with this process.
pub(crate) fn at_exit(handler: fn()) {
    if HANDLER.set((handler, getpid())).is_ok() {
        // SAFETY: the function is never unloaded, does not unwind, and may run at any time. A failure has no effect.
        unsafe { libc::atexit(run) };
    }
}

extern "C" fn run() {
    if let Some((handler, pid)) = HANDLER.get()
        && getpid() == *pid
    {
        // Unwinding further would abort and change the exit status.
        let _ = catch_unwind(handler);
    }
}
