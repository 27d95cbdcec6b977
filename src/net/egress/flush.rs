//! Flushing a stream: at the end of a turn and when its socket has room.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use super::{Egress, EgressState};
use crate::counters::{Counter, count};
use crate::net::stats::Reason;
use crate::runtime::Flush;

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
        let enough = state.queue.len() <= state.high / 2 || self.writer.is_unwatched();
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
        let (reason, writes) = (state.reason(), state.uncounted.0);
        if reason == Reason::Turn {
            state.single_writes.flushed(writes);
            self.expects_single.store(state.single_writes.has_credit(), Ordering::Relaxed);
        }
        self.send_queue(&mut state, reason);
        self.sent(state);
    }
}
