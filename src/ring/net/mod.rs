//! io_uring on sockets: receives that stay armed, sends of many sockets in one call, sends without a copy.
//!
//! ```text
//!  receive    sockets that the kernel receives from until it is told to stop
//!  send       sends on many sockets in one call
//!  zero_copy  what sends without a copy keep until the kernel has let go of it
//! ```
//!
//! Nothing here is needed to understand how files are driven. The driver touches it in these places: [`Net`] is a field
//! of the queue, `Driver::fill_receives` is called by each turn, completions of sends and receives are passed on, and
//! both ends of a ring's life (`close`, `lose`).

pub(crate) mod receive;
pub(crate) mod send;
mod zero_copy;

use super::queue::After;
pub(super) use zero_copy::Kept;
pub(crate) use zero_copy::ZeroCopy;

/// What a queue knows about sockets.
pub(super) struct Net {
    pub(super) receive: receive::Inbox,
    pub(super) send: send::Sends,
}

impl Net {
    pub(super) fn new(buffers: receive::Buffers) -> Self {
        Self { receive: receive::Inbox::new(buffers), send: send::Sends::default() }
    }

    /// Whether a receive is to be armed.
    pub(super) fn has_receives(&self) -> bool {
        !self.receive.queued.is_empty()
    }

    /// Whether a receive is to be stopped.
    pub(super) fn has_stops(&self) -> bool {
        !self.receive.stopping.is_empty()
    }

    /// The ring takes nothing more.
    pub(super) fn close(&mut self, after: &mut After) {
        self.receive.close(after);
    }

    /// What is in flight will never be heard of.
    pub(super) fn lose(&mut self, after: &mut After) {
        self.send.lose();
        self.receive.lose(after);
    }
}
