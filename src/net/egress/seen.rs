//! What is seen of a stream from outside.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::super::path::IoPath;
use super::super::stats::{Pulse, Record, StreamStats};
use super::Egress;
use crate::net::handle::Leaving;
use crate::sys::socket;
use crate::sys::socket::Peer;

impl Egress {
    /// Which of all streams it is.
    pub(in crate::net) fn id(&self) -> u64 {
        self.writer.meter.id
    }

    /// What the stream has done so far.
    pub(in crate::net) fn numbers(&self) -> StreamStats {
        let state = self.state();
        self.writer.meter.numbers(state.queued(), state.blocked, self.path())
    }

    /// The little of it that is looked at often.
    pub(in crate::net) fn pulse(&self) -> Pulse {
        let state = self.state();
        let (queued, blocked, paced) = (state.queued(), state.blocked, state.paced);
        drop(state);
        Pulse {
            received: self.writer.meter.bytes_received(),
            sent: self.writer.meter.bytes_sent(),
            queued,
            blocked,
            paced,
        }
    }

    /// Ready when the peer has ended its side and everything it has sent was read. It must not be called while somebody else
    /// waits to read. With `look` a readiness that nothing is behind is cleared; without it, it hides the end.
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

    /// The way that writes take which may take [`path`](Self::path): there may be no ring to take.
    pub(in crate::net) fn effective_path(&self) -> IoPath {
        let has_ring = || self.turn.driver().is_some_and(|driver| driver.closed().is_none());
        match self.path() {
            IoPath::Uring if !has_ring() => IoPath::Epoll,
            path => path,
        }
    }

    /// Where its last numbers will be, for somebody who wants them.
    pub(in crate::net) fn record(&self) -> Arc<Record> {
        Arc::clone(self.record.get_or_init(Arc::default))
    }
}
