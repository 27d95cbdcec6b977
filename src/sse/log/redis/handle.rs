//! What a service holds, and what a hub calls.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::allowance::EVENT_MAX;
use super::backoff;
use super::builder::RedisBuilder;
use super::entry::Fields;
use super::id::Id;
use super::link::{Link, Server};
use super::queue::{Queue, Refused};
use super::replay::{self, Shelf};
use super::seen::Places;
use super::sizes::Sizes;
use super::stats::{RedisState, Stats};
use super::tail::Tail;
use super::writer::Writer;
use crate::sse::log::{Log, LogFuture, Replay, ReplayError, Sink};
use crate::sse::{Event, SendError};

/// For what is queued when the hub is closed.
const FAREWELL: Duration = Duration::from_secs(5);

/// A log in a [Redis stream](https://redis.io/docs/latest/develop/data-types/streams/): the hubs of all processes that use
/// the same key send to all their readers, and a reader that is cut off by one of them goes on at another.
///
/// ```no_run
/// use millstream::sse::Hub;
/// use millstream::sse::log::redis::Redis;
///
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::builder("redis://127.0.0.1/").key("news").connect().await?;
/// let hub = Hub::builder().log(redis.clone()).build();
/// # Ok(())
/// # }
/// ```
///
/// It takes two connections to Redis, a third one when it appends, and up to three more while many readers replay. It is
/// tested with Redis 7.0 and uses nothing that 5.0 does not have. It speaks to one server, or to whatever is behind one
/// address: neither Cluster nor Sentinel is supported, and a node of a cluster that refuses the key is
/// [an error](crate::sse::log::redis::RedisError::Cluster). Clones are the same log. The id `0-0` is before every event, for readers that want all
/// there is.
///
/// # What is promised
///
/// * **One order.** All hubs on a key deliver the same events in the same order, with the ids of the stream, so that
///   `Last-Event-ID` means the same everywhere. The events of one process are in the order in which it has sent them.
/// * **Not doubled.** An append whose outcome is unknown, because the connection broke, is looked for before it is
///   sent again, and the broken connection is ended at the server first, so that nothing of it happens later. As a
///   second line, each entry carries the number of its writer and its own, by which readers drop an entry that they
///   have met before. It takes more than [`max_len`](RedisBuilder::max_len) appends of others during one reconnection
///   to break that.
/// * **Not lost in silence.** `Ok` from [`Hub::send`](crate::sse::Hub::send) says that the event is queued here; it
///   is lost if the process ends before Redis has it ([`flush`](Self::flush) waits for that). What Redis has
///   confirmed is kept as Redis is set up to keep it: with `appendfsync always` through a crash, with its defaults
///   not quite. Where Redis has lost or dropped events that a reader should have got, the reader gets an event `gap`:
///   when the last entry it had is not there any more, and when the numbers of a writer leave some out.
/// * **Redis away.** Streams stay open, and keep-alives go on. Sends wait in a [queue](RedisBuilder::queue), in
///   order, and go on when Redis is back; when the queue is full, sending says so. Connecting is tried again after 20
///   ms, and up to 2 s, part of it at random. A reader that comes back in that time and needs the log waits until Redis
///   has been away for as long as the [time-out](RedisBuilder::timeout) says, and gets a `gap` then.
///
/// # Memory
///
/// The log is read in pages by bytes: of at most 256 KiB for readers that come back, at most four of them at a time, and
/// of 1 MiB for the live end, or of one event where that is larger. A page whose events turn out much larger than those
/// before is refused on the way, at four times these bytes, and asked for again event by event. No reply is longer than 64
/// MiB, and no event larger than 16 MiB can be appended; where another program has appended larger ones and a reply would
/// be longer, it is refused and [`state`](Self::state) says so. A reply is held up to three times for a moment: as it
/// came, as the values in it, and as events. What readers have not taken yet of the pages that were read for them is
/// bounded for the whole process, see [`Log::replay`]. Replies by TLS are not metered on the way.
///
/// What is not promised: an event that another program removes from the stream by itself (`XDEL`) is told only if it
/// was one of a hub's, and one whose writer nobody here has met before the loss cannot be missed. Ids are made of the
/// clock of Redis: one that takes the place of another must not be behind it by more than the change takes.
///
/// Other programs may append: `XADD news * data hello event greeting`; `retry` in milliseconds and `comment` are the
/// other fields.
///
/// # Closing
///
/// When the hub is closed, what is queued is still appended, for at most 5 s; then it is given up, which is
/// [counted](RedisState::given_up). So it is, at once, when the runtime ends. Of several hubs on clones of one log, the
/// last does that.
#[derive(Clone, Debug)]
pub struct Redis(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) server: Server,
    pub(super) key: String,
    pub(super) max_len: usize,
    pub(super) expire_after: Option<Duration>,
    /// Of this log in this process, by chance like no other.
    pub(super) writer_id: u64,
    pub(super) queue: Queue,
    pub(super) stats: Stats,
    pub(super) shelf: Shelf,
    pub(super) sizes: Sizes,
    places: Mutex<Places>,
    /// Where the stream ended when it was connected.
    end: Id,
    writer: AsyncMutex<Writer>,
}

