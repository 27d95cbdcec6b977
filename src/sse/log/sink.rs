//! Delivery of events from a log to a hub.

use std::fmt;
use std::sync::{Arc, Weak};

#[cfg(feature = "fs")]
use bytes::Bytes;
use tokio::sync::watch;

use crate::sse::SendError;
use crate::sse::event::Event;
use crate::sse::ring::HubShared;

/// Delivery target of a [`Log`](super::Log): its hub. It does not keep the hub alive.
#[derive(Clone)]
pub struct Sink {
    hub: Weak<HubShared>,
    closed: watch::Receiver<bool>,
}

impl Sink {
    pub(in crate::sse) fn new(hub: &Arc<HubShared>, closed: watch::Receiver<bool>) -> Self {
        Self { hub: Arc::downgrade(hub), closed }
    }

    /// Sets the event after which the log begins to deliver: its last one at that moment, or `None` if it was empty.
    /// Readers with the id of an older event wait for this. Only the first call has an effect.
    pub fn start(&self, after: Option<&str>) {
        if let Some(hub) = self.hub.upgrade() {
            hub.start(after);
        }
    }

    /// Delivers the next event of the log to the readers of the hub. Ignores the id set on the event.
    ///
    /// # Errors
    ///
    /// [`SendError::Closed`] if the hub is closed; [`SendError::InvalidId`] and [`SendError::InvalidName`] for an
    /// invalid event, which is skipped: call [`gap`](Self::gap) then.
    pub fn deliver(&self, id: &str, event: &Event) -> Result<(), SendError> {
        self.hub.upgrade().ok_or(SendError::Closed)?.deliver(id, event)
    }

    /// As [`deliver`](Self::deliver), for an event that is already encoded with this id and shared with other hubs.
    #[cfg(feature = "fs")]
    pub(super) fn deliver_encoded(&self, id: &str, event: Bytes) -> Result<(), SendError> {
        self.hub.upgrade().ok_or(SendError::Closed)?.deliver_encoded(id, event)
    }

    #[cfg(feature = "fs")]
    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Reports that the log has lost events after the last delivered one, and their number if known.
    pub fn gap(&self, missed: Option<u64>) {
        if let Some(hub) = self.hub.upgrade() {
            hub.gap(missed);
        }
    }

    /// Waits until the hub is closed or dropped. Cancel safe.
    pub async fn closed(&self) {
        // An error means that the hub was dropped.
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("closed", &*self.closed.borrow()).finish_non_exhaustive()
    }
}
