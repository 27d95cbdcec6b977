//! The logs, opened by name.

use std::sync::Arc;
use std::time::Duration;

use super::builder::RedisStreamsBuilder;
use super::pushing_link::{PushingLink, millis, unreachable};
use super::redis_stream::RedisStream;
use super::scripts::Script;
use crate::backoff::random;
use crate::error::RedisError;
use crate::link::Server;
use millstream::sse::log::LogFuture;
use millstream_resumable::{StreamLog, StreamLogError, StreamLogs};

/// Logs of [`SharedStreams`](millstream_resumable::SharedStreams) in Redis: for the instances of a service on several
/// machines.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use millstream_resumable::Streams;
/// use millstream_redis::RedisStreams;
///
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let logs = RedisStreams::builder("redis://127.0.0.1/").connect().await?;
/// let streams = Streams::builder().build_shared(Arc::new(logs));
/// # Ok(())
/// # }
/// ```
///
/// Clones share one connection. It needs Redis 6 (RESP3). Cluster and Sentinel are not supported.
///
/// # Guarantees
///
/// * **One writer.** A claim is a random number, and a time in which it is renewed,
///   [`claim`](RedisStreamsBuilder::claim). Redis checks the number with each append in the same step. An append of an
///   instance that was paused or cut off, and whose claim another one has, changes nothing, however late it arrives.
/// * **No duplicates.** Events have numbers. An append with an unknown outcome is repeated, and Redis skips what it has.
/// * **Durability.** Events are as durable as Redis is configured. If it has lost events (a crash without persistence, a
///   fail-over, `FLUSHALL`, an eviction), the streams fail, and begin again with other ids. Only the loss of the latest
///   events together with their number is not noticed by an instance that had not read them.
/// * **Time to live.** Redis removes both keys of a stream after the
///   [time to live](millstream_resumable::StreamsBuilder::ttl), or if it has no end, after that and the
///   [greatest age](millstream_resumable::StreamsBuilder::max_age).
///
/// # Cost
///
/// One connection of each instance carries all calls and notifications. Events that are sent while an append runs are in
/// the next one. A running stream costs four short scripts in a second at the instance that writes, and four at each
/// instance that has readers; beside these, one script for an append, and one notification and one read at each instance
/// with readers. At most 16 reads of events run at a time. A read has at most about 256 KiB of events. Replies are not metered.
#[derive(Clone, Debug)]
pub struct RedisStreams {
    link: Arc<PushingLink>,
    prefix: String,
    claim: Duration,
}

impl RedisStreamsBuilder {
    /// Connects, and checks that Redis runs the scripts.
    ///
    /// # Errors
    ///
    /// See [`RedisError`]. Later failures of Redis are not errors, see
    /// [`SharedStreams`](millstream_resumable::SharedStreams#failures-of-the-log).
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub async fn connect(self) -> Result<RedisStreams, RedisError> {
        let link = PushingLink::new(Server::pushing(&self.url, self.timeout)?);
        let probe = format!("{}:", self.prefix);
        let probed = link.call::<Option<u32>>(Script::Open, &probe, |call| {
            call.arg("").arg(0);
        });
        probed.await.map_err(|e| RedisError::new(&link.server.address, &probe, e))?;
        Ok(RedisStreams { link: Arc::new(link), prefix: self.prefix, claim: self.claim })
    }
}

impl RedisStreams {
    /// Returns a builder for the Redis at `url`, as [`Redis::builder`](crate::Redis::builder).
    pub fn builder(url: impl Into<String>) -> RedisStreamsBuilder {
        RedisStreamsBuilder::new(url.into())
    }
}

impl StreamLogs for RedisStreams {
    fn open<'a>(
        &'a self,
        name: &'a str,
        create: Option<Duration>,
    ) -> LogFuture<'a, Result<Option<Arc<dyn StreamLog>>, StreamLogError>> {
        Box::pin(async move {
            let key = format!("{}:{name}", self.prefix);
            let epoch = create.map_or_else(String::new, |_| (random() as u32).to_string());
            let opened = self.link.call(Script::Open, &key, |call| {
                call.arg(&epoch).arg(create.map_or(0, millis));
            });
            let epoch: Option<u32> = opened.await.map_err(unreachable)?;
            let stream = |epoch| Arc::new(RedisStream::new(&self.link, key, epoch, self.claim)) as Arc<dyn StreamLog>;
            Ok(epoch.map(stream))
        })
    }
}
