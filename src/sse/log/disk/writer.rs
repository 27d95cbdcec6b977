//! Writer: commits all waiting events with one write and one sync. **Waits for the disk.**
//!
//! ```text
//!  queue ─▶ batch ─▶ records ─write─▶ segment ─fdatasync─▶ confirmed: delivered to the hubs
//!             ▲                 └─▶ no space: the write is cut off, and the batch waits
//!             └─────────────────────┘     └─▶ other errors: cut off, and the log has failed
//! ```
//!
//! A commit is a job with plain calls, not a chain of the ring: it has to end once it has begun. The future of a chain
//! may be dropped with its runtime. The outcome of a write is then unknown, but clones of the log in other runtimes
//! continue.
//!
//! A failed sync is never repeated. The kernel marks the pages that it could not write as clean, so a second sync
//! succeeds without them.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;

use super::directory::Kind;
use super::error::DiskError;
use super::index::Index;
use super::record::{self, Unnumbered};
use super::recover::Opened;
use super::segments::{Reading, Segment};
use super::shared::DiskShared;
use crate::fs::Durability;
use crate::sse::event::finish;
use crate::sse::log::queue;
use crate::sys::fd::AsFd;
use crate::sys::{call, file};

/// Maximum size of a commit; a larger event is committed alone.
const COMMIT: u64 = 8 << 20;
/// Capacity that the buffer of the records keeps.
const KEPT: usize = 256 << 10;

type Append = queue::Append<Unnumbered>;

/// The work that is left after a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// There is no room for the waiting events.
    TryLater,
}

/// Error of a commit. Nothing of it is in the segment.
#[derive(Debug)]
enum CommitFailure {
    /// The disk is full, or the process has no descriptors left: the commit may be repeated.
    NoRoom(DiskError),
    Fatal(DiskError),
}

/// The segment that is written.
#[derive(Debug)]
pub(super) struct Writer {
    file: Arc<File>,
    first: u64,
    /// Length of its committed records.
    len: u64,
    next: u64,
    begun: SystemTime,
    reading: Arc<Reading>,
    buf: Vec<u8>,
    /// First events of the segments that are no longer in the log and could not be removed.
    left: Vec<u64>,
}

impl Writer {
    pub(super) fn new(opened: &Opened) -> Self {
        let Opened { segments, file, .. } = opened;
        let (file, next, last) = (Arc::clone(file), segments.next(), segments.last());
        let (first, len, reading) = (last.first, last.len, Arc::clone(&last.reading));
        // The start time of a segment with events is not known. The first commit begins a new segment if segments are
        // removed by age.
        let begun = if len > 0 { SystemTime::UNIX_EPOCH } else { SystemTime::now() };
        Self { file, first, len, next, begun, reading, buf: Vec::new(), left: Vec::new() }
    }

    /// Commits the events in the queue, up to the end of the segment.
    pub(super) fn commit(writer: &Mutex<Self>, shared: &DiskShared) -> Outcome {
        let Ok(mut writer) = writer.lock() else {
            // A commit has panicked, so the contents of the segment are unknown.
            let source = Arc::new(io::Error::other("a commit has panicked"));
            let path = shared.directory.path().to_owned();
            return give_up(shared, Vec::new(), DiskError::Io { path, step: "commit", source });
        };
        if let Some(failure) = shared.stats.failure() {
            return give_up(shared, Vec::new(), failure);
        }
        let mut batch = match writer.take(shared) {
            Ok(batch) => batch,
            Err(e) => return retry_or_fail(shared, Vec::new(), e),
        };
        if batch.is_empty() {
            return Outcome::Done;
        }
        if let Err(e) = writer.write(shared, &mut batch) {
            return retry_or_fail(shared, batch, e);
        }
        let (first, now) = (writer.next, SystemTime::now());
        writer.next += batch.len() as u64;
        let removed = {
            let mut segments = shared.segments();
            segments.committed(writer.buf.len() as u64, writer.next, now);
            segments.trim(&shared.keep, now)
        };
        writer.len += writer.buf.len() as u64;
        writer.buf.clear();
        writer.buf.shrink_to(KEPT);
        shared.stats.committed(batch.len());
        let texts = batch.iter_mut().map(|append| Bytes::from(std::mem::take(&mut append.item.text)));
        shared.deliver(first, texts);
        shared.queue.settle(batch);
        writer.remove(shared, removed);
        Outcome::Done
    }

    /// Takes a batch that fits into the segment, and begins a new segment if none does.
    fn take(&mut self, shared: &DiskShared) -> Result<Vec<Append>, CommitFailure> {
        let Some(first) = shared.queue.first(Unnumbered::record_max) else { return Ok(Vec::new()) };
        let age = || SystemTime::now().duration_since(self.begun).unwrap_or_default();
        let is_old = || shared.keep.age.is_some_and(|most| age() > most);
        if self.len > 0 && (self.len + first > shared.segment_bytes || is_old()) {
            self.begin_segment(shared)?;
        }
        let room = shared.segment_bytes.saturating_sub(self.len).min(COMMIT);
        // A segment without records has room for one of any length.
        let mut room = room.max(first);
        Ok(shared.queue.take(|event| {
            let rest = room.checked_sub(event.record_max());
            room = rest.unwrap_or_default();
            rest.is_some()
        }))
    }

