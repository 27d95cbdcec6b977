//! Waiting for room and for an empty queue, and writing without waiting.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use tokio::task::coop;

use super::super::stats::Reason;
use super::Egress;

impl Egress {
    /// As [`poll_write`](Self::poll_write), but fails with `WouldBlock` where it would wait.
    pub(in crate::net) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.write(None, slices) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Waits until the next write is accepted or fails, as far as known: a full socket has room in the queue until a
    /// write was refused.
    pub(in crate::net) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = ready!(coop::poll_proceed(cx));
        let mut state = self.state();
        if state.blocked && state.refused && state.failure.is_none() && !state.ended {
            self.check_runtime()?;
            state.waiter = Some(cx.waker().clone());
            return Poll::Pending;
        }
        progress.made_progress();
        Poll::Ready(Ok(()))
    }

    pub(in crate::net) fn is_write_closed(&self) -> bool {
        let state = self.state();
        state.ended || state.failure.is_some()
    }

    /// Offers the queue to the socket. Fails with `WouldBlock` if it does not take all.
    pub(in crate::net) fn try_drain(&self) -> io::Result<()> {
        let mut state = self.state();
        self.send_queue(&mut state, Reason::Flushed);
        self.report(&mut state)?;
        match state.queue.len() {
            0 => Ok(()),
            n => Err(io::Error::new(io::ErrorKind::WouldBlock, format!("the socket has not taken {n} written bytes"))),
        }
    }

    /// As [`shut_down`](Self::shut_down), for an owner that cannot take an error: the next call returns it.
    pub(in crate::net) fn shut_down_at_drop(&self) {
        if self.shut_down().is_err() {
            self.report_again(&mut self.state());
        }
    }

    /// Waits until the kernel has accepted every byte that was written. Sends queued bytes for `reason`.
    pub(in crate::net) fn poll_drained(&self, cx: &mut Context<'_>, reason: Reason) -> Poll<io::Result<()>> {
        let mut state = self.state();
        self.send_queue(&mut state, reason);
        if let Some(failure) = state.failure {
            self.mark_reported(&mut state);
            return Poll::Ready(Err(failure.into()));
        }
        if state.queue.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.check_runtime()?;
        state.waiter = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Flushes for the owner. In a task the end of the turn does that, together with later writes; the future of a
    /// `block_on` may never reach the end of a turn, so it flushes here.
    pub(in crate::net) fn flush_asked(&self) -> io::Result<()> {
        if tokio::task::try_id().is_none() {
            self.send_queue(&mut self.state(), Reason::Flushed);
        }
        self.check()
    }
}
