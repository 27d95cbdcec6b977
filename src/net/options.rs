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

/// Implements the setters of a builder with the field `options`.
macro_rules! stream_options {
    ($builder:ident) => {
        impl $builder {
            /// Sets the maximum time that a written byte waits for more bytes; 1 ms by default. Zero sends every write
            /// at once, like tokio's stream.
            #[must_use]
            pub fn gather_limit(mut self, limit: std::time::Duration) -> Self {
                self.options.limit = limit;
                self
            }

            /// Sets the number of queued bytes of one connection above which its writer waits; 64 KiB by default. The
            /// writer is woken at half of it. A connection references at most twice as much pool memory plus
            /// 256 KiB.
            #[must_use]
            pub fn high_mark(mut self, bytes: usize) -> Self {
                self.options.high = bytes;
                self.options.high_range = None;
                self
            }

            /// Replaces the fixed [`high_mark`](Self::high_mark) by one that adapts to each connection's rates over the
            /// last second, between these bounds in bytes: 50 ms of input, and more while input outpaces output. A fast
            /// reader gets room for bursts; a slow one holds little memory and gets no stale bytes. Use it with
            /// [`profile`](Self::profile), because the kernel queues bytes as well. The lower bound comes first,
            /// otherwise binding or connecting fails with [`InvalidInput`](std::io::ErrorKind::InvalidInput).
            #[must_use]
            pub fn adaptive_high_mark(mut self, bounds: std::ops::RangeInclusive<usize>) -> Self {
                self.options.high_range = Some((*bounds.start(), *bounds.end()));
                self
            }

            /// Sets how connections receive; [`Receive::Ready`](crate::net::Receive::Ready) by default.
            #[must_use]
            pub fn receive(mut self, receive: $crate::net::Receive) -> Self {
                self.options.receive = receive;
                self
            }

            /// Sets the strategy of writes of new connections; [`SendStrategy::Auto`](crate::net::SendStrategy::Auto) by
            /// default. [`Handle::set_send_strategy`](crate::net::Handle::set_send_strategy) changes a live connection.
            #[must_use]
            pub fn send_strategy(mut self, strategy: $crate::net::SendStrategy) -> Self {
                self.options.send_strategy = strategy;
                self
            }

            /// Sets the socket profile of new connections; [`Profile::System`](crate::net::Profile::System) by default.
            /// [`Handle::set_profile`](crate::net::Handle::set_profile) changes a live connection.
            #[must_use]
            pub fn profile(mut self, profile: $crate::net::Profile) -> Self {
                self.options.profile = profile;
                self
            }

            /// Limits the total send rate of all connections; unlimited by default. Several listeners can share one
            /// rate, and it can be changed at any time.
            ///
            /// Needs the runtime's timer: binding a listener with a rate panics on a runtime without timers.
            #[must_use]
            pub fn pace_all(mut self, rate: &$crate::net::SharedPace) -> Self {
                self.options.pace = Some(rate.clone());
                self
            }

            /// Sets a function that receives the last numbers of every connection when it closes, including those of
            /// the kernel. It runs on the closing thread and must not block; a panic in it has no other effect. Without
            /// a hook, and without a [`Closing`](crate::net::Closing), the kernel is not queried.
            #[must_use]
            pub fn on_close(mut self, hook: impl Fn(&$crate::net::StreamStats) + Send + Sync + 'static) -> Self {
                self.options.on_close = Some($crate::net::options::CloseHook(std::sync::Arc::new(hook)));
                self
            }
        }
    };
}
pub(super) use stream_options;
