//! Options of logs of streams in Redis.

use std::time::Duration;

/// Options of a [`RedisStreams`](super::RedisStreams), from [`RedisStreams::builder`](super::RedisStreams::builder).
#[derive(Clone)]
#[must_use = "nothing is connected before connect"]
pub struct RedisStreamsBuilder {
    pub(super) url: String,
    pub(super) prefix: String,
    pub(super) claim: Duration,
    pub(super) timeout: Duration,
}

/// Omits the URL, which may contain a password.
impl std::fmt::Debug for RedisStreamsBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url: _, prefix, claim, timeout } = self;
        let mut all = f.debug_struct("RedisStreamsBuilder");
        all.field("prefix", prefix).field("claim", claim).field("timeout", timeout).finish_non_exhaustive()
    }
}

impl RedisStreamsBuilder {
    pub(super) fn new(url: String) -> Self {
        let (claim, timeout) = (Duration::from_secs(10), Duration::from_secs(5));
        Self { url, prefix: "millstream:streams".to_owned(), claim, timeout }
    }

    /// Sets the prefix of all keys; `millstream:streams` by default. Instances with the same prefix share their streams.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the time after which another instance may write a stream whose instance is silent; 10 s by default, at
    /// least 1 s. An instance tells four times in a second that it is alive.
    pub fn claim(mut self, claim: Duration) -> Self {
        self.claim = claim.clamp(Duration::from_secs(1), Duration::from_secs(24 * 60 * 60));
        self
    }

    /// Sets the timeout for connecting and for a reply, from when the request is sent; by default 5 s. A connection that
    /// exceeds it counts as lost.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}
