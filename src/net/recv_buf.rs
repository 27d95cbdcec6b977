//! Destinations of received bytes, and receiving into them by plain calls.

use std::io;
use std::task::{Context, Poll, ready};

use tokio::task::coop;

use super::egress::Egress;
use crate::sys::call;
use crate::sys::fd::{AsFd, BorrowedFd};
use crate::sys::watch;

pub(super) trait RecvBuf {
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
        call::receive(socket, self)
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
        call::receive_cursor(socket, self)
    }

    fn put(&mut self, bytes: &[u8]) {
        self.put_slice(bytes);
    }
}

/// Calls `receive` to take at most `room` bytes when the socket is readable. With a `room` of 1 a short read does not
/// mean that the socket is empty.
pub(super) fn poll_plain(
    egress: &Egress,
    cx: &mut Context<'_>,
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
        let received = match egress.has_unread() {
            // Bytes wait of which the driver does not know.
            true => {
                ready!(coop::poll_proceed(cx)).made_progress();
                let (received, is_empty) = attempt();
                if is_empty {
                    egress.set_unread(false);
                }
                received
            }
            false => watch::attempt(ready!(egress.io()?.poll_read_ready(cx))?, attempt),
        };
        match received {
            Ok(n) => {
                if n > 0 {
                    egress.received(n);
                }
                return Poll::Ready(Ok(()));
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Poll::Ready(Err(e)),
        }
    }
}
