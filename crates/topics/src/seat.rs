//! One topic of a reader: its source, its position in it, and its end.

use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::Body;
use millstream::sse::EventBody;

use crate::registry::{Membership, PlacedSource};
use crate::source::SourceError;
use crate::source_event::is_retry;

/// One topic of a reader.
pub(crate) struct Seat {
    topic: Membership,
    waker: Waker,
    reading: Reading,
    /// Events of the last frame that have not been passed on.
    pub(crate) rest: Bytes,
    /// Whether the reader waits while the topic does not exist.
    waits: bool,
}

enum Reading {
    /// For a source other than this one.
    Waits(Option<Arc<PlacedSource>>),
    /// All events of this source, which has ended.
    HasAll(Arc<PlacedSource>),
    Reads {
        body: EventBody,
        source: Arc<PlacedSource>,
        is_told: bool,
    },
    Ended,
}

/// The start of a reader of a topic: a body, nothing, or a source that has ended.
pub(crate) type Begin = Result<Option<(EventBody, Arc<PlacedSource>)>, Arc<PlacedSource>>;

/// News of a topic for its reader.
#[derive(Debug)]
pub(crate) enum News {
    /// One or more events.
    Events(Bytes),
    /// Another source takes over, behind this position.
    Source(Option<String>),
    /// The topic has ended.
    End(EndReason),
    /// The response has ended the topic.
    Left,
    /// The source has ended the reader, who is to reconnect.
    Reconnect,
}

/// Why a topic has ended for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    Ended,
    Removed,
    IdTooLong,
}

impl EndReason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Removed => "removed",
            Self::IdTooLong => "id_too_long",
        }
    }
}

impl Seat {
    /// Creates the place of a reader that has a body of a source, or waits, or has all events of this source.
    pub(crate) fn new(topic: Membership, waker: Waker, begin: Begin, waits: bool) -> Self {
        let reading = match begin {
            Ok(Some((body, source))) => Reading::Reads { body, source, is_told: false },
            Ok(None) => Reading::Waits(None),
            Err(source) => Reading::HasAll(source),
        };
        Self { topic, waker, reading, rest: Bytes::new(), waits }
    }

    pub(crate) fn name(&self) -> &str {
        self.topic.name()
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.reading, Reading::Ended)
    }

    /// Ends the topic behind the events that were sent before. It must be polled.
    pub(crate) fn leave(&mut self) {
        self.waits = false;
        match &mut self.reading {
            Reading::Reads { body, is_told, .. } => tell_end(body, is_told),
            reading => *reading = Reading::Ended,
        }
    }

    /// Ends the topic at once.
    pub(crate) fn cut(&mut self) {
        (self.reading, self.rest) = (Reading::Ended, Bytes::new());
    }

    /// Returns the next news. `leaves`: the response ends. `position` is called when the topic has ended.
    pub(crate) fn poll(&mut self, leaves: bool, position: impl Fn() -> Option<String>) -> Poll<News> {
        match &mut self.reading {
            Reading::Ended => Poll::Pending,
            Reading::HasAll(source) => {
                let source = Arc::clone(source);
                Poll::Ready(self.rest(source, EndReason::Ended))
            }
            Reading::Waits(last) => match next_source(&self.topic, last.as_ref()) {
                Some(source) => Poll::Ready(self.begin(source)),
                None if self.waits && self.topic.may_wait() => Poll::Pending,
                None => {
                    self.reading = Reading::Ended;
                    Poll::Ready(News::End(EndReason::Removed))
                }
            },
            Reading::Reads { body, source, is_told } => {
                if source.is_removed() {
                    tell_end(body, is_told);
                }
                if let Some(events) = ready!(poll_events(body, &self.waker)) {
                    return Poll::Ready(News::Events(events));
                }
                let source = Arc::clone(source);
                Poll::Ready(self.end(source, leaves, position))
            }
        }
    }

    /// Begins to read a source for which the reader has waited.
    fn begin(&mut self, source: Arc<PlacedSource>) -> News {
        let first = source.first().map(str::to_owned);
        match source.source().subscribe(first.as_deref()) {
            Ok(body) => {
                self.reading = Reading::Reads { body, source, is_told: false };
                News::Source(first)
            }
            Err(SourceError::Ended) => self.rest(source, EndReason::Ended),
            Err(_) => News::Reconnect,
        }
    }

    /// The body has ended.
    fn end(&mut self, source: Arc<PlacedSource>, leaves: bool, position: impl Fn() -> Option<String>) -> News {
        self.reading = Reading::Ended;
        if leaves {
            return News::Left;
        }
        if source.source().is_lost() {
            // The reader continues at the next source of the same events, whether or not it is there now.
            return News::Reconnect;
        }
        if source.is_removed() {
            return match next_source(&self.topic, Some(&source)) {
                Some(next) => self.begin(next),
                None => self.rest(source, EndReason::Removed),
            };
        }
        match source.source().subscribe(position().as_deref()) {
            Err(SourceError::Ended) => self.rest(source, EndReason::Ended),
            // It goes on: the reader was slow, or has reached its age.
            Ok(_) | Err(_) => News::Reconnect,
        }
    }

    /// The topic has ended, with `source`.
    fn rest(&mut self, source: Arc<PlacedSource>, reason: EndReason) -> News {
        if self.waits && self.topic.may_wait() {
            self.reading = Reading::Waits(Some(source));
        } else {
            self.reading = Reading::Ended;
        }
        News::End(reason)
    }
}

/// Returns the source of a topic, unless it is `last`.
fn next_source(topic: &Membership, last: Option<&Arc<PlacedSource>>) -> Option<Arc<PlacedSource>> {
    topic.source().filter(|source| last.is_none_or(|last| !Arc::ptr_eq(source, last)))
}

fn tell_end(body: &EventBody, is_told: &mut bool) {
    if !std::mem::replace(is_told, true)
        && let Some(ending) = body.ending()
    {
        ending.end();
    }
}

/// Returns the next events of a body; `None` at its end. The time after which to reconnect is left out: that of the
/// response counts.
fn poll_events(body: &mut EventBody, waker: &Waker) -> Poll<Option<Bytes>> {
    let mut cx = Context::from_waker(waker);
    let frame = std::pin::Pin::new(&mut *body).poll_frame(&mut cx);
    let events = ready!(frame).and_then(|frame| frame.ok()?.into_data().ok());
    Poll::Ready(events.filter(|events| !(body.is_end_stream() && is_retry(events))))
}
