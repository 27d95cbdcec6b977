//! Handle of a log in a directory, and the implementation of [`Log`].

use std::cmp::Ordering;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::{sleep, timeout};

use super::builder::DiskBuilder;
use super::error::DiskError;
use super::record::{EVENT_MAX, Encoded, ID_LEN, parse_id};
use super::shared::Shared;
use super::state::DiskState;
use super::writer::{self, Outcome, Writer};
use super::{recover, replay};
use crate::runtime::blocking::BlockingTask;
use crate::sse::log::queue::either;
use crate::sse::log::{Log, LogFuture, Replay, ReplayError, Sink};
use crate::sse::{Event, SendError};

/// Time for which a closed hub tries to commit what waits.
const GRACE: Duration = Duration::from_secs(5);
/// Time after which a commit that found no room is repeated.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum number of concurrent reads for replays.
const READS: usize = 4;

/// A log in a directory: events survive restarts of the service, and readers continue where they were.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("events");
/// use millstream::sse::log::disk::Disk;
/// use millstream::sse::{Event, Hub};
///
/// let disk = Disk::builder(&path).keep_bytes(1 << 30).open().await?;
/// let hub = Hub::builder().log(disk.clone()).build();
/// hub.send(Event::new().data("Hello"))?;
/// disk.flush().await?; // it is on the disk
/// assert_eq!(disk.state().next, 2);
///
/// // A reader with the id 0 gets all events of the log, also after a restart.
/// let body = hub.subscribe_from(Some("0"))?;
/// # drop(body);
/// # Ok(())
/// # }
/// ```
///
/// Clones share the log, and their hubs deliver the same events in the same order. The directory belongs to one `Disk`
/// at a time: a second one, in this or another process, is [refused](DiskError::Locked) until the last clone and the
/// last hub of the first are dropped. Ids are the numbers of the events, from 1 on, without holes; `0` is before every
/// event.
///
/// # Guarantees
///
/// * **No loss.** `Ok` from [`Hub::send`](crate::sse::Hub::send) means that the event is queued in this process.
///   [`flush`](Self::flush) waits until it is in the log, which is also before a reader gets it. Such events survive the
///   process, and with [`Durability::Disk`](super::Durability::Disk) a power cut.
/// * **One commit for many events.** Everything that was sent while a commit runs is in the next one: one write and one
///   sync, of all hubs and threads together, up to 8 MiB or the end of the segment.
/// * **Recovery.** Opening the log reads the last segment and truncates it after the last complete record. If a record
///   is damaged although a later commit followed it, opening fails with [`DiskError::Damaged`]: nothing that was
///   confirmed is removed silently. [`Durability::Process`](super::Durability::Process) cannot tell these cases apart
///   and truncates.
/// * **Gaps.** Old segments are removed as a whole, see [`keep_bytes`](DiskBuilder::keep_bytes). A reader that is
///   behind them gets an event `gap` with the number of missed events. So does a reader of events whose segment is
///   damaged; the file and the offset are in [`state`](Self::state).
///
/// # Failures
///
/// * **A full disk**, or no descriptors left: what was written of the commit is cut off, events wait in the
///   [queue](DiskBuilder::queue), in order, and the commit is repeated each second. A full queue makes sends fail.
/// * **Other errors** of a write, any error of a sync, and a removed directory end the log: what is not committed is
///   [given up](DiskState::given_up), and sends fail with [`SendError::Log`]. The sync is not repeated, because the
///   kernel forgets what it could not write. Streams stay open. Open the log again, which checks what the disk has.
///
/// # Memory and descriptors
///
/// Each segment that readers have used has an index in memory, of 8 bytes for each 64 KiB. Pages for readers are
/// ranges of segments as they are, with their checksums as comments: of at most 256 KiB or one event, read by at most
/// four jobs at a time. The checksums are verified before. Pages are mapped, and long ones are sent by `sendfile`, so
/// **no other program may change or truncate a segment.** The log has three descriptors open, and one for each page.
///
/// # Closing
///
/// When the last hub is closed, queued events are still committed, for at most 5 s; the rest is given up and
/// [counted](DiskState::given_up). If the runtime ends, a commit that runs is completed, and the rest is given up.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Shared,
    /// Locked during a commit, so only on the blocking pool.
    writer: Mutex<Writer>,
    /// Held by the hub that commits for all.
    turn: AsyncMutex<()>,
    reads: Semaphore,
}

impl DiskBuilder {
    /// Opens the log, or creates it with its directory. It has a job on the blocking pool that reads the last segment.
    ///
    /// # Errors
    ///
    /// See [`DiskError`]: a service should report it and exit. The directory must be on a file system with locks
    /// ([flock(2)](https://man7.org/linux/man-pages/man2/flock.2.html)).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the directory created, or the last segment truncated to its complete records.
    pub async fn open(self) -> Result<Disk, DiskError> {
        let path = self.path.clone();
        let failed = DiskError::io(&path, "start the operation");
        let opened = BlockingTask::start(move || {
            Ok(recover::open(&self).map(|opened| {
                let writer = Mutex::new(Writer::new(&opened));
                let shared = Shared::new(&self, opened);
                writer::trim(&shared);
                Inner { shared, writer, turn: AsyncMutex::new(()), reads: Semaphore::new(READS) }
            }))
        });
        let inner = opened.map_err(&failed)?.await.map_err(&failed)??;
        Ok(Disk(Arc::new(inner)))
    }
}

