//! A response that was taken over from hyper: its body is written to the stream, frame by frame.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, Write};

use super::shared_stream::SharedStream;
use super::supervise::{aborted, drained, until_raised};
use crate::net::{Rewind, TakeOver};
use crate::server::error::BoxError;
use crate::server::state::{ConnState, Driven, ShutdownPhase};

/// Bytes read at once while a response is in progress, or before a request.
const LOOK: usize = 512;

pub(super) struct BodyWriter<I> {
    stream: SharedStream<I>,
    /// `None` after its end.
    body: Option<Box<dyn Driven>>,
    /// Received bytes of the next request.
    early: Box<[u8]>,
    /// Whether only reading detects that the client has left.
    reads: bool,
}

/// How the response of a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// The connection may carry a further request.
    KeepsAlive,
    Last,
    /// The successor of the server goes on with the response.
    Moved,
}

/// A body that is being written.
struct Writing<'a, I> {
    writer: &'a mut BodyWriter<I>,
    conn_state: &'a ConnState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    All,
    Moved,
}

impl<I: Read + Write + Rewind + TakeOver + Unpin + Send + 'static> BodyWriter<I> {
    pub(in crate::server) fn new(stream: I, early: &[u8], body: Box<dyn Driven>, reads: bool) -> Self {
        // A copy, because the bytes are few and their buffer is large.
        Self { stream: SharedStream::new(stream), body: Some(body), early: early.into(), reads }
    }

    /// Writes the body to its end, unless its reader leaves with the connection.
    pub(in crate::server) async fn run(&mut self, conn_state: &ConnState) -> Result<BodyEnd, BoxError> {
        // After this response, a connection that should finish still answers a request that it has received.
        let writing = Writing { writer: self, conn_state };
        let ended = until_raised(conn_state, ShutdownPhase::TimedOut, writing, |_| ()).await;
        if ended.map_err(|_| aborted())?? == Written::Moved {
            return Ok(BodyEnd::Moved);
        }
        // Dropping the body completes the request.
        let keeps_alive = self.body.take().is_some_and(|body| body.keeps_alive());
        Ok(if keeps_alive { BodyEnd::KeepsAlive } else { BodyEnd::Last })
    }

    /// Returns the stream, which begins with the bytes of the next request that were received during the response.
    ///
    /// # Errors
    ///
    /// Another sender still has it, which would write between later responses.
    pub(in crate::server) fn into_stream(self) -> io::Result<I> {
        drop(self.body);
        let mut stream = self.stream.into_inner()?;
        stream.unread(&self.early);
        Ok(stream)
    }

    fn poll_drive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.body.as_mut().map_or(Poll::Ready(Ok(())), |body| body.poll_drive(cx, &mut self.stream))
    }

    /// Gives the connection to the successor of the server, with its reader. Returns `false` if it cannot move now.
    fn moves(&mut self, conn_state: &ConnState, cx: &mut Context<'_>) -> bool {
        let holds_bytes = || conn_state.handle.pulse().is_none_or(|pulse| pulse.waits());
        let may_move = conn_state.requests.has_events() && self.early.is_empty();
        if !may_move || holds_bytes() {
            return false;
        }
        let Poll::Ready(Some(socket)) = conn_state.moving.poll_socket(cx, &mut self.stream) else { return false };
        let Some(events) = self.body.as_mut().and_then(|body| body.leave()) else { return false };
        // The hub has written until then.
        if holds_bytes() {
            cx.waker().wake_by_ref();
            return false;
        }
        conn_state.moving.give(socket, Some(events));
        true
    }

    /// Detects that the client has left, if only reading detects this. hyper does the same.
    fn poll_early(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if !self.reads || !self.early.is_empty() {
            return Poll::Pending;
        }
        match ready!(poll_some(&mut self.stream, cx)) {
            Ok(bytes) if bytes.is_empty() => Poll::Ready(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the client ended the connection during a response",
            )),
            Ok(bytes) => {
                self.early = bytes;
                Poll::Pending
            }
            Err(error) => Poll::Ready(error),
        }
    }
}

impl<I: Read + Write + Rewind + TakeOver + Unpin + Send + 'static> Future for Writing<'_, I> {
    type Output = Result<Written, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Written, BoxError>> {
        let Self { writer, conn_state } = &mut *self;
        let mut driven = writer.poll_drive(cx);
        if driven.is_pending() && conn_state.moves() {
            if writer.moves(conn_state, cx) {
                return Poll::Ready(Ok(Written::Moved));
            }
            // The hub no longer writes the events of a reader that was asked to leave.
            driven = writer.poll_drive(cx);
        }
        match driven {
            Poll::Pending => writer.poll_early(cx).map(|error| Err(error.into())),
            Poll::Ready(done) => Poll::Ready(done.map(|()| Written::All)),
        }
    }
}

/// How a wait for the next request ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The first bytes of a request have arrived, and were given back to the stream.
    Request,
    /// The connection has ended.
    Ended,
    /// The server drains, and nothing has arrived: the socket can be given away.
    Moves,
}

/// Waits for the first bytes of the next request.
pub(super) async fn next_request<I>(stream: &mut I, conn_state: &ConnState) -> Result<Rest, BoxError>
where
    I: Read + Write + Rewind + Unpin,
{
    loop {
        // Read first: a request that has arrived is answered.
        let first = poll_fn(|cx| match (poll_some(stream, cx), conn_state.phase()) {
            (Poll::Ready(read), _) => Poll::Ready(Some(read)),
            (Poll::Pending, ShutdownPhase::Nothing) if !conn_state.moves() => Poll::Pending,
            (Poll::Pending, _) => Poll::Ready(None),
        });
        match first.await {
            None if conn_state.phase() == ShutdownPhase::Nothing => return Ok(Rest::Moves),
            Some(Ok(bytes)) if !bytes.is_empty() => {
                // Empty lines before a request are ignored, RFC 9112 §2.2.
                match bytes.iter().position(|byte| !b"\r\n".contains(byte)) {
                    Some(head) => {
                        stream.unread(&bytes[head..]);
                        return Ok(Rest::Request);
                    }
                    // The time limit of a head ends a flood of them.
                    None if conn_state.phase() < ShutdownPhase::TimedOut => tokio::task::yield_now().await,
                    None => break,
                }
            }
            // A connection without a request may end in any way.
            Some(Err(_)) => return Ok(Rest::Ended),
            Some(Ok(_)) | None => break,
        }
    }
    if conn_state.phase() == ShutdownPhase::Abort {
        return Err(aborted());
    }
    poll_fn(|cx| Pin::new(&mut *stream).poll_shutdown(cx)).await?;
    drained(conn_state).await?;
    Ok(Rest::Ended)
}

fn poll_some<I: Read + Unpin>(stream: &mut I, cx: &mut Context<'_>) -> Poll<io::Result<Box<[u8]>>> {
    let mut bytes = [0; LOOK];
    let mut buf = ReadBuf::new(&mut bytes);
    ready!(Pin::new(stream).poll_read(cx, buf.unfilled()))?;
    Poll::Ready(Ok(buf.filled().into()))
}

#[cfg(test)]
mod tests;
