//! External storage of the events of a hub: the contract for a log that survives restarts, or that several processes
//! share.
//!
//! ```text
//!  Hub::send ─append─▶ Log (somewhere else) ─run─▶ Sink ─▶ the ring of each hub ─▶ its readers
//!                       ▲ replay: events that are no longer in a ring
//! ```
//!
//! A hub with a log does not send its events to its readers directly: they return from the log, in the log's order and
//! with the log's ids, together with the events of other hubs on the same log.

#[cfg(feature = "fs")]
pub mod disk;
pub(crate) mod queue;
mod sink;

use std::cmp::Ordering;
use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
pub use sink::Sink;

use crate::sse::SendError;
use crate::sse::event::Event;

type BoxError = Box<dyn Error + Send + Sync>;

/// Future returned by the methods of a [`Log`].
pub type LogFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An ordered external log of events that hubs of several processes read and write. By default a hub keeps its events
/// in its own memory and needs no log.
///
/// The log assigns the ids. Ids are unique, [valid](Event::id), and [ordered](Self::order) like the events.
pub trait Log: Send + Sync + fmt::Debug + 'static {
    /// Adds an event to the log, in the order of the calls on this thread. The hub has already checked the event: it
    /// has no id, and its name is valid. Called on any thread, inside a runtime or not. It must not block, so it passes
    /// the event to [`run`](Self::run) through a bounded queue.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] if that queue is full, [`SendError::Closed`] if `run` has ended, [`SendError::Log`] for
    /// other reasons.
    fn append(&self, event: Event) -> Result<(), SendError>;

    /// Compares `id` with `other`, which is an id of the log: `Less` means that `id` was assigned earlier. `None` if
    /// `id` is not an id of the log, or if the log knows that it has not assigned it. A reader may have sent any text
    /// as `id` that is [valid](Event::id).
    ///
    /// A reader may have an id that another hub has delivered and this one has not yet, or that this hub no longer
    /// holds. The method must be fast, because it is called under a lock. Its result may change only when `id` is
    /// assigned.
    fn order(&self, id: &str, other: &str) -> Option<Ordering>;

    /// Delivers new events of the log to `sink`, each event once and in the log's order. First calls [`Sink::start`]
    /// with the event after which it begins, and retries until the log is reachable. After a lost connection it
    /// continues after the last delivered event, or calls [`Sink::gap`] if the log no longer has the following events.
    ///
    /// The hub spawns it when it is built. It returns after [`Sink::closed`] has returned and all events of
    /// [`append`](Self::append) are in the log or given up. Nothing is delivered after it has returned.
    fn run(self: Arc<Self>, sink: Sink) -> LogFuture<'static, ()>;

    /// Returns a page of the events after `after` up to and including `upto`, oldest first. `upto` is an id that was
    /// passed to `start` or `deliver`, and `after` is [`Less`](Ordering::Less). Called for a reader that was behind
    /// when it connected, once for each page. Each page begins after the last event of the previous one.
    ///
    /// `bytes` is the approximate size of the page, which is held until the reader has taken it. A page of one event
    /// may have any size. The pages held by the readers of the process count as bytes to be sent
    /// ([`Limits::budget`](crate::server::Limits::budget)). `bytes` becomes smaller as readers hold more. If the log
    /// respects `bytes`, all readers together hold at most 32 MiB, and one event for each reader.
    ///
    /// Called concurrently for every reader that needs it: limit the number of concurrent requests, and start a timeout
    /// when a request is sent, not when it is queued. Retry before returning that the log is unreachable, because the
    /// reader then loses the events.
    ///
    /// The future is dropped when the reader leaves.
    ///
    /// # Errors
    ///
    /// The reader gets an event `gap`, and continues with the events of the hub: see [`ReplayError`].
    fn replay<'a>(&'a self, after: &'a str, upto: &'a str, bytes: usize) -> LogFuture<'a, Result<Replay, ReplayError>>;
}

/// A page of events of a [`Log`].
#[derive(Clone, Debug, Default)]
#[must_use = "a page is the answer of Log::replay"]
pub struct Replay {
    pub(super) events: Vec<(String, Event)>,
    pub(super) encoded: Option<Encoded>,
    pub(super) more: bool,
    pub(super) gap: Option<Option<u64>>,
}

/// Events as the reader gets them.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    pub(super) bytes: Bytes,
    /// Id of the last event.
    pub(super) last: String,
    pub(super) events: u64,
}

impl Replay {
    /// Creates a page of events with their ids, oldest first. The page ends the requested range unless
    /// [`more`](Self::more) is set. All are in memory until the reader has taken them: a page should not exceed the
    /// requested size.
    pub fn new(events: Vec<(String, Event)>) -> Self {
        Self { events, ..Self::default() }
    }

    /// Creates a page of encoded events (`text/event-stream`), as the reader gets them. Each event has its id, the last
    /// one has the id `last`, and nothing follows the blank line of the last event. The page ends the requested range
    /// unless [`more`](Self::more) is set. `events` is their number, for the statistics. The bytes are neither decoded
    /// nor copied, only compressed for readers that ask for it.
    ///
    /// A reader whose connection breaks inside of the page continues after the last id it has received.
    pub fn encoded(bytes: impl Into<Bytes>, last: impl Into<String>, events: u64) -> Self {
        let encoded = Encoded { bytes: bytes.into(), last: last.into(), events };
        Self { encoded: Some(encoded), ..Self::default() }
    }

    /// Sets whether the requested range has more events. A page without events is the last.
    pub fn more(mut self, more: bool) -> Self {
        self.more = more;
        self
    }

    /// Records that events between `after` and the first of this page are missing, because the log no longer has them;
    /// `missed` is their number up to the end of the requested range, if known.
    pub fn gap(mut self, missed: Option<u64>) -> Self {
        self.gap = Some(missed);
        self
    }
}

/// Error of a [`Log`] that has no page for a reader.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    /// The id is no longer known. The reader gets the events of the hub's ring.
    Unknown,
    /// The log is unreachable now. The reader's stream stays open and continues with the events of the hub's ring.
    Unreachable(BoxError),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("the id is unknown"),
            Self::Unreachable(_) => f.write_str("the log is unreachable"),
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

/// `NotFound` for an unknown id, `NotConnected` for a log that is unreachable.
impl From<ReplayError> for io::Error {
    fn from(error: ReplayError) -> Self {
        let kind = match error {
            ReplayError::Unknown => io::ErrorKind::NotFound,
            ReplayError::Unreachable(_) => io::ErrorKind::NotConnected,
        };
        Self::new(kind, error)
    }
}
