//! Bytes that are held outside of the send queues, and count for their budget.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::counters::QUEUED;

/// Number of bytes that one holder accounts for. They are added to a sum for this kind of holder, and to the queued
/// bytes.
#[derive(Debug)]
pub(crate) struct Charge {
    bytes: usize,
    sum: &'static AtomicUsize,
}

impl Charge {
    /// Accounts for no bytes yet.
    pub(crate) fn new(sum: &'static AtomicUsize) -> Self {
        Self { bytes: 0, sum }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn set(&mut self, bytes: usize) {
        for all in [self.sum, &QUEUED] {
            match bytes.checked_sub(self.bytes) {
                Some(0) => {}
                Some(more) => _ = all.fetch_add(more, Ordering::Relaxed),
                None => _ = all.fetch_sub(self.bytes - bytes, Ordering::Relaxed),
            }
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}
