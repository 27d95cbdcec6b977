//! Sends of a stream by the ring, in a batch with those of other streams (feature `uring-net`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::send_strategy::SendStrategy;
use super::super::stats::Reason;
use super::{Egress, socket_writer};
use crate::counters::{Counter, count};
use crate::ops::Target;
use crate::ring::net::send::{RingSend, SendOp};
use crate::runtime::Io;
use crate::sys::call::IOV_LIMIT;
use crate::sys::errno::Errno;

impl Egress {
    pub(in crate::net) fn receives_by_ring(&self) -> bool {
        self.by_ring.receives
    }
}

impl RingSend for Egress {
    fn joins(&self) -> usize {
        match (self.send_strategy(), &self.by_ring.zero_copy) {
            (SendStrategy::Epoll, _) => 0,
            (SendStrategy::Uring, _) => usize::MAX,
            // Only the ring can send without a copy.
            (_, Some(_)) => usize::MAX,
            // One call for 1000 streams of single events takes a fiftieth of the calls but no less time, for streams of
            // tokens 4 % more, and for answers to bytes that the ring has received 3 % less (loopback, Linux 6.18).
            (_, None) => usize::from(self.by_ring.receives || self.turn.io() == Io::Uring),
        }
    }

    fn begin(self: Arc<Self>) -> Option<SendOp> {
        let mut state = self.state();
        let queue = &state.queue;
        // The batch may have been formed for other streams.
        let is_ours = !state.is_held() && state.failure.is_none() && self.send_strategy() != SendStrategy::Epoll;
        if !is_ours || queue.is_empty() || queue.is_file_next() || queue.is_torn(IOV_LIMIT, true) {
            return None;
        }
        let waits = state.queue.len();
        if !self.may_send(&mut state, waits) {
            return None;
        }
        state.scheduled = false;
        count(Counter::TurnFlushes, 1);
        self.writer.meter.count_flush(state.reason());
        state.away = state.queue.len();
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        let zero_copy = self.by_ring.zero_copy.clone();
        Some(SendOp::new(Target::from(self), queue, zero_copy))
    }

    fn end(self: Arc<Self>, send_op: SendOp) {
        let SendOp { mut queue, result, offered, .. } = send_op;
        let mut state = self.state();
        state.away = 0;
        let mut rest_by_ring = false;
        let result = result.map_err(Errno::from_raw_os_error);
        if let (Some(on), Err(errno)) = (&self.by_ring.zero_copy, result)
            && socket_writer::is_refused(errno)
        {
            on.store(false, Ordering::Relaxed);
        }
        match self.writer.sent(&queue, result) {
            Ok(sent) => {
                let sent = sent.unwrap_or(0);
                queue.advance(sent);
                self.record_bytes(&mut state, 0, sent);
                if (1..offered).contains(&sent) {
                    self.writer.meter.partial();
                }
                // The send was split in two, and the second part is next.
                rest_by_ring = self.by_ring.zero_copy.is_some() && sent == offered && sent > 0;
            }
            Err(failure) => self.fail(&mut state, failure),
        }
        // Bytes written meanwhile follow. Usually there are none, and the queue keeps its memory.
        let behind = std::mem::replace(&mut state.queue, queue);
        state.queue.append(behind);
        match state.failure {
            Some(_) => state.lose(&self.writer.meter),
            None if rest_by_ring => {}
            None => self.send_queue(&mut state, Reason::Turn),
        }
        if state.failure.is_none() {
            self.close_if_due(&mut state);
        }
        state.settle();
        self.tune_if_due(&mut state);
        let flush = state.needs_flush();
        self.sent(state);
        if flush {
            self.schedule(Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests;
