//! What is seen of a stream from outside.

use std::sync::Arc;

use super::super::numbers::{Numbers, Pulse, Record};
use super::super::path::IoPath;
use super::Egress;

impl Egress {
    /// Which of all streams it is.
    pub(in crate::net) fn id(&self) -> u64 {
        self.wire.meter.id
    }

    /// What the stream has done so far.
    pub(in crate::net) fn numbers(&self) -> Numbers {
        let state = self.state();
        self.wire.meter.numbers(state.queued(), state.blocked, self.path())
    }

    /// The little of it that is looked at often.
    pub(in crate::net) fn pulse(&self) -> Pulse {
        let state = self.state();
        let (queued, blocked, paced) = (state.queued(), state.blocked, state.paced);
        drop(state);
        Pulse { received: self.wire.meter.bytes_received(), sent: self.wire.meter.bytes_sent(), queued, blocked, paced }
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
