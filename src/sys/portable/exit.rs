//! The end of the process.

#![allow(unsafe_code)]

use std::panic::catch_unwind;
use std::sync::OnceLock;

static HANDLER: OnceLock<(fn(), u32)> = OnceLock::new();

/// Runs `handler` when `main` returns or `std::process::exit` is called, on the calling thread, while other threads
/// still run. Only the first handler is registered. The handler does not run in a forked child.
pub(crate) fn at_exit(handler: fn()) {
    if HANDLER.set((handler, std::process::id())).is_ok() {
        // SAFETY: the function is never unloaded, does not unwind, and may run at any time. A failure has no effect.
        unsafe { libc::atexit(run) };
    }
}

extern "C" fn run() {
    if let Some((handler, pid)) = HANDLER.get()
        && std::process::id() == *pid
    {
        // Unwinding further would abort and change the exit status.
        let _ = catch_unwind(handler);
    }
}
