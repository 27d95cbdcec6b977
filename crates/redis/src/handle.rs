//! Handle of a log in Redis, the first connection, and the implementation of [`Log`].

use std::sync::Arc;
use std::time::Duration;

use redis::cmd;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;

use super::allowance::EVENT_MAX;
use super::builder::RedisBuilder;
use super::entry::Fields;
use super::error::RedisError;
use super::id::Id;
use super::link::Server;
use super::replay::Shelf;
use super::shared::RedisShared;
use super::stats::RedisState;
use super::tail::{self, Tail};
use super::writer::Writer;
use millstream::internal::log_queue::{Queue, Queued, Running, Size, either};
use millstream::sse::log::{Log, LogFuture, Replay, ReplayError, Sink};
use millstream::sse::{Event, SendError};

/// A log in a [Redis stream](https://redis.io/docs/latest/develop/data-types/streams/): the hubs of all processes with
/// the same key send to all their readers, and a reader that is disconnected from one of them continues at another.
///
/// ```no_run
/// use millstream::sse::Hub;
/// use millstream_redis::Redis;
///
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::builder("redis://127.0.0.1/").key("news").connect().await?;
/// let hub = Hub::builder().log(redis.clone()).build();
/// # Ok(())
/// # }
/// ```
///
/// It uses two connections to Redis, a third one when it appends, and up to three more while many readers replay. It is
/// tested with Redis 7.0 and requires no feature newer than 5.0. It connects to one address: Cluster and Sentinel are
/// not supported, and a cluster node that rejects the key is [an error](RedisError::Cluster).
/// Clones share the log. The id `0-0` is before every event, for readers that want all available events.
///
/// # Guarantees
///
/// * **One order.** All hubs on a key deliver the same events in the same order, with the ids of the stream, so
///   `Last-Event-ID` means the same everywhere. The events of one process keep the order in which it sent them.
/// * **No duplicates.** If the outcome of an append is unknown, because the connection broke, the append is searched in
///   the log before it is sent again. The broken connection is first closed at the server, so that it has no later
///   effect. In addition, each entry carries the number of its writer and of the append, and readers drop entries that
///   they have already seen. This guarantee fails only if other writers append more than
///   [`max_len`](RedisBuilder::max_len) events during one reconnection.
/// * **No silent loss.** `Ok` from [`Hub::send`](millstream::sse::Hub::send) means that the event is queued in this
///   process; it is lost if the process ends before Redis has it ([`flush`](Self::flush) waits for that). Confirmed
///   events are as durable as Redis is configured: with `appendfsync always` they survive a crash, with the defaults
///   not all of them. If Redis has lost or dropped events, readers that miss them get an event `gap`: when the last
///   entry they received no longer exists, and when the numbers of a writer are not consecutive.
/// * **Outages.** Streams stay open, and keep-alives continue. Sends wait in a [queue](RedisBuilder::queue), in order,
///   and continue when Redis is back; a full queue makes sends fail. Connecting is retried after 20 ms, up to 2 s, with
///   a random part. A reader that reconnects meanwhile and needs the log waits until Redis has been unreachable for the
///   [timeout](RedisBuilder::timeout), and then gets a `gap`.
///
/// # Memory
///
/// The log is read in pages: of at most 256 KiB for reconnecting readers, at most four at a time, and of 1 MiB for the
/// live end, or of one larger event. A page whose events are much larger than earlier ones is rejected at four times
/// that size and requested again event by event. A reply has at most 64 MiB, and an appended event at most 16 MiB; if
/// other programs append larger ones and a reply would be longer, it is rejected and [`state`](Self::state) reports it.
/// A reply is held up to three times for a moment: as bytes, as parsed values, and as events. The total size of the
/// pages that readers have not taken yet is bounded for the process, see [`Log::replay`]. Replies over TLS are not
/// metered.
///
/// # Limits
///
/// An event that another program removes from the stream (`XDEL`) is reported only if a hub appended it, and a lost
/// event is not detected if no entry of its writer was seen before. Ids contain the clock of Redis. When one server
/// replaces another, its clock must not be behind the old one by more than the duration of the switch.
///
/// One hub appends for all hubs of a log, in its runtime. If that runtime is neither run nor dropped, for example
/// between two calls of `block_on`, the sends of all hubs wait.
///
/// Other programs may append: `XADD news * data hello event greeting`; the other fields are `retry` in milliseconds and
/// `comment`.
///
/// # Closing
///
/// When the hub is closed, queued events are still appended, for at most 5 s; the rest is given up and
/// [counted](RedisState::given_up). If the runtime ends, they are given up at once. If several hubs use clones of one
/// log, this happens with the last one.
#[derive(Clone, Debug)]
pub struct Redis(Arc<RedisInner>);

