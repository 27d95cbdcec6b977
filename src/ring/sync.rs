//! Locks of this module: the standard library's, or loom's under its model checker. Code of users, which may panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(not(all(test, millstream_loom)))]
pub(super) use std::sync::{Mutex, MutexGuard};

// loom is a dev-dependency, which the library beside its unit tests does not have.
#[cfg(all(test, millstream_loom))]
pub(super) use loom::sync::{Mutex, MutexGuard};

/// Locks a mutex. Ignores poisoning, because the guarded state is consistent between any two calls.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs code of users. Its panic must not keep the caller from what is left to do.
pub(super) fn guarded(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}
