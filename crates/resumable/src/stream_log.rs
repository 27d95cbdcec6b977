//! Storage of the events of streams: the contract for logs that several processes share.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream::sse::log::LogFuture;

use crate::end::StreamEnd;

type BoxError = Box<dyn Error + Send + Sync>;

/// The logs of the streams of a [`SharedStreams`](crate::SharedStreams), which the instances of a service share:
/// `DiskStreams` (feature `disk`) in a directory, `RedisStreams` of the crate `millstream-redis`.
///
/// All methods of this trait and of [`StreamLog`] are called on runtime threads and must not block them. Futures may be
/// dropped at any time, unless the method says otherwise.
pub trait StreamLogs: Send + Sync + fmt::Debug + 'static {
    /// Opens the log of the stream `name`. Returns `None` if there is none, or if it is no longer kept.
    ///
    /// `name` has 64 lower-case hexadecimal digits: the SHA-256 of the owner and the key. It is safe as a name of a
    /// file or of a key, and reveals neither.
    ///
    /// With `create`, a log is created if there is none. It is kept for the time `create`, unless a
    /// [claim](StreamLog::claim) or an [end](StreamLog::append) sets another time. Of concurrent calls one creates it.
    ///
    /// # Errors
    ///
    /// [`StreamLogError::Unreachable`].
    fn open<'a>(
        &'a self,
        name: &'a str,
        create: Option<Duration>,
    ) -> LogFuture<'a, Result<Option<Arc<dyn StreamLog>>, StreamLogError>>;
}

/// The log of one stream, as one instance sees it. An implementation releases its claim when the last handle is
/// dropped, or lets it expire.
///
/// Events have numbers from 0 on, without holes. One instance writes at a time: the one with the latest claim. All
/// others read.
pub trait StreamLog: Send + Sync + fmt::Debug + 'static {
    /// Returns the prefix of the ids of this stream: a random number that the log keeps from its creation on. Thus an
    /// id of an earlier stream with the same name is recognised.
    fn epoch(&self) -> u32;

    /// Claims the log for writing. Returns the token of the claim; `None` if there is a claim that has not expired, also
    /// of this instance, or if the log has an end. Each token is used once in the life of the log.
    ///
    /// From a successful claim on, the log is kept for the time `keep`, and not shorter than before, unless an
    /// [end](Self::append) sets another time: the age of a stream counts from its latest claim.
    ///
    /// # Errors
    ///
    /// [`StreamLogError::Gone`], [`StreamLogError::Unreachable`].
    fn claim(&self, keep: Duration) -> LogFuture<'_, Result<Option<u64>, StreamLogError>>;

    /// Appends encoded events, the first of which has the number `first`, and then the end, if there is one. Renews the
    /// claim. After `Ok`, every instance reads the events.
    ///
    /// A failed call is repeated with the same events, and possibly more. So events that the log already has are
    /// skipped, and an end that it has is confirmed. The end and the last event become visible in one step. From then
    /// on, the log is kept for the duration beside the end.
    ///
    /// The future is not dropped unless its runtime ends.
    ///
    /// # Errors
    ///
    /// [`StreamLogError::Lost`] if another claim was made since `token`. Nothing is appended then, also if that claim
    /// has expired. [`StreamLogError::Gone`], and [`StreamLogError::Unreachable`] if the outcome may be unknown.
    fn append<'a>(
        &'a self,
        token: u64,
        first: u64,
        events: &'a [Bytes],
        end: Option<(StreamEnd, Duration)>,
    ) -> LogFuture<'a, Result<(), StreamLogError>>;

    /// Returns the status of now, several times in a second. With a `token`, renews its claim. With `is_read`, records
    /// that this instance has readers now.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    fn beat(&self, token: Option<u64>, is_read: bool) -> LogFuture<'_, Result<LogStatus, StreamLogError>>;

    /// Returns the events from the number `from` on that the log has, at most about 256 KiB or one event, and its end
    /// if no events follow. Does not wait for new events.
    ///
    /// # Errors
    ///
    /// [`StreamLogError::Gone`], [`StreamLogError::Unreachable`].
    fn read(&self, from: u64) -> LogFuture<'_, Result<LogPage, StreamLogError>>;

    /// Waits until [`read`](Self::read) may return something from the number `from` on. May return too early. It has no
    /// errors: the caller also reads from time to time.
    fn grown(&self, from: u64) -> LogFuture<'_, ()>;

    /// Asks the instance that writes to stop the stream. The request stays in the log until its end.
    ///
    /// # Errors
    ///
    /// [`StreamLogError::Gone`], [`StreamLogError::Unreachable`].
    fn request_stop(&self) -> LogFuture<'_, Result<(), StreamLogError>>;
}

/// Status of a [`StreamLog`], returned by [`StreamLog::beat`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStatus {
    /// Whether an instance has a claim that has not expired.
    pub is_claimed: bool,
    /// Whether a stop was requested.
    pub stops: bool,
    /// The time since an instance had readers, by the latest record. `None` if there was none.
    pub unread: Option<Duration>,
}

/// Events of a [`StreamLog`], returned by [`StreamLog::read`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LogPage {
    /// The encoded events.
    pub events: Vec<Bytes>,
    /// Whether the log has more events now, which did not fit into the page.
    pub more: bool,
    /// The end that follows the events, and for how long the log is still kept. `None` if there are more events.
    pub end: Option<(StreamEnd, Duration)>,
}

/// Error of a [`StreamLog`].
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamLogError {
    /// Another instance has claimed the log.
    Lost,
    /// The log was removed, or has lost events.
    Gone,
    /// The log cannot be reached now. Another attempt may succeed.
    Unreachable(BoxError),
}

impl fmt::Display for StreamLogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "another instance has claimed the log of the stream",
            Self::Gone => "the log of the stream was removed, or has lost events",
            Self::Unreachable(_) => "the log of the stream is unreachable",
        })
    }
}

impl Error for StreamLogError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreachable(source) => Some(&**source),
            _ => None,
        }
    }
}

/// Every error of a call is [`Unreachable`](StreamLogError::Unreachable).
impl From<io::Error> for StreamLogError {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error.into())
    }
}

/// `ResourceBusy` for a lost claim, `NotFound` for a log that was removed, `NotConnected` for one that is unreachable.
impl From<StreamLogError> for io::Error {
    fn from(error: StreamLogError) -> Self {
        let kind = match error {
            StreamLogError::Lost => io::ErrorKind::ResourceBusy,
            StreamLogError::Gone => io::ErrorKind::NotFound,
            StreamLogError::Unreachable(_) => io::ErrorKind::NotConnected,
        };
        Self::new(kind, error)
    }
}
