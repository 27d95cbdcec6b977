//! The journal: everything that waits is committed with one write and one `fdatasync`.
//!
//! Two segment files take turns. A segment is written again from its beginning when a snapshot covers all its records.
//! Their space is allocated and written when the store is opened, so a commit changes no metadata of a file, and a full
//! disk does not stop it. Numbers of records are never used again: after each opening they continue far behind
//! everything that an earlier process may have written, so that nothing left by it can follow a new record.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::{collections::VecDeque, ops::Range};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

use super::record::{self, Record};
use super::stream::Stream;

/// Distance of the numbers of two processes.
pub(crate) const JUMP: u64 = 1 << 32;

/// A change that becomes visible when its record is on the disk.
#[derive(Debug)]
pub(crate) enum Change {
    /// Bytes at this range of the batch.
    Data { stream: Arc<Stream>, data: Range<usize>, close: bool },
    /// Streams whose contents are no longer needed.
    Removed(Vec<Arc<Stream>>),
}

#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: BytesMut,
    changes: Vec<Change>,
    last: u64,
}

#[derive(Debug)]
struct Queue {
    batches: VecDeque<Batch>,
    next: u64,
}

#[derive(Debug)]
pub(crate) struct Journal {
    queue: Mutex<Queue>,
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
    pub(crate) salt: u32,
    pub(crate) tasks: Tasks,
}

/// Work for the task that maintains the files.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    pub(crate) changed: Notify,
    work: Mutex<Work>,
}

#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) checkpoint: bool,
    /// Streams with a long tail in memory.
    pub(crate) long: Vec<Arc<Stream>>,
    pub(crate) removed: Vec<u64>,
}

impl Tasks {
    fn add(&self, add: impl FnOnce(&mut Work)) {
        add(&mut lock(&self.work));
        self.changed.notify_one();
    }

    pub(crate) fn take(&self) -> Work {
        std::mem::take(&mut *lock(&self.work))
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn segment_path(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("journal-{index}"))
}

impl Journal {
    pub(crate) fn new(next: u64, segment: u64, salt: u32) -> Self {
        Self {
            queue: Mutex::new(Queue { batches: VecDeque::new(), next }),
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

    pub(crate) fn set_stalled(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::Relaxed);
    }

    /// Adds a record and returns its number. The caller holds the lock of the stream or the table that the record changes, so that records
    /// are in the order of the decisions.
    pub(crate) fn push(&self, record: &Record<'_>, data: &[u8], change: impl FnOnce(Range<usize>) -> Change) -> u64 {
        let mut queue = lock(&self.queue);
        let number = queue.next;
        queue.next += 1;
        let full = |batch: &Batch| (batch.bytes.len() + data.len()) as u64 > self.segment / 4;
        if queue.batches.back().is_none_or(full) {
            queue.batches.push_back(Batch::default());
        }
        let alone = queue.batches.len() == 1;
        let batch = queue.batches.back_mut().expect("it was added");
        let first = batch.bytes.is_empty();
        record::encode(record, data, number, first, self.salt, &mut batch.bytes);
        let end = batch.bytes.len();
        batch.changes.push(change(end - data.len()..end));
        batch.last = number;
        drop(queue);
        if first && alone {
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
    pub(crate) async fn run(&self, dir: PathBuf) {
        let (mut index, mut end, mut began) = (1, u64::MAX, 0);
        let mut file = None;
        loop {
            let Some(mut batch) = self.take() else {
                self.work.notified().await;
                // Requests that are ready as well join this commit.
                tokio::task::yield_now().await;
                continue;
            };
            let mut bytes = batch.bytes.split().freeze();
            let records = bytes.clone();
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
                    let mut begun = BytesMut::with_capacity(bytes.len() + 64);
                    record::encode(&Record::Begin { next_id: 0, salt: 0 }, b"", first, true, self.salt, &mut begun);
                    begun.extend_from_slice(&bytes);
                    bytes = begun.freeze();
                    file = Some(open(&dir, index));
                    self.tasks.add(|work| work.checkpoint = true);
                }
            }
            let target = file.clone().expect("a segment was begun");
            let (at, len) = (end, bytes.len() as u64);
            let written = tokio::task::spawn_blocking(move || {
                target.write_all_at(&bytes, at)?;
                target.sync_data()
            });
            if let Err(e) = written.await.unwrap_or_else(|e| Err(io::Error::other(e))) {
                eprintln!("error: {}: {e}", segment_path(&dir, index).display());
                std::process::exit(1);
            }
            end += len;
            self.publish(batch, &records);
        }
    }

    fn take(&self) -> Option<Batch> {
        lock(&self.queue).batches.pop_front()
    }

    fn publish(&self, batch: Batch, bytes: &Bytes) {
        for change in batch.changes {
            match change {
                Change::Data { stream, data, close } => {
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

/// Creates the segments, and writes them as a whole if they have another size.
pub(crate) fn prepare(dir: &Path, segment: u64) -> io::Result<()> {
    for index in 0..2 {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(segment_path(dir, index))?;
        if file.metadata()?.len() == segment {
            continue;
        }
        file.set_len(0)?;
        let zeros = vec![0; 1 << 20];
        for at in (0..segment).step_by(zeros.len()) {
            let len = usize::try_from(segment - at).map_or(zeros.len(), |left| left.min(zeros.len()));
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

    #[tokio::test]
    async fn a_segment_is_not_written_again_before_it_is_covered() {
        let dir = tempfile::tempdir().unwrap();
        let segment = 4096;
        prepare(dir.path(), segment).unwrap();
        let journal = Arc::new(Journal::new(1, segment, 9));
        let (run, path) = (Arc::clone(&journal), dir.path().to_owned());
        let task = tokio::spawn(async move { run.run(path).await });
        let meta = Meta { id: 0, path: "/".into(), content_type: "".into(), expiry: Expiry::Never, origin: None };
        let stream = Arc::new(Stream::new(meta, None));
        let push = || {
            let change = |data| Change::Data { stream: Arc::clone(&stream), data, close: false };
            journal.push(&Record::Delete { id: 0 }, &[0; 900], change)
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
        assert!(std::fs::metadata(segment_path(dir.path(), 1)).unwrap().len() > segment);
        // The first segment is covered. The second one is still needed.
        journal.cover(last + 1);
        for _ in 0..4 {
            journal.wait(push()).await;
        }
        assert_eq!(stream.view().end, 13 * 900);
        task.abort();
    }
}
