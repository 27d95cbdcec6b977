//! The `gap` event, which tells a reader about missed events.

use bytes::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    reason: &'static str,
    missed: Option<u64>,
}

impl Gap {
    pub(super) fn slow(missed: Option<u64>) -> Self {
        Self { reason: "slow", missed }
    }

    pub(super) fn expired(missed: Option<u64>) -> Self {
        Self { reason: "expired", missed }
    }

    pub(super) fn lost(missed: Option<u64>) -> Self {
        Self { reason: "lost", missed }
    }

    pub(super) fn unreachable() -> Self {
        Self { reason: "unreachable", missed: None }
    }

    /// Encodes the event without an id, so that a reader reconnects with the id of the last real event.
    pub(super) fn encode(self) -> Bytes {
        let missed = self.missed.map_or("null".to_owned(), |missed| missed.to_string());
        format!("event: gap\ndata: {{\"reason\":\"{}\",\"missed\":{missed}}}\n\n", self.reason).into()
    }
}
