//! Why a call fails.

use std::error::Error;
use std::fmt;
use std::io;

use http::{Response, StatusCode};
use millstream::internal::kept;
use millstream::sse::EventBody;

use crate::stream_log::StreamLogError;

/// Error of [`Streams`](crate::Streams), and of a [`StreamHandle`](crate::StreamHandle).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// This owner has no stream with this key. Whether another owner has one is not told.
    NotFound,
    /// The stream has ended, and the reader has got all events.
    Ended,
    /// The maximum of [`StreamsBuilder::streams`](crate::StreamsBuilder::streams) is reached.
    Full,
    /// The maximum of [`StreamsBuilder::readers`](crate::StreamsBuilder::readers) is reached.
    TooManyReaders,
    /// The [owner](crate::Owner) is empty.
    NoOwner,
    /// The key has more than 1024 bytes.
    LongKey,
    /// The call is outside of a tokio runtime, which runs the producer.
    NoRuntime,
    /// Of [`SharedStreams`](crate::SharedStreams): this instance can no longer use the log of the stream, and does not
    /// know whether it has ended. Find the stream again.
    Lost,
}

impl StreamError {
    /// Returns the response that tells a client. `404 Not Found` for an unknown key, which makes an `EventSource` give
    /// up, and for an empty owner; `204 No Content` for a stream that has ended; `503 Service Unavailable` with
    /// `Retry-After` at a maximum and for a stream that is lost; `414 URI Too Long` for a long key; `500 Internal Server Error` without a runtime.
    pub fn response(self) -> Response<EventBody> {
        kept::refusal(match self {
            Self::NotFound | Self::NoOwner => StatusCode::NOT_FOUND,
            Self::Ended => StatusCode::NO_CONTENT,
            Self::Full | Self::TooManyReaders | Self::Lost => StatusCode::SERVICE_UNAVAILABLE,
            Self::LongKey => StatusCode::URI_TOO_LONG,
            Self::NoRuntime => StatusCode::INTERNAL_SERVER_ERROR,
        })
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "this owner has no stream with this key",
            Self::Ended => "the stream has ended, and the reader has got all events",
            Self::Full => "there are as many streams as StreamsBuilder::streams allows",
            Self::TooManyReaders => "the stream has as many readers as StreamsBuilder::readers allows",
            Self::NoOwner => "the owner is empty; use Owner::anyone for streams without an owner",
            Self::LongKey => "the key has more than 1024 bytes",
            Self::NoRuntime => "streams need a tokio runtime; make the call inside of one",
            Self::Lost => "this instance can no longer use the log of the stream; find the stream again",
        })
    }
}

impl Error for StreamError {}

/// `NotFound` for an unknown key, `UnexpectedEof` for a stream that has ended, `QuotaExceeded` at a maximum,
/// `InvalidInput` for an owner or a key, `ResourceBusy` for a stream that is lost, `Other` without a runtime.
impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        let kind = match error {
            StreamError::NotFound => io::ErrorKind::NotFound,
            StreamError::Ended => io::ErrorKind::UnexpectedEof,
            StreamError::Full | StreamError::TooManyReaders => io::ErrorKind::QuotaExceeded,
            StreamError::NoOwner | StreamError::LongKey => io::ErrorKind::InvalidInput,
            StreamError::Lost => io::ErrorKind::ResourceBusy,
            StreamError::NoRuntime => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// Error of [`SharedStreams`](crate::SharedStreams).
#[derive(Debug)]
#[non_exhaustive]
pub enum SharedError {
    /// An error that [`Streams`](crate::Streams) may have, too, or [`StreamError::Lost`].
    Stream(StreamError),
    /// The log of the stream fails.
    Log(StreamLogError),
}

impl SharedError {
    /// Returns the response for a client: [`StreamError::response`], or `503 Service Unavailable` with
    /// `Retry-After` if the log fails.
    pub fn response(&self) -> Response<EventBody> {
        match self {
            Self::Stream(error) => error.response(),
            Self::Log(_) => kept::refusal(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(error) => error.fmt(f),
            Self::Log(_) => f.write_str("the log of the stream fails; try again later"),
        }
    }
}

impl Error for SharedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Stream(_) => None,
            Self::Log(source) => Some(source),
        }
    }
}

impl From<StreamError> for SharedError {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl From<StreamLogError> for SharedError {
    fn from(error: StreamLogError) -> Self {
        Self::Log(error)
    }
}

/// The kind of the [`StreamError`] or of the [`StreamLogError`].
impl From<SharedError> for io::Error {
    fn from(error: SharedError) -> Self {
        match error {
            SharedError::Stream(error) => error.into(),
            SharedError::Log(error) => error.into(),
        }
    }
}
