//! End of a stream, by shutdown, by dropping it or by process exit: written bytes are handed to the kernel.

use std::io;
use std::sync::Arc;

use super::super::stats::Reason;
use super::linger::Lingering;
use super::{Egress, EgressState};
use crate::sys::fd::AsFd;
use crate::sys::socket;

impl Egress {
    /// Ends the sending side behind the queued bytes, without waiting for them. Later writes fail.
    pub(in crate::net) fn shut_down(&self) -> io::Result<()> {
        let mut state = self.state();
        self.send_queue(&mut state, Reason::Shutdown);
        self.report(&mut state)?;
        (state.ended, state.shut_down) = (true, true);
        if !state.queue.is_empty() {
            return self.check_runtime();
        }
        self.close_if_due(&mut state);
        self.report(&mut state)
    }

    /// Closes the sending side of the socket if the owner has shut it down and nothing is queued.
    pub(super) fn close_if_due(&self, state: &mut EgressState) {
        if !state.shut_down || !state.queue.is_empty() {
            return;
        }
        match socket::shutdown_write(self.as_fd()) {
            Err(e) if e.kind() != io::ErrorKind::NotConnected => self.fail(state, e.into()),
            _ => {}
        }
    }

    /// Called when the owner drops the stream. Hands waiting bytes to the kernel, and sends the rest in the background.
    pub(in crate::net) fn abandon(self: &Arc<Self>) {
        let mut state = self.state();
        self.send_queue(&mut state, Reason::Dropped);
        // Bytes delayed by a rate stay delayed.
        if !state.queue.is_empty() && !state.paced {
            self.hand_over(&mut state);
            if !state.queue.is_empty() {
                // The next send waits for room by the driver of the runtime again.
                self.writer.set_unwatched(false);
                state.blocked = false;
            }
        }
        let left = !state.queue.is_empty();
        drop(state);
        if left {
            self.runtime().spawn(Lingering::new(Arc::clone(self)).run());
        }
    }

    /// Hands waiting bytes to the kernel by a larger send buffer, whether or not the socket has room. Bytes that do not
    /// fit remain, and no task is woken when they would fit.
    pub(super) fn hand_over(&self, state: &mut EgressState) {
        if state.failure.is_some() || state.queue.is_empty() {
            return;
        }
        if socket::discards_at_close(self.as_fd()) {
            // The owner has chosen to discard unsent bytes.
            state.lose(&self.writer.meter);
            return;
        }
        self.writer.set_unwatched(true);
        self.offer(state, Reason::Dropped);
        // Twice, because the kernel's overhead is only estimated.
        for _ in 0..2 {
            if state.queue.is_empty() || !socket::grow_send_buffer(self.as_fd(), state.queue.len()) {
                return;
            }
            self.offer(state, Reason::Dropped);
        }
    }
}
