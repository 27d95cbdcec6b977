//! How far the hubs of this process have read, for readers that come from a process that was faster.

use std::collections::HashMap;

use tokio::sync::watch;

use super::id::Id;

/// The last entry of each hub.
#[derive(Debug, Default)]
pub(super) struct Positions(watch::Sender<Hubs>);

#[derive(Debug, Default)]
struct Hubs {
    at: HashMap<u64, Id>,
    next: u64,
}

/// The position of one hub, until it is dropped.
#[derive(Debug)]
pub(super) struct Position<'a> {
    positions: &'a Positions,
    hub: u64,
}

impl Positions {
    pub(super) fn join(&self, at: Id) -> Position<'_> {
        let mut hub = 0;
        self.0.send_modify(|hubs| {
            hub = hubs.next;
            hubs.next += 1;
            hubs.at.insert(hub, at);
        });
        Position { positions: self, hub }
    }

    /// Waits until all have read the entry `id`.
    pub(super) async fn passed(&self, id: Id) {
        // The sender is in self.
        let _ = self.0.subscribe().wait_for(|hubs| hubs.at.values().all(|&at| at >= id)).await;
    }
}

impl Position<'_> {
    pub(super) fn moved(&self, at: Id) {
        self.positions.0.send_modify(|hubs| {
            hubs.at.insert(self.hub, at);
        });
    }
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        self.positions.0.send_modify(|hubs| {
            hubs.at.remove(&self.hub);
        });
    }
}
