//! Sockets that outlive their stream because a ring holds them open.

use crate::sys::fd::BorrowedFd;
use crate::sys::socket;

/// A socket that a ring holds open although the owner has dropped the stream.
#[derive(Clone, Copy, Debug)]
pub(in crate::net) enum HeldOpen {
    /// All received bytes were read.
    Read,
    /// The ring has received bytes that were not read.
    Unread,
}

impl HeldOpen {
    /// Ends the connection as `close` ends one that is not held: a TCP connection with unread bytes is reset
    /// ([RFC 2525, section 2.17](https://www.rfc-editor.org/rfc/rfc2525#section-2.17)).
    pub(super) fn end(self, socket: BorrowedFd<'_>) {
        if matches!(self, Self::Unread) || socket::discards_at_close(socket) {
            socket::reset(socket);
        } else {
            socket::shutdown_both(socket);
        }
    }
}
