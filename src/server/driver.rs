//! A response that was taken over from hyper: its body is written to the stream, frame by frame.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::rt::{Read, ReadBuf, Write};

use super::body_error::BoxError;
use super::conn_state::{ConnState, ShutdownPhase};
use super::connection::{aborted, until_raised};
use super::takeover::Driven;
use crate::net::{Rewind, TakeOver};

/// Bytes read at once while a response is in progress, or before a request.
const LOOK: usize = 512;

pub(super) struct Driver<I> {
    stream: I,
    body: Box<dyn Driven>,
    /// Received bytes of the next request.
    early: Bytes,
    /// Whether only reading tells that the client has left.
    reads: bool,
    finishes: bool,
}

impl<I: Read + Write + Rewind + TakeOver + Unpin> Driver<I> {
    pub(super) fn new(stream: I, early: Bytes, body: Box<dyn Driven>, reads: bool) -> Self {
        Self { stream, body, early, reads, finishes: false }
    }

    /// Writes the body to its end. Returns the stream, and whether a further request follows on it.
    pub(super) async fn run(mut self, conn_state: &ConnState) -> Result<(I, bool), BoxError> {
        let finish = |driver: &mut Self| driver.finishes = true;
        until_raised(conn_state, ShutdownPhase::TimedOut, &mut self, finish).await.map_err(|_| aborted())??;
        let Self { mut stream, body, mut early, finishes, .. } = self;
        let persists = body.keeps_alive() && !finishes;
        // Completes the request.
        drop(body);
        if persists && early.is_empty() {
            match conn_state.unless_raised(ShutdownPhase::Nothing, next(&mut stream)).await {
                Ok(bytes) => early = bytes?,
                Err(ShutdownPhase::Abort) => return Err(aborted()),
                Err(_) => {}
            }
        }
        if !persists || early.is_empty() {
            poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await?;
            return Ok((stream, false));
        }
        stream.unread(&early);
        Ok((stream, true))
    }

    /// Detects the end of a client that must be read for that. hyper does the same.
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

impl<I: Read + Write + Rewind + TakeOver + Unpin> Future for Driver<I> {
    type Output = Result<(), BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let Self { stream, body, .. } = &mut *self;
        match body.poll_drive(cx, stream) {
            Poll::Pending => self.poll_early(cx).map(|error| Err(error.into())),
            done => done,
        }
    }
}

/// Waits for the first bytes of the next request; none at the end of the stream.
async fn next<I: Read + Unpin>(stream: &mut I) -> io::Result<Bytes> {
    poll_fn(|cx| poll_some(stream, cx)).await
}

fn poll_some<I: Read + Unpin>(stream: &mut I, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
    let mut bytes = [0; LOOK];
    let mut buf = ReadBuf::new(&mut bytes);
    ready!(Pin::new(stream).poll_read(cx, buf.unfilled()))?;
    Poll::Ready(Ok(Bytes::copy_from_slice(buf.filled())))
}