impl Disk {
    /// Returns a builder for the log in the directory `path`.
    pub fn builder(path: impl Into<PathBuf>) -> DiskBuilder {
        DiskBuilder::new(path.into())
    }

    /// Returns the path of the directory as given by the caller.
    pub fn path(&self) -> &Path {
        self.0.shared.directory.path()
    }

    /// Returns the current state.
    pub fn state(&self) -> DiskState {
        self.0.shared.state()
    }

    /// Waits, without a limit, until everything sent so far is committed or given up. A hub has to run, because the
    /// hubs commit. Cancel safe.
    ///
    /// # Errors
    ///
    /// Fails if the log has failed, or has given up an event since it was opened. `Ok` means that every event that was
    /// sent is in the log.
    pub async fn flush(&self) -> Result<(), DiskError> {
        let shared = &self.0.shared;
        shared.queue.flushed().await;
        shared.stats.check(self.path())
    }

    async fn serve(mut running: Running, sink: Sink) {
        let inner = Arc::clone(&running.inner);
        running.sink = Some(inner.shared.join(&sink));
        either(sink.closed(), commit(&inner)).await;
        let rest = async {
            loop {
                either(inner.shared.queue.flushed(), commit(&inner)).await;
                // A sender that found the hub open may append late.
                if running.leave_done() {
                    return;
                }
            }
        };
        let _ = timeout(GRACE, rest).await;
    }
}

/// Commits what is queued, for all hubs. Does not return; the future may be dropped at any time.
async fn commit(inner: &Arc<Inner>) {
    // If several hubs share a log, one of them commits for all.
    let _turn = inner.turn.lock().await;
    loop {
        inner.shared.queue.ready().await;
        let job = Arc::clone(inner);
        let outcome = match BlockingTask::start(move || Ok(Writer::commit(&job.writer, &job.shared))) {
            Ok(job) => job.await,
            Err(e) => Err(e),
        };
        match outcome {
            Ok(Outcome::Done) => {}
            Ok(Outcome::TryLater) => sleep(RETRY).await,
            // The runtime shuts down, and drops this future.
            Err(_) => pending().await,
        }
    }
}

/// A hub whose events are committed until it is dropped, which also happens when its runtime ends.
struct Running {
    inner: Arc<Inner>,
    sink: Option<u64>,
    left: bool,
}

impl Running {
    fn new(inner: &Arc<Inner>) -> Self {
        inner.shared.queue.enter();
        Self { inner: Arc::clone(inner), sink: None, left: false }
    }

    fn leave_done(&mut self) -> bool {
        self.left = self.inner.shared.queue.leave_done();
        self.left
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let shared = &self.inner.shared;
        if let Some(sink) = self.sink {
            shared.leave(sink);
        }
        // A hub that enters meanwhile continues with the queue.
        if !self.left
            && shared.queue.leave()
            && let Some(rest) = shared.queue.take_left()
        {
            shared.stats.given_up(rest.len());
            shared.queue.settle(rest);
        }
    }
}

impl Log for Disk {
    fn append(&self, event: Event) -> Result<(), SendError> {
        let shared = &self.0.shared;
        if let Some(failure) = shared.stats.failure() {
            return Err(SendError::Log(Box::new(failure)));
        }
        let text = event.encode(ID_LEN);
        if text.len() > EVENT_MAX {
            return Err(SendError::Log("the event is larger than 16 MiB, the maximum of the log".into()));
        }
        Ok(shared.queue.push(Encoded::new(text))?)
    }

    fn order(&self, id: &str, other: &str) -> Option<Ordering> {
        Some(parse_id(id)?.cmp(&parse_id(other)?))
    }

    fn run(self: Arc<Self>, sink: Sink) -> LogFuture<'static, ()> {
        // Created here and not at the first poll, so that earlier sends are accepted.
        Box::pin(Self::serve(Running::new(&self.0), sink))
    }

    fn replay<'a>(&'a self, after: &'a str, upto: &'a str, bytes: usize) -> LogFuture<'a, Result<Replay, ReplayError>> {
        Box::pin(async move {
            let (after, upto) = parse_id(after).zip(parse_id(upto)).ok_or(ReplayError::Unknown)?;
            let unreachable = |e| ReplayError::Unreachable(Box::new(e));
            // The semaphore is never closed.
            let _permit = self.0.reads.acquire().await;
            let inner = Arc::clone(&self.0);
            let read = BlockingTask::start(move || Ok(replay::page(&inner.shared, after, upto, bytes)));
            read.map_err(unreachable)?.await.map_err(unreachable)?
        })
    }
}
