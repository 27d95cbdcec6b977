//! io_uring on sockets: multishot receives, sends of many sockets in one call, sends without a copy.
//!
//! ```text
//!  receive    multishot receives, armed until stopped
//!  send       sends on many sockets in one call
//!  in_flight  results of sends; memory of sends without a copy, kept until the kernel has released it
//! ```
//!
//! The file operations do not depend on this module. The queue has their state and passes on
//! completions, `close` and `lose`; each turn submits receives and stops.

pub(super) mod in_flight;
pub(crate) mod receive;
pub(crate) mod send;

use std::sync::Arc;

use super::driver::RingDriver;
use super::key::Key;
use super::queue::ENDED;
use super::sync::lock;
pub(crate) use in_flight::ZeroCopy;
use receive::Receiver;

impl RingDriver {
    /// Starts a receive for `receiver`, until it is stopped or ends. The error says why this ring cannot do it.
    pub(crate) fn receive(&self, receiver: Arc<dyn Receiver>) -> Result<Key, String> {
        let mut queue = lock(&self.queue);
        if let Some(why) = &queue.closed {
            return Err(why.clone());
        }
        if queue.receive.provided.is_none() {
            drop(queue);
            // The locks are taken in this order everywhere.
            let mut ring = lock(&self.ring);
            queue = lock(&self.queue);
            let Some(ring) = ring.as_mut() else { return Err(ENDED.to_owned()) };
            queue.receive.provide(&mut *ring.port)?;
        }
        let is_first = queue.receive.queued.is_empty();
        let key = queue.receive.insert(receiver);
        drop(queue);
        if is_first {
            (self.kick)();
        }
        Ok(key)
    }

    /// Stops a receive. Bytes received until then, and the end, still arrive, unless the receive was not submitted yet.
    pub(crate) fn stop_receiving(&self, key: Key) {
        let mut queue = lock(&self.queue);
        let is_armed = queue.receive.is_armed(key);
        let unsent = if is_armed { None } else { queue.receive.release(key) };
        if is_armed && queue.closed.is_none() {
            queue.receive.stopping.push_back(key);
        }
        drop(queue);
        drop(unsent);
        if is_armed {
            (self.kick)();
        }
    }

    /// Returns whether a receive would find a free buffer, as far as is known.
    pub(crate) fn has_buffers(&self) -> bool {
        let queue = lock(&self.queue);
        queue.receive.provided.as_ref().is_none_or(|provided| provided.lent() < usize::from(provided.count()))
    }
}
