//! Keeps the events that the ring of a hub no longer has.

use std::fmt;

use bytes::Bytes;

/// Keeps all events of a hub.
pub trait Keeper: fmt::Debug + Send + Sync {
    /// Returns events from the number `from` on, and the number after them.
    fn page(&self, from: u64) -> Option<(Bytes, u64)>;

    /// The last reader has left, and others may have entered since.
    fn emptied(&self);
}
