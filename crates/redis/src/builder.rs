//! Options of a log in Redis.

use std::time::Duration;

/// Redis uses signed 64-bit numbers.
const MAX_LEN: usize = i64::MAX as usize;
/// Redis adds the time of day to an expiry, so half the range means never.
const EXPIRE_MAX: Duration = Duration::from_millis(i64::MAX as u64 / 2);

/// Options of a [`Redis`](super::Redis), from [`Redis::builder`](super::Redis::builder).
#[derive(Clone)]
#[must_use = "nothing is connected before connect"]
pub struct RedisBuilder {
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) max_len: usize,
    pub(crate) queue: usize,
    pub(crate) queue_bytes: usize,
    pub(crate) expire_after: Option<Duration>,
    pub(crate) timeout: Duration,
}

/// Omits the URL, which may contain a password.
impl std::fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url: _, key, max_len, queue, queue_bytes, expire_after, timeout } = self;
        let mut all = f.debug_struct("RedisBuilder");
        all.field("key", key).field("max_len", max_len).field("queue", queue).field("queue_bytes", queue_bytes);
        all.field("expire_after", expire_after).field("timeout", timeout).finish_non_exhaustive()
    }
}

impl RedisBuilder {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            key: "millstream:events".to_owned(),
            max_len: 10_000,
            queue: 4096,
            queue_bytes: 16 << 20,
            expire_after: None,
            timeout: Duration::from_secs(5),
        }
    }

    /// Sets the key of the stream; `millstream:events` by default. Hubs with the same key share their events.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// Sets the minimum number of events that the stream keeps for reconnecting readers; at least 1, by default 10 000.
    /// Redis keeps some more, because it [removes whole
    /// nodes](https://redis.io/docs/latest/commands/xadd/#capped-streams).
    pub fn max_len(mut self, events: usize) -> Self {
        self.max_len = events.clamp(1, MAX_LEN);
        self
    }

    /// Sets the maximum number of events that wait while Redis is unreachable or slow, at least 1; by default 4096.
    /// Beyond that [`Hub::send`](millstream::sse::Hub::send) returns
    /// [`SendError::Full`](millstream::sse::SendError::Full).
    pub fn queue(mut self, events: usize) -> Self {
        self.queue = events.max(1);
        self
    }

    /// Sets the maximum size of the waiting events in bytes, by default 16 MiB. An empty queue accepts an event of any
    /// size up to 16 MiB.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// Sets the time without appends after which Redis removes the stream, in whole milliseconds: for keys of one
    /// response or one conversation. By default it stays.
    pub fn expire_after(mut self, idle: Duration) -> Self {
        self.expire_after = Some(idle.clamp(Duration::from_millis(1), EXPIRE_MAX));
        self
    }

    /// Sets the timeout for connecting and for a reply, from when the request is sent; by default 5 s. A connection
    /// that exceeds it counts as lost. A reader that needs the log also waits for this time while Redis is unreachable.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}
