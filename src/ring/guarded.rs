//! Code of users, which may panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of users. Its panic must not keep the caller from what is left to do.
pub(super) fn guarded(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}
