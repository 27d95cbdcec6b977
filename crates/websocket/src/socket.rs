//! The stream of a client: reads for the protocol, and writes of whole frames.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use millstream::internal::socket::{Outlet, Sent, poll_direct};
use millstream::sse::EventBody;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream. Each write is one or several whole frames, so that the hub can write between them.
///
/// A write is sent at once if the stream has an outlet: in order with those of the hub, which has another outlet of the
/// same socket. Other streams are written by [`poll_room`](Self::poll_room).
pub(crate) struct Socket<S> {
    stream: S,
    outlet: fn(&S) -> Option<Outlet>,
    /// Frames that were not written, for a stream without an outlet.
    queue: VecDeque<Bytes>,
    waker: Waker,
    /// Whether bytes have arrived since the last check.
    has_heard: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub(crate) fn new(stream: S, outlet: fn(&S) -> Option<Outlet>) -> Self {
        Self { stream, outlet, queue: VecDeque::new(), waker: Waker::noop().clone(), has_heard: false }
    }

    /// Sets the task that reads.
    pub(crate) fn set_waker(&mut self, cx: &Context<'_>) {
        self.waker.clone_from(cx.waker());
    }

    pub(crate) fn take_heard(&mut self) -> bool {
        std::mem::take(&mut self.has_heard)
    }

    /// Ready when all frames were written, or at least the socket takes more.
    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(frame) = self.queue.front_mut() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, frame))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => frame.advance(n),
            }
            if frame.is_empty() {
                self.queue.pop_front();
            }
        }
        let has_room = (self.outlet)(&self.stream).is_none_or(|outlet| outlet.has_room(cx));
        // Returns the error of a stream that has failed, which has no room either.
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if has_room { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Polls for the next events. While there are none, the hub writes to the outlet.
    pub(crate) fn poll_events(&self, events: &mut EventBody, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        poll_direct(events, &|| (self.outlet)(&self.stream), cx)
    }

    pub(crate) fn send(&mut self, frames: Bytes) -> io::Result<()> {
        match (self.outlet)(&self.stream).map(|outlet| outlet.send(&frames)) {
            Some(Sent::All | Sent::Waits) => Ok(()),
            Some(_) => Err(io::ErrorKind::BrokenPipe.into()),
            None => {
                self.queue.push_back(frames);
                Ok(())
            }
        }
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    /// Discards received bytes up to the end of the client.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; 512];
        loop {
            let mut buf = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> Read for Socket<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(bytes);
        match Pin::new(&mut self.stream).poll_read(&mut Context::from_waker(&self.waker), &mut buf) {
            Poll::Ready(read) => read?,
            Poll::Pending => return Err(io::ErrorKind::WouldBlock.into()),
        }
        self.has_heard |= !buf.filled().is_empty();
        Ok(buf.filled().len())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Write for Socket<S> {
    /// Takes all bytes, which are whole frames.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(Bytes::copy_from_slice(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