#[derive(Debug)]
struct RedisInner {
    shared: RedisShared,
    shelf: Shelf,
    /// End of the stream when the log was connected.
    end: Id,
    writer: AsyncMutex<Writer>,
}

impl RedisBuilder {
    /// Connects, checks that all needed commands are allowed, and determines the end of the stream: the hub gets all
    /// later events.
    ///
    /// # Errors
    ///
    /// See [`RedisError`]: a service that starts without its Redis should report it and exit. Later failures of Redis
    /// are not errors, see [`Redis`].
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub async fn connect(self) -> Result<Redis, RedisError> {
        let server = Server::new(&self.url, self.timeout)?;
        let failed = |e| RedisError::new(&server.address, &self.key, e);
        let mut link = server.connect(Duration::ZERO).await.map_err(failed)?;
        let end = tail::end(&self.key, &mut link).await.map_err(failed)?;
        link.may_fence().await.map_err(failed)?;
        // A replica would accept all commands above.
        let role = cmd("INFO").arg("replication").query_async::<String>(&mut link.connection).await.map_err(failed)?;
        if role.lines().any(|line| line == "role:slave") {
            let reason = "it is a replica, which accepts no appends".to_owned();
            return Err(RedisError::Refused { address: server.address, reason });
        }
        Ok(Redis(Arc::new(RedisInner {
            shared: RedisShared::new(self, server),
            shelf: Shelf::new(link),
            end,
            writer: AsyncMutex::new(Writer::new(end)),
        })))
    }
}

impl Redis {
    /// Returns a builder for the Redis at `url`: `redis://user:password@host:port/database` or `unix:///path`.
    /// `rediss://` (TLS) works if the service enables a TLS feature of the same version of the
    /// [redis](https://docs.rs/redis) crate in its own `Cargo.toml`, which cargo then enables for this crate as well:
    /// `redis = { version = "1", default-features = false, features = ["tokio-rustls-comp"] }`, and a crypto provider
    /// of rustls, or `tokio-native-tls-comp`.
    pub fn builder(url: impl Into<String>) -> RedisBuilder {
        RedisBuilder::new(url.into())
    }

    /// Returns the current state.
    pub fn state(&self) -> RedisState {
        self.0.shared.stats.state(self.0.shared.queue.len())
    }

    /// Waits, without a limit, until Redis has confirmed or the log has given up everything sent so far. Cancel safe.
    pub async fn flush(&self) {
        self.0.shared.queue.flushed().await;
    }

    async fn serve(hub: Running<RedisInner>, log: &RedisInner, sink: Sink) {
        let RedisInner { shared, end, writer, .. } = log;
        // Also for an empty stream: 0-0 is before every entry.
        sink.start(Some(&end.to_string()));
        let mut tail = Tail::new(*end);
        // If several hubs share a log, one of them writes for all.
        let write = move || async move { writer.lock().await.run(shared).await };
        hub.serve(either(sink.closed(), tail.run(shared, &sink)), write).await;
    }
}

impl Queued for RedisInner {
    type Item = Fields;

    fn queue(&self) -> &Queue<Fields> {
        &self.shared.queue
    }

    fn give_up_left(&self) {
        // If the lock is taken, a new hub has it and continues with the queue.
        if let Ok(mut writer) = self.writer.try_lock() {
            writer.give_up(&self.shared);
        }
    }
}

impl Log for Redis {
    fn append(&self, event: Event) -> Result<(), SendError> {
        let fields = Fields::new(&event);
        if fields.bytes() > EVENT_MAX {
            return Err(SendError::Log("the event is larger than 16 MiB, the maximum of an entry of the log".into()));
        }
        Ok(self.0.shared.queue.push(fields)?)
    }

    fn order(&self, id: &str, other: &str) -> Option<std::cmp::Ordering> {
        Some(Id::parse(id)?.cmp(&Id::parse(other)?))
    }

    fn run(self: Arc<Self>, sink: Sink) -> LogFuture<'static, ()> {
        // Created here and not at the first poll, so that earlier sends are accepted.
        let hub = Running::new(&self.0);
        Box::pin(async move { Self::serve(hub, &self.0, sink).await })
    }

    fn replay<'a>(&'a self, after: &'a str, upto: &'a str, bytes: usize) -> LogFuture<'a, Result<Replay, ReplayError>> {
        let (inner, after, upto) = (Arc::clone(&self.0), after.to_owned(), upto.to_owned());
        Box::pin(async move {
            // Runs in a task that ends with this future. Readers take turns, and a reader that is not polled would
            // block the others.
            let mut task = JoinSet::new();
            task.spawn(async move { inner.shelf.replay(&inner.shared, &after, &upto, bytes).await });
            match task.join_next().await.expect("internal: it was spawned") {
                Ok(replay) => replay,
                Err(e) => Err(ReplayError::Unreachable(e.into())),
            }
        })
    }
}
