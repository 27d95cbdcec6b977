//! The options of a log in Redis, and the first connection.

use std::time::Duration;

use redis::cmd;

use super::error::RedisError;
use super::handle::Redis;
use super::link::Server;
use super::tail;

/// Redis counts in signed numbers of 64 bits,
const MAX_LEN: usize = i64::MAX as usize;
/// and adds the time of day to an expiry: half of them is never.
const EXPIRE_MAX: Duration = Duration::from_millis(i64::MAX as u64 / 2);

/// Options of a [`Redis`], from [`Redis::builder`].
#[derive(Clone)]
#[must_use = "nothing is connected before connect"]
pub struct RedisBuilder {
    url: String,
    pub(super) key: String,
    pub(super) max_len: usize,
    pub(super) queue: usize,
    pub(super) queue_bytes: usize,
    pub(super) expire_after: Option<Duration>,
    timeout: Duration,
}

/// No password.
impl std::fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url: _, key, max_len, queue, queue_bytes, expire_after, timeout } = self;
        let mut all = f.debug_struct("RedisBuilder");
        all.field("key", key).field("max_len", max_len).field("queue", queue).field("queue_bytes", queue_bytes);
        all.field("expire_after", expire_after).field("timeout", timeout).finish_non_exhaustive()
    }
}

impl RedisBuilder {
    pub(super) fn new(url: String) -> Self {
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

    /// The key of the stream; `millstream:events` by default. Hubs that share it are one.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// How many events the stream keeps at least, for readers that come back; at least 1, by default 10 000. Redis keeps some
    /// more, because it [drops whole nodes](https://redis.io/docs/latest/commands/xadd/#capped-streams).
    pub fn max_len(mut self, events: usize) -> Self {
        self.max_len = events.clamp(1, MAX_LEN);
        self
    }

    /// How many events wait while Redis is away or slow, at least 1; by default 4096. Beyond that
    /// [`Hub::send`](crate::sse::Hub::send) says [`SendError::Full`](crate::sse::SendError::Full).
    pub fn queue(mut self, events: usize) -> Self {
        self.queue = events.max(1);
        self
    }

    /// How many bytes of events wait, by default 16 MiB. An empty queue takes an event of any size up to 16 MiB.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// Has Redis remove the stream when nothing was appended for so long, in whole milliseconds: for keys of one answer or
    /// one conversation. By default it stays.
    pub fn expire_after(mut self, idle: Duration) -> Self {
        self.expire_after = Some(idle.clamp(Duration::from_millis(1), EXPIRE_MAX));
        self
    }

    /// How long connecting and an answer may take, from when the request is sent; by default 5 s. What takes longer is a
    /// connection that is lost. For as long, too, a reader that needs the log is held while Redis is away.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Connects, looks whether everything a log needs is allowed, and where the stream ends: from there on the hub gets
    /// everything.
    ///
    /// # Errors
    ///
    /// See [`RedisError`]: a service that is started without its Redis should say so and end. What happens to Redis later is
    /// not an error, see [`Redis`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(self) -> Result<Redis, RedisError> {
        let server = Server::new(&self.url, self.timeout)?;
        let failed = |e| RedisError::new(&server.address, &self.key, e);
        let mut link = server.connect(Duration::ZERO).await.map_err(failed)?;
        let end = tail::end(&self.key, &mut link).await.map_err(failed)?;
        link.may_fence().await.map_err(failed)?;
        // A replica would answer all that up to here.
        let role = cmd("INFO").arg("replication").query_async::<String>(&mut link.connection).await.map_err(failed)?;
        if role.lines().any(|line| line == "role:slave") {
            let reason = "it is a replica, which takes no appends".to_owned();
            return Err(RedisError::Refused { address: server.address, reason });
        }
        Ok(Redis::new(self, server, link, end))
    }
}
