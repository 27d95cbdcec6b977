//! State shared by the hubs, the writer and the replays of a log.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::builder::{DiskBuilder, Durability, Keep};
use super::directory::Directory;
use super::record::Encoded;
use super::recover::Opened;
use super::segments::Segments;
use super::state::{DiskState, Stats};
use crate::sse::log::Sink;
use crate::sse::log::queue::Queue;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) directory: Directory,
    pub(super) durability: Durability,
    pub(super) segment_bytes: u64,
    pub(super) keep: Keep,
    pub(super) queue: Queue<Encoded>,
    pub(super) stats: Stats,
    segments: Mutex<Segments>,
    sinks: Mutex<Sinks>,
}

/// The hubs that get the events.
#[derive(Default)]
struct Sinks {
    /// The last delivered event.
    last: u64,
    list: Vec<(u64, Sink)>,
    /// Number of the next sink.
    next: u64,
}

impl Shared {
    pub(super) fn new(options: &DiskBuilder, opened: Opened) -> Self {
        let Opened { directory, segments, cut, .. } = opened;
        let last = segments.next() - 1;
        Self {
            directory,
            durability: options.durability,
            segment_bytes: options.segment_bytes,
            keep: options.keep,
            queue: Queue::new(options.queue, options.queue_bytes),
            stats: Stats::new(cut),
            segments: Mutex::new(segments),
            sinks: Mutex::new(Sinks { last, ..Sinks::default() }),
        }
    }

    /// Never locked while something waits for the disk.
    pub(super) fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sinks(&self) -> MutexGuard<'_, Sinks> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a sink behind the last delivered event, and returns its number.
    pub(super) fn join(&self, sink: &Sink) -> u64 {
        let mut sinks = self.sinks();
        // Also for an empty log: 0 is before every event.
        sink.start(Some(&sinks.last.to_string()));
        let number = sinks.next;
        sinks.next += 1;
        sinks.list.push((number, sink.clone()));
        number
    }

    /// Ends the delivery to a sink.
    pub(super) fn leave(&self, number: u64) {
        self.sinks().list.retain(|(found, _)| *found != number);
    }

    /// Delivers committed events to all sinks, the first of which has the id `first`.
    pub(super) fn deliver(&self, first: u64, events: impl Iterator<Item = Bytes>) {
        let mut sinks = self.sinks();
        for (id, event) in (first..).zip(events) {
            sinks.last = id;
            let id = id.to_string();
            for (_, sink) in &sinks.list {
                // A closed hub leaves soon.
                let _ = sink.deliver_encoded(&id, event.clone());
            }
        }
    }

    pub(super) fn state(&self) -> DiskState {
        let (ids, size) = {
            let segments = self.segments();
            ((segments.first(), segments.next()), segments.size())
        };
        self.stats.state(ids, size, self.queue.len())
    }
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sinks").field("last", &self.last).field("sinks", &self.list.len()).finish()
    }
}
