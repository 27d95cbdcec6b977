//! Bytes that the kernel moves by itself, in the order of the others.

use std::io;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use super::super::stats::{Reason, Way};
use super::Egress;

impl Egress {
    /// Has `send` send bytes of its own, behind all that were written before, and gives its answer. It must not block.
    /// `Pending`: the socket has no room, and the task is woken when it has. An error leaves the stream as it is: it may
    /// be that only this way of sending is refused.
    pub(in crate::net) fn poll_send_with(
        &self,
        cx: &mut Context<'_>,
        send: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        self.send_queue(&mut state, Reason::Copy);
        if let Some(failure) = state.failure {
            self.note_told(&mut state);
            return Poll::Ready(Err(failure.into()));
        }
        if state.queued() == 0 && !state.is_held() && self.may_send(&mut state, 0) {
            match self.writer.send(Way::Call, send) {
                Ok(Some(n)) => {
                    self.moved(&mut state, n, n);
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
