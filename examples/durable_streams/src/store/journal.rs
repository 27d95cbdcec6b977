//! The journal: everything that waits is committed with one write and one `fdatasync`.
//!
//! Two segment files take turns. A segment is written again from its beginning when a snapshot covers all its records.
//! Their space is allocated and written when the store is opened, so a commit changes no metadata of a file, and a full
//! disk does not stop it. A quarter of a segment is added to it for records that a checkpoint waits for. Numbers of records are never used again: after each opening they continue far behind
//! everything that an earlier process may have written, so that nothing left by it can follow a new record.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::checkpoint::Tasks;
use super::record::{self, Record};
use super::segment_path;
use super::stream::Stream;

/// Distance of the numbers of two processes.
pub(crate) const JUMP: u64 = 1 << 32;

/// A change that becomes visible when its record is on the disk.
#[derive(Debug)]
pub(crate) enum Change {
    /// Bytes at this range of the batch, which leave the queue with it.
    Data { stream: Arc<Stream>, data: Range<usize>, close: bool, _room: Option<Room> },
    /// Streams whose contents are no longer needed.
    Removed(Vec<Arc<Stream>>),
}

/// A part of the queue.
pub(crate) type Room = OwnedSemaphorePermit;

/// Where commits continue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) index: usize,
    pub(crate) end: u64,
    /// Number of the first record of the segment.
    pub(crate) began: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: BytesMut,
    changes: Vec<Change>,
    last: u64,
}

#[derive(Debug)]
struct Queue {
    batch: Batch,
    next: u64,
}

#[derive(Debug)]
pub(crate) struct Journal {
    queue: Mutex<Queue>,
    room: Arc<Semaphore>,
    waiters: Mutex<Vec<(u64, Waker)>>,
    durable: AtomicU64,
    work: Notify,
    /// The first number that the snapshot does not cover.
    covered: AtomicU64,
    /// The number that a checkpoint waits for.
    needed: AtomicU64,
    freed: Notify,
    /// Set while a checkpoint fails, in general because the disk is full.
    stalled: AtomicBool,
    segment: u64,
    pub(crate) salt: u64,
    pub(crate) tasks: Tasks,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Journal {
    pub(crate) fn new(next: u64, segment: u64, salt: u64) -> Self {
        Self {
            queue: Mutex::new(Queue { batch: Batch::default(), next }),
            room: Arc::new(Semaphore::new(room_of(segment) as usize)),
            waiters: Mutex::default(),
            durable: AtomicU64::new(next - 1),
            work: Notify::new(),
            covered: AtomicU64::new(next),
            needed: AtomicU64::new(0),
            freed: Notify::new(),
            stalled: AtomicBool::new(false),
            segment,
            salt,
            tasks: Tasks::default(),
        }
    }

    pub(crate) fn covered(&self) -> u64 {
        self.covered.load(Ordering::Acquire)
    }

    /// Returns the number that the next record will have.
    pub(crate) fn next(&self) -> u64 {
        lock(&self.queue).next
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Refuses appends after a checkpoint that has failed.
    pub(crate) fn refuse(&self, error: &io::Error) {
        if !self.stalled.swap(true, Ordering::Relaxed) {
            eprintln!("error: {error}; appends are refused until this succeeds");
        }
    }

    pub(crate) fn resume(&self) {
        self.stalled.store(false, Ordering::Relaxed);
    }

    /// Waits until the queue has room for so many bytes. One record may have more than the queue.
    pub(crate) async fn room(&self, bytes: usize) -> Room {
        let permits = u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX).min(room_of(self.segment));
        Arc::clone(&self.room).acquire_many_owned(permits).await.expect("never closed")
    }

    /// Adds a record and returns its number. The caller holds the lock of the stream or the table that the record changes, so that records
    /// are in the order of the decisions.
    pub(crate) fn push(&self, record: &Record<'_>, data: &[u8], change: impl FnOnce(Range<usize>) -> Change) -> u64 {
        let mut queue = lock(&self.queue);
        let number = queue.next;
        queue.next += 1;
        let batch = &mut queue.batch;
        let first = batch.bytes.is_empty();
        record::encode(record, data, number, first, self.salt, &mut batch.bytes);
        let end = batch.bytes.len();
        batch.changes.push(change(end - data.len()..end));
        batch.last = number;
        drop(queue);
        if first {
            self.work.notify_one();
        }
        number
    }

    /// Waits until a record is on the disk.
    pub(crate) fn wait(&self, number: u64) -> Durable<'_> {
        Durable { journal: self, number }
    }

