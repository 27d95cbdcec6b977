//! io_uring on sockets: multishot receives, sends of many sockets in one call, sends without a copy.
//!
//! ```text
//!  receive    multishot receives, armed until stopped
//!  send       sends on many sockets in one call
//!  in_flight  results of sends; memory of sends without a copy, kept until the kernel has released it
//! ```
//!
//! The file operations do not depend on this module. Under the feature `uring-net`; without it `no_net` has the same
//! functions, which do nothing. The queue has [`Sockets`], passes completions on, and asks them for work at each turn.

#![allow(unsafe_code)]

pub(super) mod in_flight;
pub(crate) mod receive;
pub(crate) mod send;

use std::sync::Arc;

use io_uring::opcode;

use super::driver::RingDriver;
use super::key::{About, Key};
use super::port::Ring;
use super::queue::{After, ENDED, Queue, guarded};
use super::sync::lock;
use crate::sys::uring::{Completion, Setup};
pub(crate) use in_flight::ZeroCopy;
use in_flight::{Kept, Sends};
use receive::{MultishotRecv, Receiver};

/// The receives and sends of one ring.
pub(crate) struct Sockets {
    receive: MultishotRecv,
    sends: Sends,
    /// Number of connections with new bytes, according to the last completions.
    arrived: usize,
}

/// What the kernel has released.
#[derive(Default)]
pub(super) struct Released {
    receivers: Vec<Arc<dyn Receiver>>,
    kept: Vec<Kept>,
}

impl Released {
    /// Drops each value. No lock may be held, since a drop may run code of users.
    pub(super) fn drop_each(self) {
        self.receivers.into_iter().for_each(|receiver| guarded(|| drop(receiver)));
        self.kept.into_iter().for_each(|kept| guarded(|| drop(kept)));
    }
}

impl Sockets {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self { receive: MultishotRecv::new(setup.receive_buffers), sends: Sends::default(), arrived: 0 }
    }

    /// Returns whether receives wait for their submission.
    pub(super) fn has_receives(&self) -> bool {
        !self.receive.queued.is_empty()
    }

    /// Returns whether receives wait to be stopped.
    pub(super) fn has_stops(&self) -> bool {
        !self.receive.stopping.is_empty()
    }

    /// Returns the number of armed receives. Sends are counted by the queue.
    pub(super) fn in_flight(&self) -> usize {
        self.receive.armed
    }

    /// Called when all completions that had arrived are handled.
    pub(super) fn reaped(&mut self) {
        self.arrived = std::mem::take(&mut self.receive.arrivals);
    }

    pub(super) fn close(&mut self, after: &mut After) {
        after.released.receivers.extend(self.receive.close(&mut after.wake));
    }

    /// Gives up everything in flight.
    pub(super) fn lose(&mut self, after: &mut After) {
        self.sends.lose();
        after.released.receivers.extend(self.receive.lose(&mut after.wake));
    }
}

impl Queue {
    /// Handles a completion of a send, a receive or the stop of one.
    pub(super) fn complete_socket(&mut self, about: About, completion: Completion, after: &mut After) {
        match about {
            About::Send(key) => {
                let ended = usize::from(!completion.more);
                self.in_flight -= ended;
                self.room.swift.used -= ended;
                after.released.kept.extend(self.sockets.sends.complete(key, completion));
            }
            About::Receive(key) => {
                let receiver = self.sockets.receive.complete(key, completion, &mut after.wake);
                after.released.receivers.extend(receiver);
            }
            _ => self.control_ended(),
        }
    }

    /// Pushes stops while there is room for control entries, and receives.
    pub(in crate::ring) fn fill_sockets(&mut self, ring: &mut Ring) {
        while self.room.control.left() > 0
            && ring.port.room() > 0
            && let Some(key) = self.sockets.receive.stopping.pop_front()
        {
            if self.sockets.receive.is_armed(key) {
                let entry = opcode::AsyncCancel::new(About::Receive(key).user_data()).build();
                // SAFETY: a cancel entry contains no pointers.
                unsafe { self.push_control(ring, &entry, About::Stop(key)) };
            }
        }
        while ring.port.room() > 0
            && let Some(key) = self.sockets.receive.queued.pop_front()
        {
            if let Some(entry) = self.sockets.receive.arm(key) {
                // SAFETY: a receive points only to the provided buffers, which `MultishotRecv` keeps.
                unsafe { ring.push(&entry, About::Receive(key).user_data(), false) };
            }
        }
    }
}

impl RingDriver {
    /// Starts a receive for `receiver`, until it is stopped or ends. The error says why this ring cannot do it.
    pub(crate) fn receive(&self, receiver: Arc<dyn Receiver>) -> Result<Key, String> {
        let mut queue = lock(&self.queue);
        if let Some(why) = &queue.closed {
            return Err(why.clone());
        }
        if queue.sockets.receive.provided.is_none() {
            drop(queue);
            // The locks are taken in this order everywhere.
            let mut ring = lock(&self.ring);
            queue = lock(&self.queue);
            let Some(ring) = ring.as_mut() else { return Err(ENDED.to_owned()) };
            queue.sockets.receive.provide(&mut *ring.port)?;
        }
        let is_first = queue.sockets.receive.queued.is_empty();
        let key = queue.sockets.receive.insert(receiver);
        drop(queue);
        if is_first {
            (self.kick)();
        }
        Ok(key)
    }

    /// Stops a receive. Bytes received until then, and the end, still arrive, unless the receive was not submitted yet.
    pub(crate) fn stop_receiving(&self, key: Key) {
        let mut queue = lock(&self.queue);
        let is_armed = queue.sockets.receive.is_armed(key);
        let unsent = if is_armed { None } else { queue.sockets.receive.release(key) };
        if is_armed && queue.closed.is_none() {
            queue.sockets.receive.stopping.push_back(key);
        }
        drop(queue);
        drop(unsent);
        if is_armed {
            (self.kick)();
        }
    }

    /// Returns the number of connections with new bytes, according to the last completions.
    pub(crate) fn arrived(&self) -> usize {
        lock(&self.queue).sockets.arrived
    }

    /// Returns whether a receive would find a free buffer, as far as is known.
    pub(crate) fn has_buffers(&self) -> bool {
        let queue = lock(&self.queue);
        queue.sockets.receive.provided.as_ref().is_none_or(|provided| provided.lent() < usize::from(provided.count()))
    }
}
