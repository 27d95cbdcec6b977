//! The `gap` event, which tells a reader about missed events.

use bytes::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sse) struct Gap {
    reason: &'static str,
    missed: Option<u64>,
}

impl Gap {
    pub(in crate::sse) fn slow(missed: Option<u64>) -> Self {
        Self { reason: "slow", missed }
    }

    pub(in crate::sse) fn expired(missed: Option<u64>) -> Self {
        Self { reason: "expired", missed }
    }

    pub(in crate::sse) fn lost(missed: Option<u64>) -> Self {
        Self { reason: "lost", missed }
    }

    pub(in crate::sse) fn unreachable() -> Self {
        Self { reason: "unreachable", missed: None }
    }

    /// Encodes the event without an id, so that a reader reconnects with the id of the last real event.
    pub(in crate::sse) fn encode(self) -> Bytes {
        let missed = self.missed.map_or("null".to_owned(), |missed| missed.to_string());
        format!("event: gap\ndata: {{\"reason\":\"{}\",\"missed\":{missed}}}\n\n", self.reason).into()
    }
}
