//! The journal: everything that waits is committed with one write and one `fdatasync`.
//!
//! Segment files take turns. A segment is written again from its beginning when a snapshot covers all its records.
//! Their space is allocated and written when the store is opened, so a commit changes no metadata of a file, and a full
//! disk does not stop it. A commit never waits for a checkpoint: if all segments are in use, no more appends get room,
//! and those that have it fit in the quarter of a segment that is behind each. Numbers of records are never used again:
//! after each opening they continue far behind everything that an earlier process may have written, so that nothing
//! left by it can follow a new record.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::record::{self, Record};
use super::segment_path;
use super::stream::Stream;

/// Distance of the numbers of two processes.
pub(crate) const JUMP: u64 = 1 << 32;
pub(crate) const SEGMENTS: usize = 4;
/// The first record of a segment, and of what a process adds to one.
const BEGIN: Record<'static> = Record::Begin { next_id: 0, salt: 0 };

/// A change that becomes visible when its record is on the disk.
#[derive(Debug)]
pub(crate) enum Change {
    /// Bytes at this range of the batch, which leave the queue with it.
    Data { stream: Arc<Stream>, data: Range<usize>, close: bool, _room: Room },
    /// Streams whose contents are no longer needed.
    Removed(Vec<Arc<Stream>>),
}

/// A part of the queue.
pub(crate) type Room = OwnedSemaphorePermit;

#[derive(Debug, Default)]
struct Queue {
    bytes: BytesMut,
    changes: Vec<Change>,
    next: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// Each with the number of its first record. Commits write the last one.
    pub(crate) used: VecDeque<(usize, u64)>,
    pub(crate) free: VecDeque<usize>,
}

/// Whether appends get room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// When a checkpoint has freed a segment.
    Full,
    /// Not while checkpoints fail, in general because the disk is full.
    Stalled,
}

/// Work for the task that maintains the files.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Streams with a long tail in memory.
    pub(crate) long: Vec<Arc<Stream>>,
    pub(crate) removed: Vec<u64>,
}

#[derive(Debug)]
pub(crate) struct Journal {
    queue: Mutex<Queue>,
    queued: Notify,
    room: Arc<Semaphore>,
    gate: watch::Sender<Gate>,
    waiting: Mutex<Vec<(u64, oneshot::Sender<()>)>>,
    durable: AtomicU64,
    segments: Mutex<Segments>,
    segment: u64,
    pub(crate) salt: u64,
    pub(crate) work: Mutex<Work>,
    pub(crate) has_work: Notify,
    pub(crate) watcher: OnceLock<Arc<dyn Watch>>,
}

