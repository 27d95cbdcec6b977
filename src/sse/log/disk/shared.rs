//! State shared by the hubs, the writer and the replays of a log.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::builder::{DiskBuilder, Keep};
use super::directory::Directory;
use super::record::Unnumbered;
use super::recover::Opened;
use super::segments::Segments;
use super::state::{DiskState, Stats};
use crate::fs::Durability;
use crate::sse::log::Sink;
use crate::sse::log::queue::Queue;

#[derive(Debug)]
pub(super) struct DiskShared {
    pub(super) directory: Directory,
    pub(super) durability: Durability,
    pub(super) segment_bytes: u64,
    pub(super) keep: Keep,
    pub(super) queue: Queue<Unnumbered>,
    pub(super) stats: Stats,
    segments: Mutex<Segments>,
    sinks: Mutex<Sinks>,
}

/// The hubs that get the events.
#[derive(Default)]
struct Sinks {
    /// The last delivered event.
    last: u64,
    list: Vec<Sink>,
}

impl DiskShared {
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
            sinks: Mutex::new(Sinks { last, list: Vec::new() }),
        }
    }

    /// Never locked while something waits for the disk.
    pub(super) fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sinks(&self) -> MutexGuard<'_, Sinks> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a sink behind the last delivered event.
    pub(super) fn join(&self, sink: Sink) {
        let mut sinks = self.sinks();
        // Also for an empty log: 0 is before every event.
        sink.start(Some(&sinks.last.to_string()));
        sinks.list.retain(|other| !other.is_closed());
        sinks.list.push(sink);
    }

    /// Gives up waiting events if the last hub has left. A hub that enters meanwhile continues with the queue.
    pub(super) fn give_up_left(&self) {
        if let Some(left) = self.queue.take_left() {
            self.stats.given_up(left.len());
            self.queue.settle(left);
        }
    }

    /// Delivers committed events, the first of which has the id `first`, to all sinks. Forgets those of closed hubs.
    pub(super) fn deliver(&self, first: u64, events: impl Iterator<Item = Bytes>) {
        let mut sinks = self.sinks();
        for (id, event) in (first..).zip(events) {
            sinks.last = id;
            let id = id.to_string();
            sinks.list.retain(|sink| sink.deliver_encoded(&id, event.clone()).is_ok());
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
