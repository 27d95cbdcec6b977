//! The way of events from a log into a hub.

use std::fmt;
use std::sync::{Arc, Weak};

use tokio::sync::watch;

use crate::sse::{Event, SendError, Shared};

/// Where a [`Log`](super::Log) delivers to: the hub it was given to. It does not keep the hub alive.
#[derive(Clone)]
pub struct Sink {
    hub: Weak<Shared>,
    closed: watch::Receiver<bool>,
}

impl Sink {
    pub(in crate::sse) fn new(hub: &Arc<Shared>, closed: watch::Receiver<bool>) -> Self {
        Self { hub: Arc::downgrade(hub), closed }
    }

    /// Says behind which event the log begins to deliver: its last at that moment, or `None` if it was empty. Readers that
    /// come with the id of an older event wait for this. Only the first call counts.
    pub fn start(&self, after: Option<&str>) {
        if let Some(hub) = self.hub.upgrade() {
            hub.start(after);
        }
    }

    /// Gives the next event of the log to the hub's readers. The event's own id, if it has one, is not looked at.
    ///
    /// # Errors
    ///
    /// [`SendError::Closed`] when the hub is; [`SendError::InvalidId`] and [`SendError::InvalidName`] for what cannot be
    /// sent, which is then left out: say [`gap`](Self::gap).
    pub fn deliver(&self, id: &str, event: &Event) -> Result<(), SendError> {
        self.hub.upgrade().ok_or(SendError::Closed)?.deliver(id, event)
    }

    /// Says that the log has lost events behind the one delivered last, and how many if that is known.
    pub fn gap(&self, missed: Option<u64>) {
        if let Some(hub) = self.hub.upgrade() {
            hub.gap(missed);
        }
    }

    /// Waits until the hub is closed, or gone.
    ///
    /// # Cancellation
    ///
    /// Dropping the future loses nothing.
    pub async fn closed(&self) {
        // An error says that the hub is gone.
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("closed", &*self.closed.borrow()).finish_non_exhaustive()
    }
}
