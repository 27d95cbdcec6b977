//! One stream, for its readers.

use std::fmt;
use std::sync::Arc;

use http::{Request, Response};
use millstream::internal::kept::{Asked, KeptReader};
use millstream::sse::EventBody;

use crate::end::StreamEnd;
use crate::error::StreamError;
use crate::kept_stream::KeptStream;

/// A stream of [`Streams`](crate::Streams), found by its owner and key. Clones are handles to the same stream.
///
/// A handle is not a reader: it does not keep the producer running. It keeps the events in memory after the
/// [time to live](crate::StreamsBuilder::ttl).
#[derive(Clone)]
pub struct StreamHandle(pub(crate) Arc<KeptStream>);

impl StreamHandle {
    /// Answers a request for the events: all, or the events after the id in the header `Last-Event-ID`, or else in
    /// `lastEventId` of the query. Then new events follow. The response ends when the stream has ended and all events
    /// were delivered. A `HEAD` request gets only the head.
    ///
    /// The response is `204 No Content` if the stream has ended and the reader has all events, `503 Service
    /// Unavailable` with `Retry-After` if there are too many [readers](crate::StreamsBuilder::readers), or if the stream
    /// is [lost](StreamError::Lost) at this instance.
    ///
    /// A reader with an id that is not of this stream, for example of an earlier one with the same key, gets an event
    /// `gap` with the reason `expired`, then all events.
    pub fn attach<B>(&self, request: &Request<B>) -> Response<EventBody> {
        self.answer(&Asked::new(&self.0.options().hub, request))
    }

    pub(crate) fn answer(&self, asked: &Asked) -> Response<EventBody> {
        let last = asked.last.as_deref();
        // A request for the head is not a reader.
        let reader = match asked.is_head {
            true => self.0.check_news(last).map(|()| KeptReader::ended()),
            false => self.0.seat(last, asked.gzip),
        };
        match reader {
            Ok(reader) => asked.answer(&self.0.options().hub, reader),
            Err(error) => error.response(),
        }
    }

    /// Returns a body with all events, or with the events after the id `last`; not compressed. Use it to build a response
    /// without [`attach`](Self::attach), and set the content type to `text/event-stream`.
    ///
    /// # Errors
    ///
    /// [`StreamError::Ended`] if the stream has ended and `last` is its last event, or if it has no events;
    /// [`StreamError::TooManyReaders`] and [`StreamError::Lost`].
    pub fn attach_from(&self, last: Option<&str>) -> Result<EventBody, StreamError> {
        self.0.seat(last, false).map(KeptReader::into_body)
    }

    /// Ends the stream as [`StreamEnd::Stopped`], unless it has ended, and cancels its producer. The events stay
    /// readable for the [time to live](crate::StreamsBuilder::ttl).
    ///
    /// In [`SharedStreams`](crate::SharedStreams) this requests the end, also if another instance writes the stream.
    /// [`ended`](Self::ended) waits for it.
    pub fn stop(&self) {
        self.0.finish(StreamEnd::Stopped);
    }

    /// Returns how the stream has ended. `None` while its producer runs.
    ///
    /// In [`SharedStreams`](crate::SharedStreams) `Failed` may mean that the stream is [lost](StreamError::Lost) at this
    /// instance only, and goes on at another one. Find it again to know.
    pub fn end(&self) -> Option<StreamEnd> {
        self.0.end()
    }

    /// Returns whether the stream is [lost](StreamError::Lost) at this instance: this handle is of no more use. Find the
    /// stream again.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Waits for the end of the stream, as [`end`](Self::end) returns it. Cancel safe.
    pub async fn ended(&self) -> StreamEnd {
        self.0.ended().await
    }
}

impl fmt::Debug for StreamHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamHandle").field(&self.0).finish()
    }
}
