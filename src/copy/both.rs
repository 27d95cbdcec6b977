//! Bidirectional copy.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use super::CopyReport;
use super::ends::{End, Known, Source, Target};
use super::engine::Engine;
use super::error::{CopyError, Direction};
use crate::fs::Step;

#[derive(Debug)]
struct Way {
    engine: Engine,
    ended: bool,
}

impl Way {
    fn new() -> Self {
        Self { engine: Engine::new(None, None, None), ended: false }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        src: &mut dyn Source,
        dst: &mut dyn Target,
    ) -> Poll<Result<(), CopyError>> {
        if !self.ended {
            ready!(self.engine.poll(cx, src, dst))?;
            let shut = ready!(Pin::new(&mut *dst).poll_shutdown(cx));
            shut.map_err(|e| CopyError::new(Step::Shutdown, dst.end().name(), self.engine.report(), e))?;
            self.ended = true;
        }
        // A stream of this crate ends behind its queue, where sending may still fail.
        let End::Stream(stream) = dst.end() else { return Poll::Ready(Ok(())) };
        let drained = ready!(stream.poll_drained(cx));
        let name = || End::Stream(stream).name();
        Poll::Ready(drained.map_err(|e| CopyError::new(Step::Shutdown, name(), self.engine.report(), e)))
    }
}

/// Both directions, polled by their owner.
#[derive(Debug)]
pub struct Both {
    there: Way,
    back: Way,
}

#[allow(clippy::new_without_default, reason = "internal")]
impl Both {
    /// Creates a copy that has not begun.
    pub fn new() -> Self {
        Self { there: Way::new(), back: Way::new() }
    }

    /// Continues, as [`copy_bidirectional`] does.
    pub fn poll<A, B>(
        &mut self,
        cx: &mut Context<'_>,
        a: &mut A,
        b: &mut B,
    ) -> Poll<Result<(CopyReport, CopyReport), CopyError>>
    where
        A: AsyncRead + AsyncWrite + Unpin + 'static,
        B: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let Self { there, back } = self;
        let failed = match (there.poll(cx, a, b), back.poll(cx, b, a)) {
            (Poll::Ready(Err(e)), _) => e.in_direction(Direction::AToB, back.engine.report()),
            (_, Poll::Ready(Err(e))) => e.in_direction(Direction::BToA, there.engine.report()),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => {
                return Poll::Ready(Ok((there.engine.report(), back.engine.report())));
            }
            _ => return Poll::Pending,
        };
        a.end().reset();
        b.end().reset();
        Poll::Ready(Err(failed))
    }

    /// Returns a number that grows whenever bytes are read or written.
    pub fn progress(&self) -> u64 {
        [&self.there, &self.back].map(|way| 2 * way.engine.report().bytes + way.engine.pending()).iter().sum()
    }

    /// Returns whether one direction has ended, and not the other.
    pub fn has_half_ended(&self) -> bool {
        self.there.ended != self.back.ended
    }

    /// Ends both sides before both directions have ended. Resets them if bytes are lost.
    pub fn give_up<A, B>(&self, a: &mut A, b: &mut B)
    where
        A: AsyncRead + AsyncWrite + Unpin + 'static,
        B: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        if self.there.engine.pending() + self.back.engine.pending() > 0 {
            a.end().reset();
            b.end().reset();
        }
    }
}

/// Copies everything from `a` to `b` and from `b` to `a`, until both have ended. Returns the reports in this order.
///
/// The end of one side shuts down the sending side of the other; the other direction continues. A direction has ended
/// once the kernel has accepted all its bytes.
///
/// ```no_run
/// # async fn relay(mut client: tokio::net::TcpStream, mut server: tokio::net::TcpStream) -> std::io::Result<()> {
/// let (up, down) = millstream::copy::copy_bidirectional(&mut client, &mut server).await?;
/// println!("{} bytes up, {} down, by {} and {}", up.bytes, down.bytes, up.path, down.path);
/// # Ok(())
/// # }
/// ```
/// # Errors
///
/// An error in one direction ends both; the error names the direction. **TCP connections are then reset:** if one side
/// fails in the middle of a message, the peer of the other side must not regard the received part as the whole message,
/// as it would after an orderly end. Other streams are neither flushed nor shut down.
///
/// # Cancel safety
///
/// Dropping the future loses bytes that were read and not written. Nothing is shut down or reset.
pub async fn copy_bidirectional<A, B>(a: &mut A, b: &mut B) -> Result<(CopyReport, CopyReport), CopyError>
where
    A: AsyncRead + AsyncWrite + Unpin + 'static,
    B: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let mut both = Both::new();
    poll_fn(|cx| both.poll(cx, a, b)).await
}
