//! Handle of a log in a directory, and the implementation of [`Log`].

use std::cmp::Ordering;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::{Instant, sleep};

use super::builder::DiskBuilder;
use super::error::DiskError;
use super::record::{EVENT_MAX, ID_LEN, Unnumbered, parse_id};
use super::shared::DiskShared;
use super::state::DiskState;
use super::writer::{Outcome, Writer};
use super::{recover, replay};
use crate::runtime::blocking::BlockingTask;
use crate::sse::SendError;
use crate::sse::event::Event;
use crate::sse::log::queue::{Queue, Queued, Running};
use crate::sse::log::{Log, LogFuture, Replay, ReplayError, Sink};

/// Time after which a commit that found no room is repeated.
const RETRY: Duration = Duration::from_secs(1);
/// How long a replay is retried if there is no free descriptor, and the time between two attempts.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
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
///   [`flush`](Self::flush) waits until it is in the log, which is also before a reader gets it. Such events survive
///   the process, and by [default](DiskBuilder::durability) a power cut.
/// * **One commit for many events.** Everything that was sent while a commit runs is in the next one: one write and one
///   sync, of all hubs and threads together, up to 8 MiB or the end of the segment.
/// * **Recovery.** Opening the log reads the last segment and truncates it after the last complete record. If a record
///   is damaged although a later commit followed it, opening fails with [`DiskError::Damaged`]: nothing that was
///   confirmed is removed silently. [`Durability::None`](crate::fs::Durability::None) cannot tell these cases apart
///   and truncates.
/// * **Ids.** An id is used again only if its event was lost: by a power cut with
///   [`Durability::None`](crate::fs::Durability::None), or because the directory was removed or replaced by an older
///   copy. A reader that reconnects with the id of a lost event gets an event `gap`, as long as the id is not used
///   again. After that it continues behind the new event with this id.
/// * **Gaps.** Old segments are removed as a whole, see [`keep_bytes`](DiskBuilder::keep_bytes). A reader that is
///   behind them gets an event `gap` with the number of missed events. So does a reader of events whose segment is
///   damaged; the file and the offset are in [`state`](Self::state).
///
/// # Failures
///
/// * **A full disk**, or no free descriptors: the written part of the commit is cut off, events wait in the
///   [queue](DiskBuilder::queue), in order, and the commit is repeated each second. A full queue makes sends fail.
/// * **Other errors** of a write, any error of a sync, and a removed directory end the log: uncommitted events are
///   [given up](DiskState::given_up), and sends fail with [`SendError::Log`]. The sync is not repeated, because the
///   kernel forgets which pages it could not write. Streams stay open. Open the log again, which checks what the disk
///   has.
/// * **No descriptors left** for a replay: it is repeated for 5 s. Then the reader gets an event `gap`.
/// * **A blocked runtime.** One hub commits for all hubs, in its runtime. If that runtime is neither run nor dropped,
///   for example between two calls of `block_on`, the sends of all hubs wait.
///
/// # Memory and descriptors
///
/// Each segment that readers have used has an index in memory, of 8 bytes for each 64 KiB. Pages for readers are
/// unchanged ranges of segments, with their checksums as comments. A page has at most 256 KiB or one event. At most
/// four jobs read pages at a time, and verify the checksums. Pages of 32 KiB and more are mapped and sent by
/// `sendfile`, so **no other program may change or truncate a segment.** The log keeps three descriptors open, and one
/// for each other segment that has mapped pages.
///
/// # Closing
///
/// When the last hub is closed, queued events are still committed, for at most 5 s; the rest is given up and
/// [counted](DiskState::given_up). If the runtime ends, a running commit is completed, and the rest is given up.
#[derive(Clone, Debug)]
pub struct Disk(Arc<DiskInner>);

#[derive(Debug)]
struct DiskInner {
    shared: DiskShared,
    /// Locked during a commit, so only on the blocking pool.
    writer: Mutex<Writer>,
    /// Held by the hub that commits for all.
    turn: AsyncMutex<()>,
    reads: Arc<Semaphore>,
}

impl DiskBuilder {
    /// Opens the log, or creates it with its directory. A job on the blocking pool reads the last segment.
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
                let mut writer = Writer::new(&opened);
                let shared = DiskShared::new(&self, opened);
                writer.trim(&shared);
                DiskInner {
                    shared,
                    writer: Mutex::new(writer),
                    turn: AsyncMutex::new(()),
                    reads: Arc::new(Semaphore::new(READS)),
                }
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
}

/// Commits what is queued, for all hubs. Does not return; the future may be dropped at any time.
async fn commit(inner: &Arc<DiskInner>) {
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

impl Queued for DiskInner {
    type Item = Unnumbered;

    fn queue(&self) -> &Queue<Unnumbered> {
        &self.shared.queue
    }

    fn give_up_left(&self) {
        self.shared.give_up_left();
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
        Ok(shared.queue.push(Unnumbered::new(text))?)
    }

    fn order(&self, id: &str, other: &str) -> Option<Ordering> {
        // An id that is not assigned yet belongs to a lost event. Events are delivered after their commit, so no hub
        // has a reader that is ahead of it.
        let id = parse_id(id).filter(|&id| id < self.0.shared.segments().next())?;
        Some(id.cmp(&parse_id(other)?))
    }

    fn run(self: Arc<Self>, sink: Sink) -> LogFuture<'static, ()> {
        // Created here and not at the first poll, so that sends before the first poll are accepted, and readers do not
        // start behind them.
        let hub = Running::new(&self.0);
        self.0.shared.join(sink.clone());
        Box::pin(async move { hub.serve(sink.closed(), || commit(&self.0)).await })
    }

    fn replay<'a>(&'a self, after: &'a str, upto: &'a str, bytes: usize) -> LogFuture<'a, Result<Replay, ReplayError>> {
        Box::pin(async move {
            let (after, upto) = parse_id(after).zip(parse_id(upto)).ok_or(ReplayError::Unknown)?;
            let unreachable = |e| ReplayError::Unreachable(Box::new(e));
            let mut until = None;
            loop {
                let (inner, reads) = (Arc::clone(&self.0), Arc::clone(&self.0.reads));
                // The semaphore is never closed. The job owns the permit, because the job continues if this future is
                // dropped.
                let permit = reads.acquire_owned().await;
                let read = BlockingTask::start(move || {
                    let _permit = permit;
                    Ok(replay::page(&inner.shared, after, upto, bytes))
                });
                match read.map_err(unreachable)?.await.map_err(unreachable)? {
                    Ok(page) => return page.ok_or(ReplayError::Unknown),
                    Err(e) if e.is_no_descriptor() && Instant::now() < *until.get_or_insert_with(patience) => {
                        sleep(PAUSE).await;
                    }
                    Err(e) => {
                        self.0.shared.stats.replay_failed(&e);
                        return Err(ReplayError::Unreachable(Box::new(e)));
                    }
                }
            }
        })
    }
}

fn patience() -> Instant {
    Instant::now() + PATIENCE
}

#[cfg(test)]
mod tests;
