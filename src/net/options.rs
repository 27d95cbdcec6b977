//! Options of connections.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::pace::SharedPace;
use super::profile::Profile;
use super::send_strategy::SendStrategy;
use super::stats::StreamStats;
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
    /// If the owner does not read, the receive stops at 64 KiB; the kernel may have received more by then, at most the
    /// provided buffers. Without a ring or a free buffer, reads are as with [`Ready`](Self::Ready).
    ///
    /// [io_uring_prep_recv_multishot(3)]: https://man7.org/linux/man-pages/man3/io_uring_prep_recv_multishot.3.html
    Multishot,
}

impl Receive {
    /// Returns the effective value on a runtime: [`Io`] may override it, and the machine may not support it.
    pub(super) fn on(self, turn: &std::sync::Arc<Turn>) -> Self {
        let wanted = match turn.io() {
            Io::Auto => self,
            Io::Uring => Self::Multishot,
            Io::Epoll => Self::Ready,
        };
        if wanted == Self::Multishot && turn.driver().is_some() { Self::Multishot } else { Self::Ready }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    /// Maximum time that a byte waits for more bytes; zero sends every write at once.
    pub(super) limit: Duration,
    /// Number of queued bytes above which writers wait; they are woken at half of it.
    pub(super) high: usize,
    /// Bounds of the adaptive high-water mark, if set.
    pub(super) high_range: Option<(usize, usize)>,
    pub(super) receive: Receive,
    pub(super) send_strategy: SendStrategy,
    pub(super) profile: Profile,
    pub(super) pace: Option<SharedPace>,
    pub(super) zero_copy: bool,
    pub(super) on_close: Option<CloseHook>,
}

impl Options {
    /// Returns an error if an option has a value that it cannot have.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.high_range {
            Some((low, high)) if low > high => {
                let why = format!("invalid adaptive_high_mark: {low}..={high}; allowed: the lower bound first");
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone)]
pub(super) struct CloseHook(pub(super) Arc<dyn Fn(&StreamStats) + Send + Sync>);

impl fmt::Debug for CloseHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CloseHook")
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limit: Duration::from_millis(1),
            high: 64 << 10,
            high_range: None,
            receive: Receive::Ready,
            send_strategy: SendStrategy::Auto,
            profile: Profile::System,
            pace: None,
            zero_copy: false,
            on_close: None,
        }
    }
}
