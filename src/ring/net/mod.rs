//! io_uring on sockets: multishot receives, sends of many sockets in one call, sends without a copy.
//!
//! ```text
//!  receive    multishot receives, armed until stopped
//!  send       sends on many sockets in one call
//!  sockets    both, as the queue holds them
//!  in_flight  results of sends; memory of sends without a copy, kept until the kernel has released it
//! ```
//!
//! The file operations do not depend on this module. Under the feature `uring-net`; without it `no_net` has the same
//! functions, which do nothing. The queue has [`Sockets`](sockets::Sockets), passes completions on, and asks them for
//! work at each turn.

#![allow(unsafe_code)]

pub(super) mod in_flight;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod sockets;

use std::sync::Arc;

use io_uring::opcode;

use super::driver::RingDriver;
use super::key::{About, Key};
use super::port::Ring;
use super::queue::{After, ENDED, Queue};
use crate::sync::lock;
use crate::sys::uring::Completion;
pub(crate) use in_flight::ZeroCopy;
use receive::Receiver;

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

    /// Stops a receive. Bytes received until then, and the end, still arrive. Returns `false` if the receive was not
    /// submitted yet, so that nothing arrives.
    pub(crate) fn stop_receiving(&self, key: Key) -> bool {
        let mut queue = lock(&self.queue);
        let is_armed = queue.sockets.receive.is_armed(key);
        let unsent = if is_armed { None } else { queue.sockets.receive.release(key) };
        if is_armed && queue.closed.is_none() {
            queue.sockets.receive.stopping.push_back(key);
        }
        drop(queue);
        if is_armed {
            (self.kick)();
        }
        unsent.is_none()
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
