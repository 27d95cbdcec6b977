//! The end of the process ([exit(3)](https://man7.org/linux/man-pages/man3/exit.3.html)).

#![allow(unsafe_code)]

use std::panic::catch_unwind;
use std::sync::OnceLock;

use rustix::process::{Pid, getpid};

static HANDLER: OnceLock<(fn(), Pid)> = OnceLock::new();

/// Has `handler` run when `main` returns or `std::process::exit` is called, on the thread that does so, while the other
/// threads go on. The first handler is the only one; it may be given again. Its thread has no thread-local values any
/// more. It does not run in a child that was forked off: descriptors there are those of this process.
pub(crate) fn at_exit(handler: fn()) {
    if HANDLER.set((handler, getpid())).is_ok() {
        // SAFETY: the function lives as long as this code, does not unwind, and may run at any time. If it cannot be
        // registered, nothing runs.
        unsafe { libc::atexit(run) };
    }
}

extern "C" fn run() {
    if let Some((handler, pid)) = HANDLER.get()
        && getpid() == *pid
    {
        // Unwinding any further would abort, and hide how the process ends.
        let _ = catch_unwind(handler);
    }
}
