//! The event that says what a reader has missed.

use bytes::Bytes;

/// Events that a reader does not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    reason: &'static str,
    missed: Option<u64>,
}

impl Gap {
    /// The reader was too slow for its queue or for the ring.
    pub(super) fn slow(missed: Option<u64>) -> Self {
        Self { reason: "slow", missed }
    }

    /// The reader came back too late, or with an id that nobody knows.
    pub(super) fn expired(missed: Option<u64>) -> Self {
        Self { reason: "expired", missed }
    }

    /// The log has lost some.
    pub(super) fn lost(missed: Option<u64>) -> Self {
        Self { reason: "lost", missed }
    }

    /// The log cannot be asked.
    pub(super) fn unreachable() -> Self {
        Self { reason: "unreachable", missed: None }
    }

    /// Without an id, so that a reader that is cut off behind it comes back with the last one it had.
    pub(super) fn encode(self) -> Bytes {
        let missed = self.missed.map_or("null".to_owned(), |missed| missed.to_string());
        format!("event: gap\ndata: {{\"reason\":\"{}\",\"missed\":{missed}}}\n\n", self.reason).into()
    }
}
