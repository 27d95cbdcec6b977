//! Where the events of a hub are kept, if not in its own ring alone: the contract for a log that several processes share.
//!
//! ```text
//!  Hub::send ─append─▶ Log (somewhere else) ─run─▶ Sink ─▶ the ring of each hub ─▶ its readers
//!                       ▲ replay: what no ring holds any more
//! ```
//!
//! A hub with a log sends nothing to its readers itself: what it sends comes back by the log, in the log's order and with
//! the log's ids, as does what other hubs on the same log send.

#[cfg(feature = "redis")]
pub mod redis;
mod sink;

use std::cmp::Ordering;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

pub use sink::Sink;

use crate::sse::{Event, SendError};

type BoxError = Box<dyn Error + Send + Sync>;

/// What the methods of a [`Log`] return.
pub type LogFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An ordered log of events in another place, that hubs of several processes read and write. The hub's own memory is the
/// default and needs none.
///
/// Ids are the log's: unique, at most 1024 bytes, without line breaks and NUL, and [ordered](Self::order) as the events are.
pub trait Log: Send + Sync + fmt::Debug + 'static {
    /// Takes an event into the log, in the order of the calls on this thread. The hub has checked it: it has no id, and a
    /// name that can be sent. Called on any thread, inside a runtime or not; it must not block, so that it hands
    /// the event to [`run`](Self::run), by a bounded queue.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] if that queue is full, [`SendError::Closed`] if `run` has ended, [`SendError::Log`] if it
    /// cannot be taken for another reason.
    fn append(&self, event: Event) -> Result<(), SendError>;

    /// How `id` lies to `other`, which is one of the log's: an id that is `Less` was given before. `None` if `id` cannot
    /// be one of the log's; it is whatever a reader has sent, checked for its length, line breaks and NUL only.
    ///
    /// A reader may come with an id that another hub has delivered and this one has not yet, or not any more. Pure and
    /// quick: it is called under a lock.
    fn order(&self, id: &str, other: &str) -> Option<Ordering>;

    /// Hands what comes into the log to `sink`, from now on, each event once and in the log's order. First of all it
    /// says by [`Sink::start`] behind which event it begins; a log that cannot be reached is tried again until it
    /// can. After a connection was lost it goes on behind the last event it delivered or, where the log does not have
    /// those any more, says so by [`Sink::gap`].
    ///
    /// The hub spawns it when it is built. It returns when [`Sink::closed`] does, after what it has taken by
    /// [`append`](Self::append) is in the log or is given up. Nothing is delivered after it has returned.
    fn run(self: Arc<Self>, sink: Sink) -> LogFuture<'static, ()>;

    /// A page of the events behind `after` up to and with `upto`, oldest first. `upto` is an id that was started from or
    /// delivered, and `after` is [`Less`](Ordering::Less). Called for a reader that was behind when it came, page by page,
    /// each behind the last event of the page before.
    ///
    /// `bytes` is how large the page should be, about: it is held until the reader has taken it. A page of one event may be
    /// of any size. The pages that the readers of the process hold are counted with what waits to be sent
    /// ([`Limits::budget`](crate::server::Limits::budget)), and the more they hold, the less is asked for: together they come to
    /// no more than 32 MiB and one event for each reader, if the log keeps to `bytes`.
    ///
    /// It is called for every reader that needs it, at the same time: bound what is done at a time, and begin a time-out
    /// when a request is sent, not when it is queued. Try again before saying that the log is unreachable: the reader
    /// loses the events then.
    ///
    /// Dropped when the reader leaves.
    ///
    /// # Errors
    ///
    /// The reader is told by an event `gap`, and goes on with what the hub has: see [`ReplayError`].
    fn replay<'a>(&'a self, after: &'a str, upto: &'a str, bytes: usize) -> LogFuture<'a, Result<Replay, ReplayError>>;
}

/// A page of what a [`Log`] has.
#[derive(Clone, Debug, Default)]
#[must_use = "a page is the answer of Log::replay"]
pub struct Replay {
    pub(super) events: Vec<(String, Event)>,
    pub(super) more: bool,
    pub(super) gap: Option<Option<u64>>,
}

impl Replay {
    /// Events with their ids, oldest first, and with them all there are up to the end that was asked for. All are in memory
    /// for as long as the reader needs them: a page should have no more bytes than it was asked for.
    pub fn new(events: Vec<(String, Event)>) -> Self {
        Self { events, more: false, gap: None }
    }

    /// Whether there are more up to the end that was asked for. A page without events is the last.
    pub fn more(mut self, more: bool) -> Self {
        self.more = more;
        self
    }

    /// Says that events are missing between `after` and the first of this page, because the log does not have
    /// them any more; how many up to the end that was asked for, if that is known.
    pub fn gap(mut self, missed: Option<u64>) -> Self {
        self.gap = Some(missed);
        self
    }
}

/// Why a [`Log`] has no page for a reader.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    /// Nothing is known of the id any more. The reader gets what the hub's ring holds.
    Unknown,
    /// The log cannot be reached now. The reader's stream stays open and goes on with what the hub's ring holds.
    Unreachable(BoxError),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("nothing is known of the id"),
            Self::Unreachable(e) => write!(f, "the log cannot be reached: {e}"),
        }
    }
}

impl Error for ReplayError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unknown => None,
            Self::Unreachable(e) => Some(&**e),
        }
    }
}
