//! Options of streams.

use std::time::Duration;

use millstream::Spread;
use millstream::sse::{Hub, HubBuilder, LagPolicy};

/// Events that the hub of a stream has in its ring, and their bytes. A reader that is further behind reads the stream
/// itself.
const RING: (usize, usize) = (64, 64 << 10);
/// Maximum duration of settings; anything longer means never.
const LONG: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Builder of [`Streams`](crate::Streams), returned by [`Streams::builder`](crate::Streams::builder). Durations longer
/// than a year mean never.
#[derive(Clone, Debug)]
#[must_use = "there are no streams before build"]
pub struct StreamsBuilder {
    pub(crate) hub: HubBuilder,
    pub(crate) streams: usize,
    pub(crate) events: u64,
    pub(crate) bytes: usize,
    pub(crate) ttl: Duration,
    pub(crate) grace: Duration,
    pub(crate) age: Duration,
    pub(crate) patience: Duration,
}

impl StreamsBuilder {
    pub(crate) fn new() -> Self {
        let hub = Hub::builder().replay(RING.0).replay_bytes(RING.1).queue(usize::MAX);
        Self {
            hub: hub.lag_policy(LagPolicy::Disconnect),
            streams: 10_000,
            events: 100_000,
            bytes: 8 << 20,
            ttl: Duration::from_secs(5 * 60),
            grace: Duration::from_secs(60),
            age: Duration::from_secs(60 * 60),
            patience: Duration::from_secs(10),
        }
    }

    /// Returns how long a log without an end is kept.
    pub(crate) fn keep(&self) -> Duration {
        self.age + self.ttl
    }

    /// Sets how long the events of a stream can be read after its end; 5 minutes by default. Then the key is unknown,
    /// and can be started again. Readers that are attached continue.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl.min(LONG);
        self
    }

    /// Sets after which time without readers a producer is cancelled; 60 s by default. The time begins at the start of
    /// the stream and when the last reader leaves. A reader counts from its response until the body is dropped.
    ///
    /// In [`SharedStreams`](crate::SharedStreams) it must be longer than [`patience`](Self::patience): an instance that
    /// cannot reach the log keeps its readers for the patience, and cannot tell the others of them.
    pub fn abandoned(mut self, grace: Duration) -> Self {
        self.grace = grace.min(LONG);
        self
    }

    /// Sets after which time a producer is cancelled, with or without readers; 1 hour by default.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.age = age.min(LONG);
        self
    }

    /// Sets how long [`SharedStreams`](crate::SharedStreams) wait for a log that is unreachable, or for an instance that
    /// writes a stream; 10 s by default. Then the stream is lost at the instance whose log is unreachable. If no instance
    /// writes it, one that follows it ends it as [`StreamEnd::Failed`](crate::StreamEnd::Failed).
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience.min(LONG);
        self
    }

    /// Sets the maximum number of streams, running or ended; 10 000 by default. Beyond that
    /// [`get_or_start`](crate::Streams::get_or_start) fails. Together with [`bytes`](Self::bytes) it limits the memory.
    pub fn streams(mut self, max: usize) -> Self {
        self.streams = max;
        self
    }

    /// Sets the maximum encoded size of the events of a stream in bytes; 8 MiB by default. A stream keeps all of its
    /// events. An event beyond the maximum is refused, and ends the stream as
    /// [`StreamEnd::TooLarge`](crate::StreamEnd::TooLarge), so that no reader misses events silently.
    pub fn bytes(mut self, max: usize) -> Self {
        self.bytes = max;
        self
    }

    /// Sets the maximum number of events of a stream, in the same way; 100 000 by default.
    pub fn events(mut self, max: usize) -> Self {
        self.events = max as u64;
        self
    }

    /// Sets the maximum number of readers of a stream at a time; unlimited by default.
    pub fn readers(mut self, max: usize) -> Self {
        self.hub = self.hub.subscribers(max);
        self
    }

    /// Sets the period after which an idle reader gets a comment, as [`HubBuilder::keep_alive`] does; 15 s by default.
    ///
    /// [`HubBuilder::keep_alive`]: millstream::sse::HubBuilder::keep_alive
    pub fn keep_alive(mut self, period: Duration) -> Self {
        self.hub = self.hub.keep_alive(period);
        self
    }

    /// Sets the delay after which readers reconnect when their connection ends, as
    /// [`HubBuilder::retry`](millstream::sse::HubBuilder::retry) does; 1 s to 3 s by default.
    pub fn retry(mut self, retry: impl Into<Spread>) -> Self {
        self.hub = self.hub.retry(retry);
        self
    }

    /// Sets whether a server of this crate may write events to the connection without passing them through layers, as
    /// [`HubBuilder::past_layers`](millstream::sse::HubBuilder::past_layers) does; `false` by default.
    pub fn past_layers(mut self, allow: bool) -> Self {
        self.hub = self.hub.past_layers(allow);
        self
    }

    /// Compresses the events for readers that accept gzip, at a level from 1 (fast) to 9 (small). Off by default. New
    /// events are compressed once for all readers, earlier events for each reader.
    #[cfg(feature = "compress")]
    pub fn gzip(mut self, level: u32) -> Self {
        self.hub = self.hub.gzip(level);
        self
    }
}
