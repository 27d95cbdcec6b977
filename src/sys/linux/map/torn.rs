//! The order of lost bytes and of the mark that tells about them.
//!
//! The guard sets the mark, then maps zeros. Readers read bytes, then look for the mark. Acquire and release at the mark
//! alone would order the other directions: what follows the load, and what precedes the store.

use crate::sync::atomic::{Ordering, fence};

/// Between the mark and the zeros.
pub(super) fn before_zeros() {
    fence(Ordering::Release);
}

/// Between the bytes and the mark.
pub(super) fn after_reading() {
    fence(Ordering::Acquire);
}

#[cfg(all(test, millstream_loom))]
mod tests {
    mod models;
}
