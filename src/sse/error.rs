//! Why an event was not sent, and why nobody was let in.

use std::error::Error;
use std::fmt;

type BoxError = Box<dyn Error + Send + Sync>;

/// Why an event was not sent. Nobody has received any of it.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// Its id cannot be sent: empty, too long, or with a line break or NUL in it.
    InvalidId(&'static str),
    /// Its name cannot be sent: with a line break or NUL in it.
    InvalidName(&'static str),
    /// It has an id of its own, but the ids of this hub are given by its log.
    IdNotOurs,
    /// With [`LagPolicy::Block`](super::LagPolicy::Block): the slowest reader has its queue full. Wait with
    /// [`Hub::send_wait`](super::Hub::send_wait). A log may say so too.
    Full,
    /// The hub is closed.
    Closed,
    /// The log did not take it.
    Log(BoxError),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidId(why) => write!(f, "the event's id {why}"),
            Self::InvalidName(why) => write!(f, "the event's name {why}"),
            Self::IdNotOurs => f.write_str("the event has an id, but the hub's log gives the ids: send it without"),
            Self::Full => f.write_str("full: the slowest reader is behind by all that may be queued; wait or drop it"),
            Self::Closed => f.write_str("the hub is closed"),
            Self::Log(e) => write!(f, "the log did not take the event: {e}"),
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

/// Why there is no stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscribeError {
    /// There are as many subscribers as there may be.
    Full,
    /// The hub is closed.
    Closed,
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the hub has as many subscribers as HubBuilder::subscribers allows",
            Self::Closed => "the hub is closed",
        })
    }
}

impl Error for SubscribeError {}