impl Shared {
    pub(super) fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Redis {
    /// The log in the Redis at `url`: `redis://user:password@host:port/database` or `unix:///path`. `rediss://` (TLS)
    /// works where the service turns on a TLS feature of the same version of the [redis](https://docs.rs/redis) crate in its
    /// own `Cargo.toml`, which cargo then gives to this crate as well: `redis = { version = "1", default-features = false,
    /// features = ["tokio-rustls-comp"] }`, and a crypto provider of rustls, or `tokio-native-tls-comp`.
    pub fn builder(url: impl Into<String>) -> RedisBuilder {
        RedisBuilder::new(url.into())
    }

    pub(super) fn new(options: RedisBuilder, server: Server, link: Link, end: Id) -> Self {
        Self(Arc::new(Shared {
            server,
            key: options.key,
            max_len: options.max_len,
            expire_after: options.expire_after,
            writer_id: backoff::random(),
            queue: Queue::new(options.queue, options.queue_bytes),
            stats: Stats::default(),
            shelf: Shelf::new(link),
            sizes: Sizes::new(),
            places: Mutex::default(),
            end,
            writer: AsyncMutex::new(Writer::new(end)),
        }))
    }

    /// How it is now.
    pub fn state(&self) -> RedisState {
        self.0.stats.state(self.0.queue.len())
    }

    /// Waits until Redis has confirmed everything that was sent up to now, for as long as that takes. What was given up
    /// is not waited for.
    ///
    /// # Cancellation
    ///
    /// Dropping the future changes nothing.
    pub async fn flush(&self) {
        self.0.queue.flushed().await;
    }

    async fn serve(mut running: Running, sink: Sink) {
        let shared = Arc::clone(&running.shared);
        let shared = &*shared;
        // Also where the stream is empty: 0-0 is before every entry.
        sink.start(Some(&shared.end.to_string()));
        let mut tail = Tail::new(shared.end);
        // Of several hubs on one log, one writes for all.
        let write = async || shared.writer.lock().await.run(shared).await;
        either(sink.closed(), either(tail.run(shared, &sink), write())).await;
        let rest = async {
            loop {
                either(shared.queue.flushed(), write()).await;
                // Who has found the hub open may have been late with its append.
                if running.leave_done() {
                    return;
                }
            }
        };
        // What is left then is given up by the last hub.
        let _ = timeout(FAREWELL, rest).await;
    }
}

/// Runs both until one ends, and drops the other.
async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx).is_ready() || other.as_mut().poll(cx).is_ready() {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// A hub that appends what is queued, until it drops, be it because its runtime ends.
struct Running {
    shared: Arc<Shared>,
    left: bool,
}

impl Running {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.queue.enter();
        Self { shared: Arc::clone(shared), left: false }
    }

    fn leave_done(&mut self) -> bool {
        self.left = self.shared.queue.leave_done();
        self.left
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let is_last = !self.left && self.shared.queue.leave();
        // Only a hub that has come meanwhile can have it, and that goes on with what is left.
        if is_last && let Ok(mut writer) = self.shared.writer.try_lock() {
            writer.give_up(&self.shared);
        }
    }
}

impl Log for Redis {
    fn append(&self, event: Event) -> Result<(), SendError> {
        let fields = Fields::new(&event);
        if fields.bytes() > EVENT_MAX {
            return Err(SendError::Log("it is larger than 16 MiB, which no entry of the log may be".into()));
        }
        self.0.queue.push(fields).map_err(|refused| match refused {
            Refused::Full => SendError::Full,
            Refused::Closed => SendError::Closed,
        })
    }

    fn order(&self, id: &str, other: &str) -> Option<std::cmp::Ordering> {
        Some(Id::parse(id)?.cmp(&Id::parse(other)?))
    }

    fn run(self: Arc<Self>, sink: Sink) -> LogFuture<'static, ()> {
        // Not when it is first polled: what is sent before that is not sent too late.
        Box::pin(Self::serve(Running::new(&self.0), sink))
    }

    fn replay<'a>(&'a self, after: &'a str, upto: &'a str, bytes: usize) -> LogFuture<'a, Result<Replay, ReplayError>> {
        Box::pin(replay::replay(&self.0, after, upto, bytes))
    }
}
