//! Where the events of a topic come from.

use std::error::Error;
use std::fmt;

use millstream::sse::{EventBody, Hub, SubscribeError};
#[cfg(feature = "resumable")]
use millstream_resumable::{StreamError, StreamHandle};

/// Where the events of a topic come from: a [`Hub`], a `StreamHandle` of the crate
/// `millstream-resumable` (feature `resumable`), or a function that returns the body of a reader.
///
/// ```
/// use millstream::sse::{EventBody, Hub};
/// use millstream_topics::{Source, SourceError, Topics};
///
/// /// A hub whose readers are printed.
/// struct Printed(Hub);
///
/// impl Source for Printed {
///     fn position(&self) -> Option<String> {
///         Some(self.0.position())
///     }
///
///     fn subscribe(&self, last: Option<&str>) -> Result<EventBody, SourceError> {
///         println!("a reader behind {last:?}");
///         Ok(self.0.subscribe_from(last)?)
///     }
/// }
///
/// let topics = Topics::public().build();
/// let hub = Hub::new();
/// topics.insert("news", hub.clone())?;
/// topics.insert("alerts", Printed(hub))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Source: Send + Sync + 'static {
    /// Returns the position of a reader that gets the next event first; `None` if a reader without a position gets all
    /// events. Called when the topic is inserted, and for each new reader.
    ///
    /// A hub has its [position](Hub::position), so that a new reader misses nothing from its subscription on, also
    /// while it is disconnected. A stream has none: a new reader gets all of its events. A function has none: use it for
    /// sources that send all of their events to a reader without a position.
    fn position(&self) -> Option<String> {
        None
    }

    /// Returns the body of a reader behind the event with the id `last`. The body is not compressed. `last` comes from
    /// a client: it has at most 1024 bytes, without line breaks and NUL.
    ///
    /// When a body ends, this is called with the position of the reader, to learn whether more events can follow:
    /// [`SourceError::Ended`] ends the topic.
    ///
    /// # Errors
    ///
    /// [`SourceError`] says what becomes of the reader.
    fn subscribe(&self, last: Option<&str>) -> Result<EventBody, SourceError>;

    /// Returns whether the source is of no more use, although it has not ended. Its readers are to reconnect, and
    /// [`Topics::insert_new`](crate::Topics::insert_new) replaces it. A `StreamHandle` is lost if its instance can no
    /// longer use the log of the stream.
    fn is_lost(&self) -> bool {
        false
    }
}

impl Source for Hub {
    fn position(&self) -> Option<String> {
        Some(Self::position(self))
    }

    fn subscribe(&self, last: Option<&str>) -> Result<EventBody, SourceError> {
        Ok(self.subscribe_from(last)?)
    }
}

#[cfg(feature = "resumable")]
impl Source for StreamHandle {
    fn subscribe(&self, last: Option<&str>) -> Result<EventBody, SourceError> {
        Ok(self.attach_from(last)?)
    }

    fn is_lost(&self) -> bool {
        Self::is_lost(self)
    }
}

impl<F> Source for F
where
    F: Fn(Option<&str>) -> Result<EventBody, SourceError> + Send + Sync + 'static,
{
    fn subscribe(&self, last: Option<&str>) -> Result<EventBody, SourceError> {
        self(last)
    }
}

/// Why a source has no body for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceError {
    /// The source has too many readers. The request is answered with `503 Service Unavailable`.
    Full,
    /// The source has ended, and the reader has all of its events. The topic ends for this reader.
    Ended,
    /// The source is [lost](Source::is_lost). The request is answered with `503 Service Unavailable`.
    Lost,
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the source of the topic has too many readers",
            Self::Ended => "the source of the topic has ended, and the reader has all of its events",
            Self::Lost => "the source of the topic is lost; insert the topic again",
        })
    }
}

impl Error for SourceError {}

/// A closed hub has ended.
impl From<SubscribeError> for SourceError {
    fn from(error: SubscribeError) -> Self {
        match error {
            SubscribeError::Closed => Self::Ended,
            _ => Self::Full,
        }
    }
}

/// A stream that is not found has ended.
#[cfg(feature = "resumable")]
impl From<StreamError> for SourceError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Ended | StreamError::NotFound => Self::Ended,
            StreamError::Lost => Self::Lost,
            _ => Self::Full,
        }
    }
}
