//! Requirements of streams with logs, for each kind of log: the tests of `DiskStreams` and of `RedisStreams`.
//!
//! Two [`SharedStreams`] in one process are two instances. Times are real, because the logs have clocks of their own.

mod ends;
mod lives;
mod moves;

pub use ends::{ends_are_durable, owners_are_apart, stops_reach_the_writer, streams_are_forgotten};
pub use lives::{abandoned_in_time, continued_after_death, killed_writer, killed_writers, one_producer, orphans_fail};
pub use moves::{clients_move, moves_wanted};

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream::sse::{Event, SendError};
use millstream_resumable::{SharedStreams, StreamHandle, StreamLogs, StreamSender, Streams, StreamsBuilder};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::HANGS;
use crate::resuming::Client;

/// Where the logs of a test are.
pub trait Place: Send + Sync + 'static {
    /// Returns the logs as one more process has them.
    fn logs(&self) -> impl Future<Output = Arc<dyn StreamLogs>> + Send;

    /// Returns the number of files or keys that are left.
    fn left(&self) -> usize;

    /// Returns all names of files or keys.
    fn names(&self) -> Vec<String>;
}

fn options() -> StreamsBuilder {
    Streams::builder().keep_alive(Duration::ZERO).patience(Duration::from_secs(20))
}

async fn instance(place: &impl Place, options: StreamsBuilder) -> SharedStreams {
    options.build_shared(place.logs().await)
}

async fn two(place: &impl Place, options: StreamsBuilder) -> [SharedStreams; 2] {
    [instance(place, options.clone()).await, instance(place, options).await]
}

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn millis(&mut self, bound: u64) -> Duration {
        Duration::from_millis(self.below(bound))
    }
}

/// Sends the events from `resumed_from` up to `to`.
async fn count_to(sender: StreamSender, to: u64, pause: Duration) -> Result<(), SendError> {
    for n in sender.resumed_from()..to {
        sender.send(Event::new().data(n.to_string()))?;
        sleep(pause).await;
    }
    Ok(())
}

/// Tells when it is dropped.
struct Alive(Option<oneshot::Sender<Instant>>);

impl Drop for Alive {
    fn drop(&mut self) {
        let _ = self.0.take().map(|dropped| dropped.send(Instant::now()));
    }
}

/// Starts a stream whose producer waits. Returns also what tells when the producer is cancelled.
async fn waiting(streams: &SharedStreams, key: &str) -> (StreamHandle, oneshot::Receiver<Instant>) {
    let (dropped, wait) = oneshot::channel();
    let alive = Alive(Some(dropped));
    let producer = |sender: StreamSender| async move {
        let _alive = alive;
        sender.send(Event::new().data("waits")).unwrap();
        pending::<Result<(), Infallible>>().await
    };
    (streams.open(key, "alice", producer).await.unwrap(), wait)
}

/// Returns the bytes of all events of a stream, to its end.
async fn whole(stream: &StreamHandle) -> String {
    let mut client = Client::default();
    let body = stream.attach_from(None).unwrap();
    let ended = tokio::time::timeout(HANGS, client.read(body, None, false)).await.expect("the stream ends");
    assert!(ended);
    String::from_utf8(client.bytes).unwrap()
}

/// Returns the data of encoded events.
fn data(events: &str) -> Vec<&str> {
    events.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
}

async fn until(what: &str, ready: impl Fn() -> bool) {
    let since = Instant::now();
    while !ready() {
        assert!(since.elapsed() < HANGS, "{what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Measures for how long this machine stood still, which is no fault of a stream.
struct Lag {
    total: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Lag {
    fn start() -> Self {
        let total = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&total);
        let task = tokio::spawn(async move {
            // Timers and tasks are a little late on every busy machine.
            let (tick, little) = (Duration::from_millis(10), Duration::from_millis(50));
            loop {
                let before = Instant::now();
                sleep(tick).await;
                let late = before.elapsed().saturating_sub(tick);
                if late > little {
                    told.fetch_add(late.as_millis() as u64, Ordering::Relaxed);
                }
            }
        });
        Self { total, task }
    }

    /// Returns the sum of all delays up to now.
    fn total(&self) -> Duration {
        Duration::from_millis(self.total.load(Ordering::Relaxed))
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.task.abort();
    }
}