    /// As [`wait`](Self::wait), also if all segments are full.
    pub(crate) async fn need(&self, number: u64) {
        self.needed.store(number, Ordering::Release);
        self.freed.notify_one();
        self.wait(number).await;
    }

    /// Lets the segments be written again whose records are all before `number`.
    pub(crate) fn cover(&self, number: u64) {
        self.covered.store(number, Ordering::Release);
        self.freed.notify_one();
    }

    /// Commits until the process ends.
    ///
    /// A failed write or sync ends the process: the kernel may treat pages as clean that it could not write, so only
    /// what the next process reads from the disk is known.
    pub(crate) async fn run(&self, dir: PathBuf, position: Position) {
        let Position { mut index, mut end, mut began } = position;
        let mut file = None;
        loop {
            let Some(mut batch) = self.take() else {
                self.work.notified().await;
                // Requests that are ready as well join this commit.
                tokio::task::yield_now().await;
                continue;
            };
            let bytes = batch.bytes.split().freeze();
            let mut head = BytesMut::new();
            if end.saturating_add(bytes.len() as u64) > self.segment {
                // The other segment is the older one: a snapshot must cover its records. A checkpoint that waits for this
                // commit would cover it, so then the segment becomes longer than it should.
                let first = batch.last + 1 - batch.changes.len() as u64;
                while self.covered() < began && self.needed.load(Ordering::Acquire) < first {
                    self.freed.notified().await;
                }
                if self.covered() >= began {
                    index = 1 - index;
                    (end, began) = (0, first);
                    record::encode(&BEGIN, b"", first, true, self.salt, &mut head);
                    file = None;
                    self.tasks.add(|work| work.checkpoint = true);
                }
            }
            let target = Arc::clone(file.get_or_insert_with(|| open(&dir, index)));
            let (at, records) = (end + head.len() as u64, bytes.clone());
            let written = tokio::task::spawn_blocking(move || {
                target.write_all_at(&head, at - head.len() as u64)?;
                target.write_all_at(&records, at)?;
                target.sync_data()
            });
            if let Err(e) = written.await.unwrap_or_else(|e| Err(io::Error::other(e))) {
                eprintln!("error: {}: {e}", segment_path(&dir, index).display());
                std::process::exit(1);
            }
            end = at + bytes.len() as u64;
            self.publish(batch, &bytes);
        }
    }

    fn take(&self) -> Option<Batch> {
        let batch = std::mem::take(&mut lock(&self.queue).batch);
        (!batch.changes.is_empty()).then_some(batch)
    }

    fn publish(&self, batch: Batch, bytes: &Bytes) {
        for change in batch.changes {
            match change {
                Change::Data { stream, data, close, .. } => {
                    if stream.publish(&bytes[data], close) {
                        self.tasks.add(|work| work.long.push(stream));
                    }
                }
                Change::Removed(streams) => {
                    streams.iter().for_each(|stream| stream.purge());
                    self.tasks.add(|work| work.removed.extend(streams.iter().map(|stream| stream.meta.id)));
                }
            }
        }
        self.durable.store(batch.last, Ordering::Release);
        let ready: Vec<_> = lock(&self.waiters).extract_if(.., |(number, _)| *number <= batch.last).collect();
        ready.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

fn open(dir: &Path, index: usize) -> Arc<File> {
    let path = segment_path(dir, index);
    match OpenOptions::new().write(true).open(&path) {
        Ok(file) => Arc::new(file),
        Err(e) => {
            eprintln!("error: {}: {e}", path.display());
            std::process::exit(1);
        }
    }
}

/// The first record of a segment, and of what a process adds to one.
const BEGIN: Record<'static> = Record::Begin { next_id: 0, salt: 0 };

impl Position {
    /// Commits begin with a new segment.
    pub(crate) const NEW: Self = Self { index: 1, end: u64::MAX, began: 0 };

    /// Begins to write behind the records of an earlier process, with the next number.
    pub(crate) fn resume(mut self, dir: &Path, journal: &Journal) -> io::Result<Self> {
        let mut begin = BytesMut::new();
        record::encode(&BEGIN, b"", journal.next(), true, journal.salt, &mut begin);
        let file = OpenOptions::new().write(true).open(segment_path(dir, self.index))?;
        file.write_all_at(&begin, self.end)?;
        file.sync_data()?;
        self.end += begin.len() as u64;
        Ok(self)
    }
}

/// Size of the queue in KiB.
fn room_of(segment: u64) -> u32 {
    u32::try_from(segment / 8 / 1024).unwrap_or(u32::MAX).max(1)
}

/// Returns the size of the file of a segment.
pub(crate) fn file_len(segment: u64) -> u64 {
    segment + segment / 4
}

/// Creates the segments, and writes them as a whole if they have another size.
pub(crate) fn prepare(dir: &Path, segment: u64) -> io::Result<()> {
    for index in 0..2 {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(segment_path(dir, index))?;
        let len = file_len(segment);
        if file.metadata()?.len() == len {
            continue;
        }
        file.set_len(0)?;
        let zeros = vec![0; 1 << 20];
        for at in (0..len).step_by(zeros.len()) {
            let len = usize::try_from(len - at).map_or(zeros.len(), |left| left.min(zeros.len()));
            file.write_all_at(&zeros[..len], at)?;
        }
        file.sync_all()?;
    }
    File::open(dir)?.sync_all()
}

/// See [`Journal::wait`].
#[must_use = "futures do nothing unless awaited"]
pub(crate) struct Durable<'a> {
    journal: &'a Journal,
    number: u64,
}

impl Future for Durable<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.journal.durable() >= self.number {
            return Poll::Ready(());
        }
        let mut waiters = lock(&self.journal.waiters);
        // A commit that ends now takes its waiters after it has told their number.
        if self.journal.durable() >= self.number {
            return Poll::Ready(());
        }
        waiters.push((self.number, cx.waker().clone()));
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::record::{Expiry, Meta};
    use super::*;
    use futures_util::FutureExt;

