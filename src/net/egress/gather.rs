//! Writes that follow others: gathered until the end of the turn, or sent at once behind what is queued.

use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::socket_writer::SendFailure;
use super::{COPY_MAX, Egress, EgressState};
use crate::buf::origin::{Origin, OriginSlice, OriginSlices};
use crate::buf::queue::Queue;
use crate::net::send_strategy::SendStrategy;
use crate::net::stats::Reason;
use crate::sys::errno::Errno;

/// Bytes a task sends before it yields to others.
const BURST: usize = 2 << 20;

/// Looks up the origin of each slice, which is done here and nowhere else.
#[inline]
pub(super) fn with_origins<T>(slices: &[IoSlice<'_>], write: impl FnOnce(OriginSlices<'_>) -> T) -> T {
    // hyper passes at most 64 slices, usually few.
    match slices.len() {
        n @ ..=4 => write(OriginSlices::new(slices, &mut [Origin::Unknown; 4][..n])),
        n @ ..=64 => write(OriginSlices::new(slices, &mut [Origin::Unknown; 64][..n])),
        n => write(OriginSlices::new(slices, &mut vec![Origin::Unknown; n])),
    }
}

impl Egress {
    /// As [`poll_write`](Self::poll_write). Without `waker` the task is not woken.
    #[inline(never)]
    pub(super) fn write(&self, waker: Option<&Waker>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        with_origins(slices, |slices| self.write_from(waker, slices))
    }

    fn write_from(&self, waker: Option<&Waker>, slices: OriginSlices<'_>) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        self.report(&mut state)?;
        if state.dead || state.shut_down {
            return Poll::Ready(Err(Errno::PIPE.into()));
        }
        let offered = slices.iter().map(|slice| slice.bytes().len()).sum();
        if let Some(limit) = self.gathers(&state, slices, offered) {
            state.enqueue(slices);
            state.record_bytes(offered, 0);
            self.writer.meter.frame();
            // Copying a short slice may read beyond the end of its file.
            if slices.iter().any(OriginSlice::is_torn) {
                return Poll::Ready(Err(self.fail_now(&mut state, SendFailure::Torn)));
            }
            // Written only under the lock, so a plain store suffices; an atomic increment costs more than the copy.
            self.writes.store(self.writes.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            let flush = state.needs_flush();
            drop(state);
            if flush {
                self.schedule(limit);
            }
            return Poll::Ready(Ok(offered));
        }
        if state.burst >= BURST
            && let Some(waker) = waker
        {
            state.burst = 0;
            waker.wake_by_ref();
            return Poll::Pending;
        }
        if !state.blocked
            && let Some(n) = self.write_through(&mut state, slices, offered)?
        {
            return Poll::Ready(Ok(n));
        }
        self.check_runtime()?;
        (state.burst, state.refused) = (0, true);
        if let Some(waker) = waker {
            state.waiter = Some(waker.clone());
        }
        Poll::Pending
    }

    /// Returns the maximum time that a write may wait in the queue, or `None` if it goes through.
    fn gathers(&self, state: &EgressState, slices: OriginSlices<'_>, offered: usize) -> Option<Duration> {
        let limit = self.options.limit;
        if limit.is_zero() || self.send_strategy() == SendStrategy::NoCork || state.queue.len() + offered > state.high {
            return None;
        }
        // Empty writes, and writes that must fail, go to the kernel for its own result.
        if state.failure.is_some() || state.ended || (offered == 0 && state.queue.is_empty()) {
            return None;
        }
        if !state.blocked && self.peer_spoke.load(Ordering::Relaxed) {
            self.peer_spoke.store(false, Ordering::Relaxed);
            return None;
        }
        // The rest of a file cannot be gathered with other bytes; HTTP/2 frames include their heads.
        if slices.is_one_file() {
            return None;
        }
        let is_short = |slice: OriginSlice<'_>| slice.bytes().len() <= COPY_MAX;
        let fits = !Queue::all_are_full() && slices.iter().all(|slice| is_short(slice) || slice.is_known());
        fits.then_some(limit)
    }

    pub(super) fn write_through(
        &self,
        state: &mut EgressState,
        slices: OriginSlices<'_>,
        offered: usize,
    ) -> io::Result<Option<usize>> {
        if offered == 0 && !state.queue.is_empty() {
            return Ok(Some(0));
        }
        let waited = state.queue.len();
        if !self.may_send(state, waited + offered) {
            return Ok(None);
        }
        match self.writer.send_through(&mut state.queue, slices, self.sends_files()) {
            Ok(sent) => {
                state.blocked = sent.is_none();
                // A full socket may have taken a part of the queue.
                let through = sent.unwrap_or(0);
                self.record_bytes(state, through, waited - state.queue.len() + through);
                if let Some(sent) = sent {
                    state.burst += sent;
                    self.writer.meter.frame();
                    self.writer.meter.count_flush(Reason::Through);
                }
                state.settle();
                self.tune_if_due(state);
                Ok(sent)
            }
            Err(failure) => Err(self.fail_now(state, failure)),
        }
    }
}