/// Hears of streams when they change on the disk, in order. Must not wait.
pub(crate) trait Watch: std::fmt::Debug + Send + Sync {
    /// The stream was created, or has more bytes.
    fn changed(&self, stream: &Stream);
    /// The stream was deleted, and nothing needs it.
    fn removed(&self, stream: &Stream);
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Journal {
    pub(crate) fn new(next: u64, segment: u64, salt: u64) -> Self {
        let free = (0..SEGMENTS).collect();
        Self {
            queue: Mutex::new(Queue { next, ..Queue::default() }),
            queued: Notify::new(),
            room: Arc::new(Semaphore::new(room_of(segment) as usize)),
            gate: watch::Sender::new(Gate::Open),
            waiting: Mutex::default(),
            durable: AtomicU64::new(next - 1),
            segments: Mutex::new(Segments { used: VecDeque::new(), free }),
            segment,
            salt,
            work: Mutex::default(),
            has_work: Notify::new(),
            watcher: OnceLock::new(),
        }
    }

    /// Returns the number that the next record will have.
    pub(crate) fn next(&self) -> u64 {
        lock(&self.queue).next
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(crate) fn is_stalled(&self) -> bool {
        *self.gate.borrow() == Gate::Stalled
    }

    /// Refuses appends after a checkpoint that has failed.
    pub(crate) fn refuse(&self, error: &io::Error) {
        if self.gate.send_replace(Gate::Stalled) != Gate::Stalled {
            eprintln!("error: {error}; appends are refused until this succeeds");
        }
    }

    /// Gives room again, after a checkpoint.
    pub(crate) fn resume(&self) {
        let is_free = !lock(&self.segments).free.is_empty();
        self.gate.send_if_modified(|gate| {
            let opens = *gate == Gate::Stalled || (*gate == Gate::Full && is_free);
            *gate = if opens { Gate::Open } else { *gate };
            opens
        });
    }

    /// Waits until the queue has room for so many bytes. One record may have more than the queue. Returns `None` if the
    /// disk is full.
    pub(crate) async fn room(&self, bytes: usize) -> Option<Room> {
        let permits = u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX).min(room_of(self.segment));
        loop {
            let room = Arc::clone(&self.room).acquire_many_owned(permits).await.expect("never closed");
            match *self.gate.borrow() {
                Gate::Open => return Some(room),
                Gate::Stalled => return None,
                Gate::Full => drop(room),
            }
            let _ = self.gate.subscribe().wait_for(|gate| *gate != Gate::Full).await;
        }
    }

    /// Adds a record and returns its number. The caller holds the lock of the stream or the table that the record
    /// changes, so that records are in the order of the decisions.
    pub(crate) fn push(&self, record: &Record<'_>, data: &[u8], change: impl FnOnce(Range<usize>) -> Change) -> u64 {
        let mut queue = lock(&self.queue);
        let (number, is_first) = (queue.next, queue.changes.is_empty());
        queue.next += 1;
        record::encode(record, data, number, is_first, self.salt, &mut queue.bytes);
        let end = queue.bytes.len();
        queue.changes.push(change(end - data.len()..end));
        drop(queue);
        if is_first {
            self.queued.notify_one();
        }
        number
    }

    /// Waits until a record is on the disk.
    pub(crate) async fn wait(&self, number: u64) {
        let (done, waits) = oneshot::channel();
        {
            let mut waiting = lock(&self.waiting);
            // A commit that ends now tells its waiters after it has told their number.
            if self.durable() >= number {
                return;
            }
            waiting.push((number, done));
        }
        let _ = waits.await;
    }

    /// Returns a number so that a segment is free when all records before it are in files; 0 if one is.
    pub(crate) fn due(&self) -> u64 {
        let Segments { used, free } = &*lock(&self.segments);
        used.get(1).filter(|_| free.is_empty()).map_or(0, |&(_, began)| began)
    }

    /// Lets the segments be written again whose records are all before `number`.
    pub(crate) fn cover(&self, number: u64) {
        let Segments { used, free } = &mut *lock(&self.segments);
        while used.get(1).is_some_and(|&(_, began)| began <= number) {
            free.extend(used.pop_front().map(|(index, _)| index));
        }
    }

    /// Begins a segment, and tells the other task if it was the last one. Returns `None` if none is free.
    fn begin(&self, first: u64) -> Option<()> {
        let Segments { used, free } = &mut *lock(&self.segments);
        let next = free.pop_front();
        used.extend(next.map(|index| (index, first)));
        if free.is_empty() {
            self.has_work.notify_one();
        }
        if next.is_none() {
            // Nothing waits for this.
            self.gate.send_if_modified(|gate| {
                *gate = if *gate == Gate::Open { Gate::Full } else { *gate };
                false
            });
        }
        next.map(drop)
    }

    /// Commits until the process ends, from the `end` of the last segment on.
    ///
    /// A failed write or sync ends the process: the kernel may treat pages as clean that it could not write, so only
    /// what the next process reads from the disk is known.
    pub(crate) async fn run(&self, dir: PathBuf, mut end: u64) {
        let mut file = None;
        loop {
            let (mut records, changes, next) = {
                let mut queue = lock(&self.queue);
                (queue.bytes.split(), std::mem::take(&mut queue.changes), queue.next)
            };
            if changes.is_empty() {
                self.queued.notified().await;
                // Requests that are ready as well join this commit.
                tokio::task::yield_now().await;
                continue;
            }
            let first = next - changes.len() as u64;
            let mut head = BytesMut::new();
            if end.saturating_add(records.len() as u64) > self.segment && self.begin(first).is_some() {
                record::encode(&BEGIN, b"", first, true, self.salt, &mut head);
                (end, file) = (0, None);
            }
            let path =
                lock(&self.segments).used.back().map(|(index, _)| segment_path(&dir, *index)).expect("one is used");
            let target: File = match file.take() {
                Some(file) => file,
                None => OpenOptions::new().write(true).open(&path).unwrap_or_else(|e| fail(&path, &e)),
            };
            let written = tokio::task::spawn_blocking(move || {
                target.write_all_at(&head, end)?;
                end += head.len() as u64;
                target.write_all_at(&records, end)?;
                target.sync_data()?;
                Ok((target, end + records.len() as u64, records.split().freeze()))
            });
            let written = written.await.unwrap_or_else(|e| Err(io::Error::other(e)));
            let (target, ended, bytes) = written.unwrap_or_else(|e| fail(&path, &e));
            (file, end) = (Some(target), ended);
            self.publish(first, changes, &bytes);
        }
    }

    fn publish(&self, first: u64, changes: Vec<Change>, bytes: &Bytes) {
        let mut next = first;
        let watcher = self.watcher.get();
        for change in changes {
            match change {
                Change::Data { stream, data, close, .. } => {
                    let is_long = stream.publish(&bytes[data], close, next);
                    watcher.inspect(|watcher| watcher.changed(&stream));
                    if is_long {
                        lock(&self.work).long.push(stream);
                        self.has_work.notify_one();
                    }
                }
                Change::Removed(streams) => {
                    for stream in &streams {
                        stream.purge();
                        watcher.inspect(|watcher| watcher.removed(stream));
                    }
                    lock(&self.work).removed.extend(streams.iter().map(|stream| stream.meta.id));
                    self.has_work.notify_one();
                }
            }
            next += 1;
        }
        self.durable.store(next - 1, Ordering::Release);
        // A dropped sender wakes its receiver.
        lock(&self.waiting).retain(|(number, _)| *number >= next);
    }

    /// Continues a segment of an earlier process behind its records, and returns its end.
    pub(crate) fn continue_in(&self, dir: &Path, mut used: VecDeque<(usize, u64)>, end: u64) -> io::Result<u64> {
        let Some(&mut (index, _)) = used.back_mut() else { return Err(io::ErrorKind::NotFound.into()) };
        let mut begin = BytesMut::new();
        record::encode(&BEGIN, b"", self.next(), true, self.salt, &mut begin);
        let file = OpenOptions::new().write(true).open(segment_path(dir, index))?;
        file.write_all_at(&begin, end)?;
        file.sync_data()?;
        let free = (0..SEGMENTS).filter(|free| used.iter().all(|(index, _)| index != free)).collect();
        *lock(&self.segments) = Segments { used, free };
        Ok(end + begin.len() as u64)
    }
}

/// Ends the process.
pub(crate) fn fail<T>(path: &Path, error: &io::Error) -> T {
    eprintln!("error: {}: {error}", path.display());
    std::process::exit(1)
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
    let (len, zeros) = (file_len(segment), vec![0; 64 << 10]);
    for index in 0..SEGMENTS {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(segment_path(dir, index))?;
        if file.metadata()?.len() != len {
            file.set_len(0)?;
            for at in (0..len).step_by(zeros.len()) {
                file.write_all_at(&zeros[..zeros.len().min((len - at) as usize)], at)?;
            }
            file.sync_all()?;
        }
    }
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests;
