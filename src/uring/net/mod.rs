//! io_uring on sockets: multishot receives, sends of many sockets in one call, sends without a copy.
//!
//! ```text
//!  receive    multishot receives, armed until stopped
//!  send       sends on many sockets in one call
//!  zero_copy  memory of sends without a copy, kept until the kernel has released it
//! ```
//!
//! The file operations do not depend on this module. The driver uses it as follows: [`Net`] is a field of the queue,
//! each turn calls `Driver::fill_receives`, completions of sends and receives, `close` and `lose` are passed on.

pub(crate) mod receive;
pub(crate) mod send;
mod zero_copy;

use super::queue::After;
pub(super) use zero_copy::Kept;
pub(crate) use zero_copy::ZeroCopy;

pub(super) struct Net {
    pub(super) receive: receive::MultishotRecv,
    pub(super) send: send::Sends,
}

impl Net {
    pub(super) fn new(buffers: receive::Buffers) -> Self {
        Self { receive: receive::MultishotRecv::new(buffers), send: send::Sends::default() }
    }

    pub(super) fn has_receives(&self) -> bool {
        !self.receive.queued.is_empty()
    }

    pub(super) fn has_stops(&self) -> bool {
        !self.receive.stopping.is_empty()
    }

    pub(super) fn close(&mut self, after: &mut After) {
        self.receive.close(after);
    }

    /// Called when completions of entries in flight will never arrive.
    pub(super) fn lose(&mut self, after: &mut After) {
        self.send.lose();
        self.receive.lose(after);
    }
}