    fn stream() -> Arc<Stream> {
        let meta = Meta { id: 0, path: "/".into(), content_type: "".into(), expiry: Expiry::Never, origin: None };
        Arc::new(Stream::new(meta, None))
    }

    #[tokio::test]
    async fn the_queue_has_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let segment = 8 << 20;
        prepare(dir.path(), segment).unwrap();
        let journal = Arc::new(Journal::new(1, segment, 9));
        let stream = stream();
        let data = vec![0; 200 << 10];
        let mut queued = 0;
        // Requests that are given up keep their place.
        while let Some(room) = journal.room(data.len()).now_or_never().filter(|_| queued < 99) {
            let change = |data| Change::Data { stream: Arc::clone(&stream), data, close: false, _room: Some(room) };
            queued = journal.push(&Record::Delete { id: 0 }, &data, change);
        }
        assert_eq!(queued, 5, "an eighth of a segment");
        let (run, path) = (Arc::clone(&journal), dir.path().to_owned());
        let task = tokio::spawn(async move { run.run(path, Position::NEW).await });
        journal.wait(queued).await;
        assert!(journal.room(1 << 30).now_or_never().is_some(), "longer than the queue, which is empty");
        task.abort();
    }

    #[tokio::test]
    async fn a_segment_is_not_written_again_before_it_is_covered() {
        let dir = tempfile::tempdir().unwrap();
        let segment = 4096;
        prepare(dir.path(), segment).unwrap();
        let journal = Arc::new(Journal::new(1, segment, 9));
        let (run, path) = (Arc::clone(&journal), dir.path().to_owned());
        let task = tokio::spawn(async move { run.run(path, Position::NEW).await });
        let stream = stream();
        let push = || {
            let change = |data| Change::Data { stream: Arc::clone(&stream), data, close: false, _room: None };
            journal.push(&Record::Delete { id: 0 }, &[7; 900], change)
        };
        let mut last = 0;
        for _ in 0..8 {
            last = push();
            journal.wait(last).await;
        }
        let refused = tokio::time::timeout(Duration::from_millis(200), journal.wait(push())).await;
        assert!(refused.is_err(), "both segments are full");
        assert_eq!(journal.durable(), last);
        // A checkpoint that waits for this record gets it.
        let given = tokio::time::timeout(Duration::from_secs(10), journal.need(last + 1)).await;
        assert!(given.is_ok(), "the checkpoint and the commit wait for each other");
        let last_segment = std::fs::read(segment_path(dir.path(), 1)).unwrap();
        assert_eq!(last_segment.len() as u64, file_len(segment), "the file has not grown");
        assert!(last_segment[segment as usize..].iter().any(|&byte| byte != 0), "the segment is longer");
        // The first segment is covered. The second one is still needed.
        journal.cover(last + 1);
        for _ in 0..4 {
            journal.wait(push()).await;
        }
        assert_eq!(stream.view().end, 13 * 900);
        task.abort();
    }
}