    /// Begins a new segment. The last one is complete and, if commits are synced, on the disk.
    fn begin_segment(&mut self, shared: &DiskShared) -> Result<(), CommitFailure> {
        let directory = &shared.directory;
        let file = directory.create(self.next, Kind::Events);
        let file = file
            .map_err(|e| CommitFailure::before_sync(directory.failed(self.next, Kind::Events, "create the file")(e)))?;
        if shared.durability != Durability::None {
            directory.sync().map_err(CommitFailure::Fatal)?;
        }
        if let Some(index) = &*self.reading.index() {
            save(shared, self.first, self.len, index);
        }
        let (reading, now) = (Reading::new(Index::default(), &file), SystemTime::now());
        shared.segments().add(Segment { first: self.next, len: 0, changed: now, reading: Arc::clone(&reading) });
        (self.file, self.reading) = (file, reading);
        (self.first, self.len, self.begun) = (self.next, 0, now);
        Ok(())
    }

    /// Writes the records of a batch to the end of the segment, and syncs them. On error the segment is as before.
    fn write(&mut self, shared: &DiskShared, batch: &mut [Append]) -> Result<(), CommitFailure> {
        self.buf.clear();
        for (n, (id, append)) in (self.next..).zip(&mut *batch).enumerate() {
            let Unnumbered { text, fields } = &mut append.item;
            text.truncate(*fields);
            finish(text, &id);
            self.buf.extend_from_slice(&record::head(text, n == 0));
            self.buf.extend_from_slice(text);
        }
        self.put(shared).inspect_err(|_| self.buf.clear())?;
        let mut index = self.reading.index();
        let mut offset = self.len;
        for (id, append) in (self.next..).zip(&*batch) {
            index.get_or_insert_default().add(id - self.first, offset);
            offset += (record::HEAD + append.item.text.len()) as u64;
        }
        Ok(())
    }

    fn put(&self, shared: &DiskShared) -> Result<(), CommitFailure> {
        let failed = |step| shared.directory.failed(self.first, Kind::Events, step);
        let mut written = 0;
        while written < self.buf.len() {
            let rest = [IoSlice::new(&self.buf[written..])];
            match file::write_at(self.file.as_fd(), &rest, self.len + written as u64) {
                Ok(n) => written += n,
                Err(e) => {
                    let failure = CommitFailure::before_sync(failed("write")(e));
                    self.cut().map_err(failed("set the length")).map_err(CommitFailure::Fatal)?;
                    return Err(failure);
                }
            }
        }
        if shared.durability != Durability::None
            && let Err(e) = file::sync_data(self.file.as_fd())
        {
            // Cut off, so that the next opening does not treat pages that could not be written as durable.
            let _ = self.cut();
            return Err(CommitFailure::Fatal(failed("sync the file")(e)));
        }
        // Without a name, the segment is lost when it is closed.
        match call::status(self.file.as_fd()) {
            Ok(found) if found.stx_nlink > 0 => Ok(()),
            Ok(_) => Err(CommitFailure::Fatal(DiskError::Removed { path: shared.directory.path().to_owned() })),
            Err(e) => Err(CommitFailure::Fatal(failed("look at the file")(e))),
        }
    }

    fn cut(&self) -> io::Result<()> {
        file::set_len(self.file.as_fd(), self.len)
    }

    /// Removes the segments that need not be kept.
    pub(super) fn trim(&mut self, shared: &DiskShared) {
        let removed = shared.segments().trim(&shared.keep, SystemTime::now());
        self.remove(shared, removed);
    }

    /// Removes segments, and tries failed removals again. A segment that cannot be removed is in the log again when it
    /// is opened.
    fn remove(&mut self, shared: &DiskShared, firsts: Vec<u64>) {
        if firsts.is_empty() {
            return;
        }
        let mut failed = None;
        self.left.extend(firsts);
        self.left.retain(|&first| match shared.directory.remove(first, Kind::Events) {
            Ok(()) => {
                let _ = shared.directory.remove(first, Kind::Index);
                shared.stats.removed();
                false
            }
            Err(e) => {
                failed.get_or_insert(shared.directory.failed(first, Kind::Events, "remove the file")(e));
                true
            }
        });
        shared.stats.not_removed(failed);
    }
}

impl CommitFailure {
    /// For the error of a call before the sync whose effect was undone.
    fn before_sync(error: DiskError) -> Self {
        let repeats = error.is_no_space() || error.is_no_descriptor();
        if repeats { Self::NoRoom(error) } else { Self::Fatal(error) }
    }
}

fn retry_or_fail(shared: &DiskShared, batch: Vec<Append>, failure: CommitFailure) -> Outcome {
    match failure {
        CommitFailure::Fatal(error) => give_up(shared, batch, error),
        CommitFailure::NoRoom(error) => {
            shared.queue.put_back(batch);
            shared.stats.full(&error);
            // The last hub may have left meanwhile.
            shared.give_up_left();
            Outcome::TryLater
        }
    }
}

/// Ends the log and gives up the waiting events.
fn give_up(shared: &DiskShared, mut batch: Vec<Append>, error: DiskError) -> Outcome {
    shared.stats.fail(error);
    batch.extend(shared.queue.take(|_| true));
    shared.stats.given_up(batch.len());
    shared.queue.settle(batch);
    Outcome::Done
}

/// Saves an index. Without the file, the segment is read when it is needed.
pub(super) fn save(shared: &DiskShared, first: u64, len: u64, index: &Index) {
    let Ok(file) = shared.directory.create(first, Kind::Index) else { return };
    let bytes = index.encode(len);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        match file::write_at(file.as_fd(), &[IoSlice::new(rest)], (bytes.len() - rest.len()) as u64) {
            Ok(n) => rest = &rest[n..],
            Err(_) => return drop(shared.directory.remove(first, Kind::Index)),
        }
    }
}

#[cfg(test)]
mod tests;
