//! Destinations of received bytes, and receiving into them.

use std::io;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::task::coop;

use crate::net::egress::Egress;
use crate::sys::fd::{AsFd, BorrowedFd};
use crate::sys::receive;
use crate::sys::watch;

pub(in crate::net) trait RecvBuf {
    /// Whether bytes leave the stream. If not, `receive` returns 0.
    const TAKES: bool = true;

    fn room(&self) -> usize;

    /// Receives without waiting. Returns the number of bytes; 0 means the end of the stream.
    fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize>;

    /// Appends received bytes; there must be room.
    fn put(&mut self, bytes: &[u8]);
}

impl RecvBuf for tokio::io::ReadBuf<'_> {
    fn room(&self) -> usize {
        self.remaining()
    }

    fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        receive::receive(socket, self)
    }

    fn put(&mut self, bytes: &[u8]) {
        self.put_slice(bytes);
    }
}

impl RecvBuf for hyper::rt::ReadBufCursor<'_> {
    fn room(&self) -> usize {
        self.remaining()
    }

    fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        receive::receive_cursor(socket, self)
    }

    fn put(&mut self, bytes: &[u8]) {
        self.put_slice(bytes);
    }
}

/// A buffer for bytes that stay in the stream.
pub(super) struct Peek<'a, 'b>(pub(super) &'a mut tokio::io::ReadBuf<'b>);

impl RecvBuf for Peek<'_, '_> {
    const TAKES: bool = false;

    fn room(&self) -> usize {
        self.0.remaining()
    }

    fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        receive::peek(socket, self.0).map(|_| 0)
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0.put_slice(bytes);
    }
}

/// Calls `receive` to take at most `room` bytes when the socket is readable; without `cx` only if it is. With a `room`
/// of 1 a short read does not mean that the socket is empty.
#[inline(always)]
pub(super) fn poll_receive(
    egress: &Egress,
    mut cx: Option<&mut Context<'_>>,
    room: usize,
    mut receive: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
) -> Poll<io::Result<()>> {
    loop {
        let mut attempt = || {
            let received = receive(egress.as_fd());
            let is_empty = match &received {
                // A short read has emptied the socket: another one would only return `WouldBlock`.
                Ok(n) => (1..room).contains(n),
                Err(e) => e.kind() == io::ErrorKind::WouldBlock,
            };
            (received, is_empty)
        };
        let received = match (egress.has_unread(), &mut cx) {
            // There may be bytes that the driver has not reported yet.
            (true, cx) => {
                if let Some(cx) = cx {
                    ready!(coop::poll_proceed(cx)).made_progress();
                }
                let (received, is_empty) = attempt();
                if is_empty {
                    egress.set_unread(false);
                }
                received
            }
            (false, Some(cx)) => watch::attempt(ready!(egress.watched().poll_read_ready(cx))?, attempt),
            (false, None) => egress.watched().try_io(Interest::READABLE, |_| attempt().0),
        };
        match received {
            Ok(n) => {
                if n > 0 {
                    egress.received(n);
                }
                return Poll::Ready(Ok(()));
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && cx.is_none() => return Poll::Pending,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Poll::Ready(Err(e)),
        }
    }
}
