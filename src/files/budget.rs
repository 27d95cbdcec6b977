//! Bounds for memory that responses and kept files share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of bytes that may still be taken.
#[derive(Debug)]
pub(super) struct Budget(AtomicU64);

/// Bytes that were taken. They are returned when it is dropped.
#[derive(Debug)]
pub(super) struct Share(Arc<Budget>, u64);

impl Budget {
    pub(super) fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    pub(super) fn take(this: &Arc<Self>, bytes: u64) -> Option<Share> {
        let taken = this.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        taken.is_ok().then(|| Share(Arc::clone(this), bytes))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.0.fetch_add(self.1, Ordering::Relaxed);
    }
}
