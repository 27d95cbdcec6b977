//! The locks of this room: the standard library's, or loom's when its model checker runs them.

#[cfg(not(millstream_loom))]
pub(super) use std::sync::{Mutex, MutexGuard};

#[cfg(millstream_loom)]
pub(super) use loom::sync::{Mutex, MutexGuard};

/// Locks. A panic of another holder is no reason to stop: what is guarded here is consistent between any two calls.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
