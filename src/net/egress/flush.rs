//! Flushing a stream: at the end of a turn, by its own call or in a batch by the ring, and when its socket has room.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
#[cfg(uring)]
use std::time::Duration;

#[cfg(uring)]
#[cfg(uring)]
use super::super::options::Receive;
#[cfg(uring)]
use super::super::send_strategy::SendStrategy;
use super::super::stats::Reason;
#[cfg(uring)]
use super::socket_writer;
use super::{Egress, EgressState};
use crate::counters::{Counter, count};
#[cfg(uring)]
use crate::ops::Target;
#[cfg(uring)]
use crate::ring::net::send::SendOp;
use crate::runtime::{Flush, Io};
#[cfg(uring)]
use crate::sys::call::IOV_LIMIT;
use crate::sys::errno::Errno;

impl Egress {
    /// Resumes sending: the socket has room, or the rate allows it.
    pub(super) fn go_on(&self) {
        let mut state = self.state();
        state.blocked = false;
        let flush = state.needs_flush();
        state.room |= flush;
        // With an empty queue, the writer itself waits for room.
        let waiter = if flush { None } else { state.waiter.take() };
        state.refused &= flush;
        drop(state);
        if flush {
            self.schedule(self.options.limit);
        }
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Wakes the writer if it may continue, because bytes were sent or sending has failed.
    pub(super) fn sent(&self, mut state: MutexGuard<'_, EgressState>) {
        // Without its runtime a stream never has more room, and its writer gets an error.
        let enough = state.queued() <= state.high / 2 || self.writer.is_unwatched();
        state.refused &= !enough;
        let waiter = if enough { state.waiter.take() } else { None };
        let reader = self.reader_to_wake(&state);
        drop(state);
        for task in [waiter, reader].into_iter().flatten() {
            task.wake();
        }
    }
}

impl Flush for Egress {
    fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    fn flush(self: Arc<Self>) {
        let mut state = self.state();
        state.scheduled = false;
        count(Counter::TurnFlushes, 1);
        let reason = state.reason();
        self.send_queue(&mut state, reason);
        self.sent(state);
    }

    #[cfg(uring)]
    fn joins(&self) -> usize {
        match (self.send_strategy(), &self.zero_copy) {
            (SendStrategy::Epoll, _) => 0,
            (SendStrategy::Uring, _) => usize::MAX,
            // Only the ring can send without a copy.
            (_, Some(_)) => usize::MAX,
            // One call for 1000 streams of single events takes a fiftieth of the calls but no less time, for streams of
            // tokens 4 % more, and for answers to bytes that the ring has received 3 % less (loopback, Linux 6.18).
            (_, None) => usize::from(self.options.receive == Receive::Multishot || self.turn.io() == Io::Uring),
        }
    }

    #[cfg(uring)]
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
        let zero_copy = self.zero_copy.clone();
        Some(SendOp::new(Target::from(self), queue, zero_copy))
    }

    #[cfg(uring)]
    fn end(self: Arc<Self>, send_op: SendOp) {
        let SendOp { mut queue, result, offered, .. } = send_op;
        let mut state = self.state();
        state.away = 0;
        let mut rest_by_ring = false;
        let result = result.map_err(Errno::from_raw_os_error);
        if let (Some(on), Err(errno)) = (&self.zero_copy, result)
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
                rest_by_ring = self.zero_copy.is_some() && sent == offered && sent > 0;
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
