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
        this.reduce(bytes).then(|| Share(Arc::clone(this), bytes))
    }

    fn reduce(&self, bytes: u64) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

impl Share {
    /// Takes or returns bytes, so that the share has `bytes` bytes. Returns `false` and takes none if too few are left.
    pub(super) fn resize(&mut self, bytes: u64) -> bool {
        let fits = match bytes.checked_sub(self.1) {
            Some(more) => self.0.reduce(more),
            None => {
                self.0.0.fetch_add(self.1 - bytes, Ordering::Relaxed);
                true
            }
        };
        if fits {
            self.1 = bytes;
        }
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.0.fetch_add(self.1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_within_the_budget_and_returns_what_it_has() {
        let budget = Arc::new(Budget::new(100));
        let mut share = Budget::take(&budget, 0).unwrap();
        let other = Budget::take(&budget, 30).unwrap();
        assert!(share.resize(70));
        assert!(!share.resize(71) && Budget::take(&budget, 1).is_none());
        drop(other);
        assert!(share.resize(71) && share.resize(40));
        assert!(Budget::take(&budget, 61).is_none());
        drop(share);
        assert!(Budget::take(&budget, 100).is_some());
    }
}
