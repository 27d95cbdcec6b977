//! Observing a stream through its handle.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::super::send_strategy::SendStrategy;
use super::super::stats::{Pulse, Record, StreamStats};
use super::Egress;
use crate::net::handle::Leaving;
use crate::sys::socket;
use crate::sys::socket::Peer;

impl Egress {
    pub(in crate::net) fn id(&self) -> u64 {
        self.writer.meter.id
    }

    pub(in crate::net) fn stats(&self) -> StreamStats {
        let state = self.state();
        self.writer.meter.stats(state.queued(), state.blocked, self.send_strategy())
    }

    pub(in crate::net) fn pulse(&self) -> Pulse {
        let state = self.state();
        Pulse {
            received: self.writer.meter.bytes_received(),
            sent: self.writer.meter.bytes_sent(),
            queued: state.queued(),
            blocked: state.blocked,
            paced: state.paced,
        }
    }

    /// Waits until the peer has closed its side and all of its bytes were read. Must not be called while another task
    /// waits to read. With `look`, clears a readiness without bytes behind it, which would hide the end.
    pub(in crate::net) fn poll_leaving(&self, cx: &mut Context<'_>, look: bool) -> Poll<Leaving> {
        loop {
            let Ok(io) = self.io() else { return Poll::Ready(Leaving::Gone) };
            let Ok(mut ready) = ready!(io.poll_read_ready(cx)) else { return Poll::Ready(Leaving::Gone) };
            let has_ended = ready.ready().is_read_closed();
            if !has_ended && !look {
                return Poll::Pending;
            }
            match socket::peer(self.as_fd()) {
                Peer::Gone => return Poll::Ready(Leaving::Gone),
                Peer::Ended => return Poll::Ready(Leaving::Half),
                Peer::Quiet if !has_ended => ready.clear_ready(),
                Peer::Quiet | Peer::Spoke => return Poll::Pending,
            }
        }
    }

    /// Returns [`send_strategy`](Self::send_strategy), or `epoll` if the ring it asks for is missing.
    pub(in crate::net) fn effective_strategy(&self) -> SendStrategy {
        let has_ring = || self.turn.driver().is_some_and(|driver| driver.closed().is_none());
        match self.send_strategy() {
            SendStrategy::Uring if !has_ring() => SendStrategy::Epoll,
            path => path,
        }
    }

    pub(in crate::net) fn record(&self) -> Arc<Record> {
        Arc::clone(self.record.get_or_init(Arc::default))
    }
}
