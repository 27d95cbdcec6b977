//! The readers that exist, and their maximum.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts of readers, and of what was refused.
#[derive(Debug)]
pub(crate) struct Readers {
    max: usize,
    now: AtomicUsize,
    pub(crate) refused: AtomicU64,
    pub(crate) bad_ids: AtomicU64,
}

impl Readers {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, now: AtomicUsize::new(0), refused: AtomicU64::new(0), bad_ids: AtomicU64::new(0) })
    }

    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::Acquire)
    }

    /// Adds a reader, until the permit is dropped. `None` at the maximum.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Permit> {
        let more = |now: usize| (now < self.max).then_some(now + 1);
        self.now.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).ok()?;
        Some(Permit(Arc::clone(self)))
    }
}

/// The place of a reader.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Readers>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::AcqRel);
    }
}
