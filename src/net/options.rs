//! What a listener's connections are like.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::pace::SharedPace;
use super::path::IoPath;
use super::profile::Profile;
use super::stats::StreamStats;
use crate::runtime::{Io, Turn};

/// How a connection receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Receive {
    /// When something has arrived it is read, by a call for each read, into the memory of whoever reads.
    #[default]
    Ready,
    /// The kernel receives by itself, for as long as the connection lives, into buffers that all connections of a thread
    /// share (multishot receive, Linux 6.0, [io_uring_prep_recv_multishot(3)]). A connection that is idle holds no memory to
    /// read into; those that have something to read cost no call; and answers to what has arrived together leave together.
    ///
    /// What it gives is memory: with 10 000 idle connections and 16 KiB to read into for each, that is 160 MB. In time it does
    /// not pay on the machine it was measured on: an echo of 64 bytes cost 5 % more CPU time than with [`Ready`](Self::Ready)
    /// on 1 and on 64 connections, 25 % more on 8 and 10 % more on 512, with 5 calls for 100 messages instead of 200. Bytes
    /// are copied once more, so it is no gain for bulk.
    ///
    /// A connection whose owner does not read is stopped when it has 64 KiB; the kernel may have received more by then, at most
    /// what it had buffers for. Where there is no ring, or no free buffer, reads are as with [`Ready`](Self::Ready).
    ///
    /// [io_uring_prep_recv_multishot(3)]: https://man7.org/linux/man-pages/man3/io_uring_prep_recv_multishot.3.html
    Multishot,
}

impl Receive {
    /// What it is on a runtime: [`Io`] may ask for another way, and the machine may not have this one.
    pub(super) fn on(self, turn: &std::sync::Arc<Turn>) -> Self {
        let wanted = match turn.io() {
            Io::Auto => self,
            Io::Uring => Self::Multishot,
            Io::Epoll => Self::Ready,
        };
        if wanted == Self::Multishot && turn.driver().is_some() { Self::Multishot } else { Self::Ready }
    }
}

/// What a connection is like.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// Longest time a byte waits for company; zero sends every write at once.
    pub(super) limit: Duration,
    /// Queued bytes beyond which writers wait; they are woken at half of it.
    pub(super) high: usize,
    /// If the mark follows the rates: between which bounds.
    pub(super) elastic: Option<(usize, usize)>,
    pub(super) receive: Receive,
    pub(super) path: IoPath,
    pub(super) profile: Profile,
    /// What it shares a rate with.
    pub(super) pace: Option<SharedPace>,
    /// Long pieces of kept memory may be sent without a copy.
    pub(super) zero_copy: bool,
    /// Told the last numbers of each.
    pub(super) on_close: Option<CloseHook>,
}

/// A function that is called with the last statistics of each stream.
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
            elastic: None,
            receive: Receive::Ready,
            path: IoPath::Auto,
            profile: Profile::System,
            pace: None,
            zero_copy: false,
            on_close: None,
        }
    }
}
