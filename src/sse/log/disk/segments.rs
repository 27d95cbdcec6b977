//! The segments of a log: which events they have, and which are removed.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use super::builder::Keep;
use super::index::Index;

/// State that the readers of a segment share. The locks are held while a job waits for the disk.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// `None` until it is needed.
    index: Mutex<Option<Index>>,
    /// The open file, while the writer, a job or a mapped page has it.
    file: Mutex<Weak<File>>,
}

impl Reading {
    pub(super) fn new(index: Index, file: &Arc<File>) -> Arc<Self> {
        Arc::new(Self { index: Mutex::new(Some(index)), file: Mutex::new(Arc::downgrade(file)) })
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Option<Index>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file, so that a segment has one descriptor, however many of its pages are held.
    pub(super) fn file(&self, open: impl FnOnce() -> io::Result<Arc<File>>) -> io::Result<Arc<File>> {
        let mut shared = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = shared.upgrade() {
            return Ok(file);
        }
        let file = open()?;
        *shared = Arc::downgrade(&file);
        Ok(file)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) first: u64,
    /// Length of its committed records.
    pub(super) len: u64,
    /// Time of its last event.
    pub(super) changed: SystemTime,
    pub(super) reading: Arc<Reading>,
}

/// The segments from the oldest to the one that is written. There is at least one.
#[derive(Debug)]
pub(super) struct Segments {
    list: VecDeque<Segment>,
    /// Id of the next event.
    next: u64,
    bytes: u64,
}

/// A segment and the events in it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) segment: Segment,
    /// Id after its last event.
    pub(super) end: u64,
    /// Whether it is full.
    pub(super) is_full: bool,
}

impl Segments {
    pub(super) fn new(list: Vec<Segment>, next: u64) -> Self {
        assert!(!list.is_empty(), "internal: a log without a segment");
        let bytes = list.iter().map(|segment| segment.len).sum();
        Self { list: list.into(), next, bytes }
    }

    /// Id of the oldest event.
    pub(super) fn first(&self) -> u64 {
        self.list[0].first
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The segment that is written.
    pub(super) fn last(&self) -> &Segment {
        self.list.back().expect("internal: a log without a segment")
    }

    /// Number and size of the segments.
    pub(super) fn size(&self) -> (usize, u64) {
        (self.list.len(), self.bytes)
    }

    /// Returns the segment of the event `id`, which is between the oldest and the next.
    pub(super) fn find(&self, id: u64) -> Option<Found> {
        let at = self.list.partition_point(|segment| segment.first <= id).checked_sub(1)?;
        let following = self.list.get(at + 1).map(|segment| segment.first);
        let end = following.unwrap_or(self.next);
        (id < end).then(|| Found { segment: self.list[at].clone(), end, is_full: following.is_some() })
    }

    /// Adds committed events to the last segment.
    pub(super) fn committed(&mut self, bytes: u64, next: u64, now: SystemTime) {
        let last = self.list.back_mut().expect("internal: a log without a segment");
        last.len += bytes;
        last.changed = now;
        self.next = next;
        self.bytes += bytes;
    }

    pub(super) fn add(&mut self, segment: Segment) {
        self.list.push_back(segment);
    }

    /// Removes the oldest segments that need not be kept, and returns their first events.
    pub(super) fn trim(&mut self, keep: &Keep, now: SystemTime) -> Vec<u64> {
        let mut removed = Vec::new();
        while self.list.len() > 1 {
            let oldest = &self.list[0];
            let is_old = keep.age.is_some_and(|age| now.duration_since(oldest.changed).is_ok_and(|since| since > age));
            if self.bytes <= keep.bytes && self.list.len() <= keep.segments && !is_old {
                break;
            }
            self.bytes -= oldest.len;
            removed.extend(self.list.pop_front().map(|segment| segment.first));
        }
        removed
    }
}

#[cfg(test)]
mod tests;
