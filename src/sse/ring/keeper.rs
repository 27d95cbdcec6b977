//! Keeps the events that the ring of a hub no longer has.

use std::fmt;

use bytes::Bytes;

/// The stream of a hub.
pub(in crate::sse) trait Keeper: fmt::Debug + Send + Sync {
    /// Returns events from the number `from` on, and the number after them.
    fn page(&self, from: u64) -> Option<(Bytes, u64)>;

    /// The last reader has left, and others may have entered since.
    fn emptied(&self);
}
