//! Options of a hub.

use std::sync::Arc;
use std::time::Duration;

use crate::spread::{Draws, Spread};
use crate::sse::log::Log;
use crate::sse::ring::{Config, LagPolicy, Limits};
use crate::sse::wake::{self, LONG};

/// Builder of a [`Hub`](crate::sse::Hub), returned by [`Hub::builder`](crate::sse::Hub::builder).
#[derive(Clone, Debug)]
#[must_use = "there is no hub before build"]
pub struct HubBuilder {
    pub(in crate::sse) config: Config,
    pub(in crate::sse) log: Option<Arc<dyn Log>>,
}

impl HubBuilder {
    pub(in crate::sse) fn new() -> Self {
        let limits = Limits { count: 1000, bytes: 16 << 20, age: None };
        let config = Config {
            limits,
            queue: 1000,
            slow: LagPolicy::default(),
            patience: Duration::from_secs(10),
            keep_alive: Some(Duration::from_secs(15)),
            subscribers: usize::MAX,
            retry: Draws::new(Spread::RETURN),
            max_age: None,
            past_layers: false,
            gzip: None,
        };
        Self { config, log: None }
    }

    /// Sets the number of events that the ring keeps for reconnecting readers; 1000 by default. It has room for
    /// [`queue`](Self::queue) events in any case.
    pub fn replay(mut self, events: usize) -> Self {
        self.config.limits.count = events;
        self
    }

    /// Sets the maximum encoded size of the events in the ring; 16 MiB by default. The newest event is kept at any
    /// size.
    pub fn replay_bytes(mut self, bytes: usize) -> Self {
        self.config.limits.bytes = bytes;
        self
    }

    /// Sets how long an event stays in the ring, checked at each send and when a reader reconnects. Unlimited by
    /// default.
    pub fn replay_age(mut self, age: Duration) -> Self {
        self.config.limits.age = Some(age.min(LONG));
        self
    }

    /// Sets the period after which an idle reader gets a comment, so that the reader and proxies detect a dead
    /// connection. The comment is sent after half to all of the period. 15 s by default; zero disables it. Each runtime
    /// has one task with one timer for all readers of all hubs with the same period, while there are any.
    pub fn keep_alive(mut self, period: Duration) -> Self {
        self.config.keep_alive = wake::period(period);
        self
    }

    /// Sets the policy for slow readers; [`LagPolicy::DropOldest`] by default.
    pub fn lag_policy(mut self, policy: LagPolicy) -> Self {
        self.config.slow = policy;
        self
    }

    /// Sets how many events a reader may be behind before it is slow, at least 1; 1000 by default. Queued events are in
    /// the ring, once for all readers. A reconnecting reader may be behind by the whole ring.
    pub fn queue(mut self, events: usize) -> Self {
        self.config.queue = events.max(1) as u64;
        self
    }

    /// Sets for how long [`Hub::send_wait`](crate::sse::Hub::send_wait) waits for readers with [`LagPolicy::Block`]
    /// before it disconnects the slowest; 10 s by default.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.config.patience = patience.min(LONG);
        self
    }

    /// Sets the maximum number of concurrent subscribers; unlimited by default.
    pub fn subscribers(mut self, max: usize) -> Self {
        self.config.subscribers = max;
        self
    }

    /// Sets the delay after which readers reconnect when their stream ends: a range, from which each reader gets its own,
    /// or one time for all. 1 s to 3 s by default, so that a thousand readers that end together come back as 50 in each
    /// tenth of a second. `Retry-After` of refused subscribers is drawn from the same range, in whole seconds.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use millstream::sse::Hub;
    ///
    /// let hub = Hub::builder().retry(Duration::from_millis(500)..=Duration::from_secs(5)).build();
    /// # drop(hub);
    /// ```
    pub fn retry(mut self, retry: impl Into<Spread>) -> Self {
        self.config.retry = Draws::new(retry);
        self
    }

    /// Sets the age at which the stream of a reader ends: a range, from which each reader gets its own, or one time for
    /// all. Unlimited by default.
    ///
    /// The stream ends between two events, with the `retry:` of [`retry`](Self::retry), and the reader reconnects where it
    /// was. So readers move to instances that were added, and their authorization is checked anew. With a range, those that
    /// came together do not leave together. A stream ends up to 2 s late, as the task that sends the comments of
    /// [`keep_alive`](Self::keep_alive) looks each second, and never early. Outside of a tokio runtime it ends only when it
    /// is polled.
    pub fn max_age(mut self, age: impl Into<Spread>) -> Self {
        self.config.max_age = Some(Draws::new(age));
        self
    }

    /// Sets whether a server of this crate may write events to the connection without passing them through layers;
    /// `false` by default.
    ///
    /// The hub [writes to connections itself](crate::sse::Hub#cost-of-a-reader) if the body of the response is an
    /// [`EventBody`](crate::sse::EventBody). A layer, or a framework such as axum, wraps it in a body of another type.
    /// The task of the connection then polls that body for each frame. With this option the hub writes to these
    /// connections too, from the second event on. Layers no longer see these events, and cannot count, log, drop or
    /// delay them. The option takes effect only if the layers pass the first event on unchanged, in the task of the
    /// connection, and the response has no `Content-Encoding`. Otherwise the layers see all events. Do not use the
    /// option with a layer that filters events: a filter that passes the first event and would drop a later one cannot
    /// be detected.
    ///
    /// A layer that wakes the task of the connection is polled. It may end the stream or add its own bytes. After it
    /// has added bytes, the layers see all events again.
    pub fn past_layers(mut self, allow: bool) -> Self {
        self.config.past_layers = allow;
        self
    }

    /// Compresses the events for readers that accept gzip, at a level from 1 (fast) to 9 (small). Off by default.
    ///
    /// Each event is compressed separately, once for all readers, when the first reader needs it. So a compressed
    /// reader costs the hub hardly more than an uncompressed one, and the compressed size of an event reveals nothing
    /// about other events. [`Hub::subscribe`](crate::sse::Hub::subscribe) chooses by `Accept-Encoding`.
    /// [`HubStats::compressed`](crate::sse::HubStats) counts the events.
    ///
    /// The compressed form stays in the ring beside the plain one. [`replay_bytes`](Self::replay_bytes) counts only the
    /// plain form; the compressed form is longer by at most 50 bytes plus 1 %. Each thread that compresses keeps an
    /// encoder of 0.4 MiB. Compressing an event of 1 MiB takes about 20 ms; threads that send the event to other
    /// readers wait for it. Events that are replayed from a [log](Self::log) are compressed for each reader.
    #[cfg(feature = "compress")]
    pub fn gzip(mut self, level: u32) -> Self {
        self.config.gzip = Some(level.clamp(1, 9));
        self
    }

    /// Sends the events through a log that other hubs may share. The ring still serves readers that are not far behind.
    pub fn log(mut self, log: impl Log) -> Self {
        self.log = Some(Arc::new(log));
        self
    }
}
