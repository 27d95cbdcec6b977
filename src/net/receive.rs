//! How connections receive: an option of the feature `uring-net`.

#[cfg(uring_net)]
use std::sync::Arc;

#[cfg(uring_net)]
use crate::runtime::{Io, Turn};

/// Receive mode of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Receive {
    /// Reads when bytes have arrived, by one call per read, into the memory of the reader.
    #[default]
    Ready,
    /// The kernel receives for as long as the connection lives, into buffers shared by all connections of a thread
    /// (multishot receive, Linux 6.0, [io_uring_prep_recv_multishot(3)]). Idle connections hold no read buffer,
    /// receives need no system call, and answers to requests that arrived together leave together.
    ///
    /// The gain is memory: 160 MB for 10 000 idle connections with read buffers of 16 KiB. CPU time was higher on the
    /// machine of the measurement: for an echo of 64 bytes 5 % more than with [`Ready`](Self::Ready) on 1 and on 64
    /// connections, 25 % more on 8 and 10 % more on 512, with 5 calls for 100 messages instead of 200. Bulk transfers
    /// lose too, because bytes are copied once more.
    ///
    /// If the owner does not read, the receive stops at 64 KiB. The kernel may have received more by then, up to all
    /// provided buffers. Without a ring or a free buffer, reads work as with [`Ready`](Self::Ready).
    ///
    /// [io_uring_prep_recv_multishot(3)]: https://man7.org/linux/man-pages/man3/io_uring_prep_recv_multishot.3.html
    Multishot,
}

#[cfg(uring_net)]
impl Receive {
    /// Returns the effective value on a runtime: [`Io`] may override it, and the machine may not support it.
    pub(super) fn on(self, turn: &Arc<Turn>) -> Self {
        let wanted = match turn.io() {
            Io::Auto => self,
            Io::Uring => Self::Multishot,
            Io::Epoll => Self::Ready,
        };
        if wanted == Self::Multishot && turn.driver().is_some() { Self::Multishot } else { Self::Ready }
    }
}
