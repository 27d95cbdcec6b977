//! How a stream ends.

use millstream::internal::Counter;
use millstream::sse::Event;

/// How a stream of [`Streams`](crate::Streams) has ended.
///
/// A stream that is not complete has a last event that says so, because a reader may attach later:
///
/// | end | last event |
/// |---|---|
/// | `Complete` | the last event of the producer |
/// | `Stopped` | `event: stopped`, `data: {"reason":"stopped"}` |
/// | the others | `event: error`, `data: {"reason":"failed"}`, or `abandoned`, `expired`, `too_large` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamEnd {
    /// The producer has returned `Ok`.
    Complete,
    /// The producer has returned an error, has panicked, or its runtime has ended. In
    /// [`SharedStreams`](crate::SharedStreams): or no instance writes the stream.
    Failed,
    /// [`Streams::stop`](crate::Streams::stop) was called, or the last [`Streams`](crate::Streams) was dropped.
    Stopped,
    /// The stream had no readers for [`StreamsBuilder::abandoned`](crate::StreamsBuilder::abandoned).
    Abandoned,
    /// The producer has run for [`StreamsBuilder::max_age`](crate::StreamsBuilder::max_age).
    Expired,
    /// The events exceed [`StreamsBuilder::bytes`](crate::StreamsBuilder::bytes) or
    /// [`events`](crate::StreamsBuilder::events).
    TooLarge,
}

impl StreamEnd {
    /// Returns the name: `complete`, `failed`, `stopped`, `abandoned`, `expired` or `too_large`. A
    /// [`StreamLog`](crate::StreamLog) may store it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Abandoned => "abandoned",
            Self::Expired => "expired",
            Self::TooLarge => "too_large",
        }
    }

    /// Returns the end with this [name](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Complete, Self::Failed, Self::Stopped, Self::Abandoned, Self::Expired, Self::TooLarge];
        all.into_iter().find(|end| end.as_str() == name)
    }

    /// Returns the last event.
    pub(crate) fn event(self) -> Option<Event> {
        let name = match self {
            Self::Complete => return None,
            Self::Stopped => "stopped",
            _ => "error",
        };
        Some(Event::new().event(name).data(format!("{{\"reason\":\"{}\"}}", self.as_str())))
    }

    pub(crate) fn counter(self) -> Counter {
        match self {
            Self::Complete => Counter::StreamsCompleted,
            Self::Failed | Self::TooLarge => Counter::StreamsFailed,
            Self::Stopped => Counter::StreamsStopped,
            Self::Abandoned => Counter::StreamsAbandoned,
            Self::Expired => Counter::StreamsExpired,
        }
    }
}
