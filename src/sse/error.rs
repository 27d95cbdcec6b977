//! Errors of sending and subscribing.

use std::error::Error;
use std::fmt;
use std::io;

type BoxError = Box<dyn Error + Send + Sync>;

/// Error of sending an event. No reader has received any of it.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// The id is invalid: empty, too long, with a control character, or with a space at the start or the end.
    InvalidId(&'static str),
    /// The name is invalid: with a line break or NUL.
    InvalidName(&'static str),
    /// The event has an id, but the log of this hub assigns the ids, or the stream does.
    IdNotOurs,
    /// With [`LagPolicy::Block`](super::LagPolicy::Block): the queue of the slowest reader is full. Wait with
    /// [`Hub::send_wait`](super::Hub::send_wait). A log may also return this.
    Full,
    /// The hub is closed, or the stream has ended.
    Closed,
    /// The events of a stream of the crate `millstream-resumable` would exceed `StreamsBuilder::events` or `bytes`. The
    /// stream has ended.
    TooLarge,
    /// The log rejected the event.
    Log(BoxError),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidId(why) => write!(f, "the event's id {why}"),
            Self::InvalidName(why) => write!(f, "the event's name {why}"),
            Self::IdNotOurs => {
                f.write_str("the event has an id, but the log or the stream assigns the ids; send it without one")
            }
            Self::Full => f.write_str("the queue of the slowest reader is full; wait or drop the event"),
            Self::Closed => f.write_str("the hub is closed, or the stream has ended"),
            Self::TooLarge => f.write_str("the stream has ended: its events exceed StreamsBuilder::events or bytes"),
            Self::Log(_) => f.write_str("the log rejected the event"),
        }
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Log(e) => Some(&**e),
            _ => None,
        }
    }
}

/// `InvalidInput` for an event that cannot be sent, `WouldBlock` for a full queue, `BrokenPipe` for a closed hub,
/// `QuotaExceeded` for a stream that is too large, `Other` for an error of the log.
impl From<SendError> for io::Error {
    fn from(error: SendError) -> Self {
        let kind = match &error {
            SendError::InvalidId(_) | SendError::InvalidName(_) | SendError::IdNotOurs => io::ErrorKind::InvalidInput,
            SendError::Full => io::ErrorKind::WouldBlock,
            SendError::Closed => io::ErrorKind::BrokenPipe,
            SendError::TooLarge => io::ErrorKind::QuotaExceeded,
            SendError::Log(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// Error of subscribing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The maximum number of subscribers is reached.
    Full,
    /// The hub is closed.
    Closed,
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the hub has the maximum number of subscribers set by HubBuilder::subscribers",
            Self::Closed => "the hub is closed",
        })
    }
}

impl Error for SubscribeError {}

/// `QuotaExceeded` for too many subscribers, `BrokenPipe` for a closed hub.
impl From<SubscribeError> for io::Error {
    fn from(error: SubscribeError) -> Self {
        let kind = match error {
            SubscribeError::Full => io::ErrorKind::QuotaExceeded,
            SubscribeError::Closed => io::ErrorKind::BrokenPipe,
        };
        Self::new(kind, error)
    }
}
