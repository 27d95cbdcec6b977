//! Destinations of received bytes, and receiving into them by plain calls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll, ready};

use tokio::task::coop;

use super::egress::Egress;
use crate::sys::call;

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
        // `None` if bytes wait of which the driver does not know.
        let mut ready = match egress.has_unread() {
            true => {
                ready!(coop::poll_proceed(cx)).made_progress();
                None
            }
            false => Some(ready!(egress.io()?.poll_read_ready(cx))?),
        };
        let mut clear = || match &mut ready {
            Some(ready) => ready.clear_ready(),
            None => egress.set_unread(false),
        };
        match receive(egress.as_fd()) {
            Ok(n) => {
                if n > 0 {
                    egress.received(n);
                }
                // A short read has emptied the socket: another one would only return `WouldBlock`.
                if (1..room).contains(&n) {
                    clear();
                }
                return Poll::Ready(Ok(()));
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => clear(),
            Err(e) => return Poll::Ready(Err(e)),
        }
    }
}
