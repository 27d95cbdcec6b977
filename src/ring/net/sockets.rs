//! The receives and sends of one ring, as its queue holds them.

use std::sync::Arc;
use std::task::Waker;

use super::super::guarded::guarded;
use super::in_flight::{Kept, Sends};
use super::receive::{MultishotRecv, Receiver};
use crate::sys::uring::Setup;

/// The receives and sends of one ring.
pub(crate) struct Sockets {
    pub(super) receive: MultishotRecv,
    pub(super) sends: Sends,
    /// Number of connections with new bytes, according to the last completions.
    pub(super) arrived: usize,
}

/// Values that the kernel has released.
#[derive(Default)]
pub(in crate::ring) struct Released {
    pub(super) receivers: Vec<Arc<dyn Receiver>>,
    pub(super) kept: Vec<Kept>,
}

impl Released {
    /// Drops each value. No lock may be held, since a drop may run code of users.
    pub(in crate::ring) fn drop_each(self) {
        self.receivers.into_iter().for_each(|receiver| guarded(|| drop(receiver)));
        self.kept.into_iter().for_each(|kept| guarded(|| drop(kept)));
    }
}

impl Sockets {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self { receive: MultishotRecv::new(setup.receive_buffers), sends: Sends::default(), arrived: 0 }
    }

    /// Returns whether receives wait for their submission.
    pub(in crate::ring) fn has_receives(&self) -> bool {
        !self.receive.queued.is_empty()
    }

    /// Returns whether receives wait to be stopped.
    pub(in crate::ring) fn has_stops(&self) -> bool {
        !self.receive.stopping.is_empty()
    }

    /// Returns the number of armed receives. Sends are counted by the queue.
    pub(in crate::ring) fn in_flight(&self) -> usize {
        self.receive.armed
    }

    /// Called when all completions that had arrived are handled.
    pub(in crate::ring) fn reaped(&mut self) {
        self.arrived = std::mem::take(&mut self.receive.arrivals);
    }

    pub(in crate::ring) fn close(&mut self, wake: &mut Vec<Waker>, released: &mut Released) {
        released.receivers.extend(self.receive.close(wake));
    }

    /// Gives up everything in flight.
    pub(in crate::ring) fn lose(&mut self, wake: &mut Vec<Waker>, released: &mut Released) {
        self.sends.lose();
        released.receivers.extend(self.receive.lose(wake));
    }
}
