//! Runs a connection under the instructions of the reaper, until its peer leaves.

use std::future::poll_fn;
use std::io;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::leave::Leave;
use crate::server::error::BoxError;
use crate::server::state::{ConnState, ShutdownPhase};

/// Runs a connection until it ends, its shutdown phase reaches `last`, or its peer leaves. In lower phases the
/// connection is told to finish. No `async fn`, whose future would hold the arguments twice.
pub(super) fn until_raised<C: Future + Unpin>(
    conn_state: &ConnState,
    last: ShutdownPhase,
    mut connection: C,
    finish: impl Fn(&mut C),
) -> impl Future<Output = Result<C::Output, ShutdownPhase>> {
    let (mut finishes, mut leave, mut cut) = (false, Leave::default(), Some(CutOnDrop(conn_state)));
    let mut poll = move |cx: &mut Context<'_>| {
        // A late head may have become a request meanwhile, which is answered, or has been.
        let phase = match conn_state.phase() {
            ShutdownPhase::TimedOut if finishes || !conn_state.is_late() => ShutdownPhase::Finish,
            phase => phase,
        };
        if phase >= last {
            return Poll::Ready(Err(phase));
        }
        // Polled first, so that it reads the received bytes before it finishes.
        let mut polled = Pin::new(&mut connection).poll(cx);
        if polled.is_pending() && !finishes && phase > ShutdownPhase::Nothing {
            finishes = true;
            finish(&mut connection);
            polled = Pin::new(&mut connection).poll(cx);
        }
        if polled.is_pending()
            && let Poll::Ready(may_hold) = leave.poll(cx, conn_state)
        {
            match may_hold {
                true => conn_state.raise(ShutdownPhase::Abort),
                false => conn_state.abort(),
            }
            return Poll::Ready(Err(ShutdownPhase::Abort));
        }
        if polled.is_pending() && conn_state.moves() && conn_state.handle.pulse().is_none_or(|pulse| !pulse.waits()) {
            conn_state.moving.mark_asked();
        }
        polled.map(Ok)
    };
    // The guard of a connection that has ended does nothing.
    poll_fn(move |cx| {
        poll(cx).map(|ended| {
            let _ = ManuallyDrop::new(cut.take());
            ended
        })
    })
}

/// Resets a connection that is dropped during a response, by a panic or with its runtime, if the client would otherwise
/// regard the response as complete. Dropped before the connection.
struct CutOnDrop<'a>(&'a ConnState);

impl Drop for CutOnDrop<'_> {
    fn drop(&mut self) {
        if self.0.requests.ends_by_close() && self.0.requests.counts().1 > 0 {
            self.0.handle.reset();
        }
    }
}

/// Waits until the kernel has the whole response, unless the connection is aborted first. The limits on the time in
/// which a client reads do not apply to a stream that was dropped.
pub(in crate::server) async fn drained(conn_state: &ConnState) -> Result<(), BoxError> {
    let drained = poll_fn(|cx| conn_state.handle.poll_drained(cx));
    Ok(conn_state.unless_raised(ShutdownPhase::TimedOut, drained).await.map_err(|_| aborted())??)
}

pub(in crate::server) fn aborted() -> BoxError {
    io::Error::new(io::ErrorKind::TimedOut, "the connection was reset: a limit or the deadline has passed").into()
}

#[cfg(test)]
mod tests;
