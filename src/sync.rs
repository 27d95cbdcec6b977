//! Locks and atomics where threads meet without a lock around them: the standard library's, or loom's under its model
//! checker. [docs/orderings.md](../docs/orderings.md) lists the hand-overs and their models.

use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(not(all(test, millstream_loom)))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

// loom is a dev-dependency, which the library beside its unit tests does not have.
#[cfg(all(test, millstream_loom))]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};

/// Runs code of users: a waker, a hook, the drop of a value. Its panic, which is reported already, must not keep the caller
/// from serving others. Returns `None` after one.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Locks a mutex. Ignores poisoning, because the guarded state is consistent between any two calls.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
