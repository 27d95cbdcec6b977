//! Streams that copies know: sockets and pipes of tokio, and streams of this crate.

use std::any::Any;
use std::io;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::net::{tcp, unix};

use super::plan::Kind;
use crate::net;
use crate::sys::fd::{AsFd, BorrowedFd};

/// A pipe or socket registered with a runtime. Polling one direction uses the waker of its own reads or writes.
#[derive(Debug)]
pub(super) enum Stream<'a> {
    Tcp(&'a tokio::net::TcpStream),
    Unix(&'a tokio::net::UnixStream),
    Receiver(&'a Receiver),
    Sender(&'a Sender),
    Ours(&'a net::TcpStream),
    OursUnix(&'a net::UnixStream),
}

impl<'a> Stream<'a> {
    /// Returns `end` as a stream, if its type is known.
    pub(super) fn of(end: &'a dyn Any) -> Option<Self> {
        // The compiler keeps one of these lines for each type of end.
        let found = end.downcast_ref().map(Stream::Tcp);
        let found = found.or_else(|| end.downcast_ref::<tcp::OwnedReadHalf>().map(|half| Stream::Tcp(half.as_ref())));
        let found = found.or_else(|| end.downcast_ref::<tcp::OwnedWriteHalf>().map(|half| Stream::Tcp(half.as_ref())));
        let found = found.or_else(|| end.downcast_ref().map(Stream::Unix));
        let found = found.or_else(|| end.downcast_ref::<unix::OwnedReadHalf>().map(|half| Stream::Unix(half.as_ref())));
        let found =
            found.or_else(|| end.downcast_ref::<unix::OwnedWriteHalf>().map(|half| Stream::Unix(half.as_ref())));
        let found = found.or_else(|| end.downcast_ref().map(Stream::Receiver));
        let found = found.or_else(|| end.downcast_ref().map(Stream::Sender));
        let found = found.or_else(|| end.downcast_ref().map(Stream::Ours));
        let found = found.or_else(|| end.downcast_ref().map(Stream::OursUnix));
        let found = found.or_else(|| end.downcast_ref::<net::OwnedReadHalf>().map(|half| Stream::Ours(half.as_ref())));
        let found = found.or_else(|| end.downcast_ref::<net::OwnedWriteHalf>().map(|half| Stream::Ours(half.as_ref())));
        let read = || end.downcast_ref::<net::OwnedReadHalf<_>>().map(|half| Stream::OursUnix(half.as_ref()));
        let write = || end.downcast_ref::<net::OwnedWriteHalf<_>>().map(|half| Stream::OursUnix(half.as_ref()));
        found.or_else(read).or_else(write)
    }
}

impl Stream<'_> {
    /// Returns whether other callers may not receive from it.
    pub(super) fn has_unread_bytes(&self) -> bool {
        match self {
            Self::Ours(stream) => stream.has_unread_bytes(),
            Self::OursUnix(stream) => stream.has_unread_bytes(),
            _ => false,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Receiver(_) | Self::Sender(_) => Kind::Pipe,
            Self::Tcp(_) | Self::Unix(_) | Self::Ours(_) | Self::OursUnix(_) => Kind::Socket,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Receiver(pipe) => pipe.as_fd(),
            Self::Sender(pipe) => pipe.as_fd(),
            Self::Ours(stream) => stream.as_fd(),
            Self::OursUnix(stream) => stream.as_fd(),
        }
    }

    /// Waits until the kernel has accepted every byte that was written.
    pub(super) fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Ours(stream) => stream.poll_drained(cx),
            Self::OursUnix(stream) => stream.poll_drained(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Returns whether there may be bytes to take; if not, wakes the task later. Always true for streams of this crate.
    pub(super) fn may_have(&self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx).is_ready(),
            Self::Unix(stream) => stream.poll_read_ready(cx).is_ready(),
            Self::Receiver(pipe) => pipe.poll_read_ready(cx).is_ready(),
            Self::Sender(_) | Self::Ours(_) | Self::OursUnix(_) => true,
        }
    }

    /// Calls `take` once there may be bytes to take. It must not block: `WouldBlock` makes the task wait.
    pub(super) fn poll_take(
        &self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(match self {
                Self::Tcp(stream) => stream.poll_read_ready(cx),
                Self::Unix(stream) => stream.poll_read_ready(cx),
                Self::Receiver(pipe) => pipe.poll_read_ready(cx),
                Self::Ours(stream) => return stream.poll_receive_with(cx, take),
                Self::OursUnix(stream) => return stream.poll_receive_with(cx, take),
                Self::Sender(_) => unreachable!("internal: taken from a {self:?}"),
            })?;
            match self.attempt(Interest::READABLE, &mut take) {
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
        loop {
            ready!(match self {
                Self::Tcp(stream) => stream.poll_write_ready(cx),
                Self::Unix(stream) => stream.poll_write_ready(cx),
                Self::Sender(pipe) => pipe.poll_write_ready(cx),
                Self::Ours(stream) => return stream.poll_send_with(cx, give),
                Self::OursUnix(stream) => return stream.poll_send_with(cx, give),
                Self::Receiver(_) => unreachable!("internal: given to a {self:?}"),
            })?;
            match self.attempt(Interest::WRITABLE, &mut give) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn attempt(
        &self,
        interest: Interest,
        work: &mut impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let work = || work(self.fd());
        match self {
            Self::Tcp(stream) => stream.try_io(interest, work),
            Self::Unix(stream) => stream.try_io(interest, work),
            Self::Receiver(pipe) => pipe.try_io(work),
            Self::Sender(pipe) => pipe.try_io(work),
            Self::Ours(_) | Self::OursUnix(_) => unreachable!("internal: streams of this crate do not use `try_io`"),
        }
    }
}
