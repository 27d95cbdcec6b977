//! Streams that copies know on Windows: TCP sockets of tokio, and of this crate.

use std::any::Any;
use std::io;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::net::tcp;

use super::plan::Kind;
use crate::net;
use crate::sys::fd::{AsFd, BorrowedFd};

/// A socket registered with a runtime. Polling one direction uses the waker of its own reads or writes.
#[derive(Debug)]
pub(super) enum Stream<'a> {
    Tcp(&'a tokio::net::TcpStream),
    Ours(&'a net::TcpStream),
}

impl<'a> Stream<'a> {
    /// Returns `end` as a stream, if its type is known.
    pub(super) fn of(end: &'a dyn Any) -> Option<Self> {
        let found = end.downcast_ref().map(Stream::Tcp);
        let found = found.or_else(|| end.downcast_ref::<tcp::OwnedReadHalf>().map(|half| Stream::Tcp(half.as_ref())));
        let found = found.or_else(|| end.downcast_ref::<tcp::OwnedWriteHalf>().map(|half| Stream::Tcp(half.as_ref())));
        let found = found.or_else(|| end.downcast_ref().map(Stream::Ours));
        let found = found.or_else(|| end.downcast_ref::<net::OwnedReadHalf>().map(|half| Stream::Ours(half.as_ref())));
        found.or_else(|| end.downcast_ref::<net::OwnedWriteHalf>().map(|half| Stream::Ours(half.as_ref())))
    }
}

impl Stream<'_> {
    /// Returns whether other callers may not receive from it.
    pub(super) fn has_unread_bytes(&self) -> bool {
        matches!(self, Self::Ours(stream) if stream.has_unread_bytes())
    }

    pub(super) fn kind(&self) -> Kind {
        Kind::Socket
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Ours(stream) => stream.as_fd(),
        }
    }

    /// Waits until the kernel has accepted every byte that was written.
    pub(super) fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Ours(stream) => stream.poll_drained(cx),
            Self::Tcp(_) => Poll::Ready(Ok(())),
        }
    }

    /// Returns whether there may be bytes to take; if not, wakes the task later. Always true for streams of this crate.
    pub(super) fn may_have(&self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx).is_ready(),
            Self::Ours(_) => true,
        }
    }

    /// Calls `take` once there may be bytes to take. It must not block: `WouldBlock` makes the task wait.
    pub(super) fn poll_take(
        &self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let stream = match self {
            Self::Tcp(stream) => stream,
            Self::Ours(stream) => return stream.poll_receive_with(cx, take),
        };
        loop {
            ready!(stream.poll_read_ready(cx))?;
            match stream.try_io(Interest::READABLE, || take(stream.as_fd())) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// Calls `give` once there may be room. It must not block: `WouldBlock` makes the task wait.
    pub(super) fn poll_give(
        &self,
        cx: &mut Context<'_>,
        mut give: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let stream = match self {
            Self::Tcp(stream) => stream,
            Self::Ours(stream) => return stream.poll_send_with(cx, give),
        };
        loop {
            ready!(stream.poll_write_ready(cx))?;
            match stream.try_io(Interest::WRITABLE, || give(stream.as_fd())) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}
