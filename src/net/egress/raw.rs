//! Sends performed by the caller, in order with the queued bytes.

use std::io;
use std::task::{Context, Poll};

use super::super::stats::{Reason, Way};
use super::Egress;
use crate::sys::errno::Errno;
use crate::sys::fd::BorrowedFd;

impl Egress {
    /// Calls `send` after all earlier bytes are sent, and returns its result. It must not block. `Pending` means that
    /// the socket is full; the task is woken when it has room. Errors do not fail the stream, because only this way of
    /// sending may be refused.
    pub(in crate::net) fn poll_send_with(
        &self,
        cx: &mut Context<'_>,
        send: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        self.send_queue(&mut state, Reason::Copy);
        if let Some(failure) = state.failure {
            self.mark_reported(&mut state);
            return Poll::Ready(Err(failure.into()));
        }
        if state.shut_down {
            return Poll::Ready(Err(Errno::PIPE.into()));
        }
        if state.queue.is_empty() && !state.blocked && self.may_send(&mut state, 0) {
            match self.writer.send(Way::Call, send) {
                Ok(Some(n)) => {
                    self.record_bytes(&mut state, n, n);
                    return Poll::Ready(Ok(n));
                }
                Ok(None) => state.blocked = true,
                Err(failure) => return Poll::Ready(Err(failure.into())),
            }
        }
        self.check_runtime()?;
        state.waiter = Some(cx.waker().clone());
        Poll::Pending
    }
}
