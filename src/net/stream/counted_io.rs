//! Streams that are not of this crate, with the counts and the controls that a server needs.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::counts::{Counts, SocketFacts};
use super::handle::Handle;
use super::owed::Owed;
use super::stream::{Rewind, Seen, TakeOver};
use crate::net::stats::{Reason, Way};

/// Wraps any stream of tokio, for a [listener](crate::net::Accept) whose connections are not
/// [`TcpStream`](crate::net::TcpStream)s or [`UnixStream`](crate::net::UnixStream)s. Counts bytes for
/// [limits](crate::server::serve()) and [`Handle`]s.
///
/// Writes go to the inner stream at once. An upgrade yields this type.
pub struct CountedIo<T>(TokioIo<Counting<T>>);

struct Counting<T> {
    io: T,
    state: Arc<Counts>,
    unread: Vec<u8>,
    owed: Option<Arc<Owed>>,
}

impl<T> CountedIo<T> {
    /// Wraps a stream.
    pub fn new(io: T) -> Self {
        Self::with(io, None)
    }

    /// Wraps a stream whose `socket` answers a server.
    pub(crate) fn with(io: T, socket: Option<Box<dyn SocketFacts>>) -> Self {
        Self(TokioIo::new(Counting { io, state: Arc::new(Counts::new(socket)), unread: Vec::new(), owed: None }))
    }

    /// Returns the inner stream, for its addresses.
    pub fn get_ref(&self) -> &T {
        &self.0.inner().io
    }

    /// Returns a handle. The handle reports counts and supports [`reset`](Handle::reset), after which all calls fail.
    /// Its methods that control a socket have no effect.
    pub fn handle(&self) -> Handle {
        let state = &self.0.inner().state;
        Handle::of_counts(state.meter.id, Arc::downgrade(state))
    }

    fn counting(self: Pin<&mut Self>) -> Pin<&mut Counting<T>>
    where
        T: Unpin,
    {
        Pin::new(self.get_mut().0.inner_mut())
    }
}

impl<T: AsyncWrite + Unpin> Counting<T> {
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        send: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let Self { io, state, .. } = self;
        let sent = state.poll(cx, |tasks| &mut tasks.writer, |cx| send(Pin::new(io), cx));
        state.blocked.store(sent.is_pending(), Ordering::Relaxed);
        match &sent {
            Poll::Ready(Ok(bytes)) => {
                state.meter.frame();
                state.meter.sent(*bytes, Way::Call);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => state.meter.would_block(),
        }
        sent
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counting<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { io, state, unread, .. } = &mut *self;
        let again = unread.len().min(buf.remaining());
        if again > 0 {
            buf.put_slice(&unread[..again]);
            unread.drain(..again);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let read = state.poll(cx, |tasks| &mut tasks.reader, |cx| Pin::new(io).poll_read(cx, buf));
        let bytes = buf.filled().len() - before;
        if bytes > 0 {
            state.meter.received(bytes);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counting<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.poll_send(cx, |io, cx| io.poll_write(cx, buf));
        Owed::wrote(self.owed.as_deref(), &written, &[IoSlice::new(buf)]);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.poll_send(cx, |io, cx| io.poll_write_vectored(cx, bufs));
        Owed::wrote(self.owed.as_deref(), &written, bufs);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, state, .. } = &mut *self;
        state.meter.count_flush(Reason::Flushed);
        let flushed = state.poll(cx, |tasks| &mut tasks.writer, |cx| Pin::new(io).poll_flush(cx));
        // An encrypting stream accepts bytes at once, and waits for its peer in the flush.
        state.blocked.store(flushed.is_pending(), Ordering::Relaxed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, state, .. } = &mut *self;
        state.poll(cx, |tasks| &mut tasks.writer, |cx| Pin::new(io).poll_shutdown(cx))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for CountedIo<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.counting().poll_read(cx, buf)
    }
}

impl<T: AsyncRead + Unpin> hyper::rt::Read for CountedIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        hyper::rt::Read::poll_read(Pin::new(&mut self.0), cx, buf)
    }
}

macro_rules! writes_by {
    ($($write:ident)::+) => {
        impl<T: AsyncWrite + Unpin> $($write)::+ for CountedIo<T> {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                self.counting().poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.counting().poll_write_vectored(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                self.0.inner().is_write_vectored()
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.counting().poll_flush(cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.counting().poll_shutdown(cx)
            }
        }
    };
}
writes_by!(tokio::io::AsyncWrite);
writes_by!(hyper::rt::Write);

impl<T> Rewind for CountedIo<T> {
    fn unread(&mut self, bytes: &[u8]) {
        let counting = self.0.inner_mut();
        counting.unread.splice(..0, bytes.iter().copied());
    }
}

impl<T> TakeOver for CountedIo<T> {
    fn count_writes(&mut self, owed: Arc<Owed>) {
        self.0.inner_mut().owed = Some(owed);
    }
}

impl<T> Seen for CountedIo<T> {
    const SEES_LEAVING: bool = false;

    fn seen(&self) -> Handle {
        self.handle()
    }
}

impl<T: fmt::Debug> fmt::Debug for CountedIo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedIo").field("io", self.get_ref()).field("handle", &self.handle()).finish()
    }
}
