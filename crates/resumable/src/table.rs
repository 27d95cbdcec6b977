//! The streams by name, and the queue of their checks.
//!
//! Each stream is in the queue once, by the time of its next check. A check is never later than the shortest of the
//! times that a reader or a producer may start, so neither changes the queue.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{self, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::builder::StreamsBuilder;
use crate::end::StreamEnd;
use crate::kept_stream::{KeptStream, Setup};
use crate::lock::lock;

/// Number of streams that are checked before other tasks may run.
const AT_ONCE: usize = 256;

/// Numbers of a [`Streams`](crate::Streams) or a [`SharedStreams`](crate::SharedStreams) at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamsStats {
    /// Number of streams, running or ended and still readable.
    pub streams: usize,
    /// Number of streams that have not ended.
    pub running: usize,
}

/// The streams of all handles of a [`Streams`](crate::Streams).
pub(crate) struct StreamsShared {
    pub(crate) setup: Arc<Setup>,
    pub(crate) table: Mutex<Table>,
    /// Wakes the task that checks the streams.
    pub(crate) wakes: Arc<Notify>,
}

/// The streams by name, and the queue of their checks.
#[derive(Default)]
pub(crate) struct Table {
    streams: HashMap<Arc<[u8]>, Arc<KeptStream>>,
    due: BinaryHeap<Due>,
    /// Whether the task runs. It does while there are streams.
    pub(crate) reaps: bool,
}

struct Due {
    at: Instant,
    stream: Arc<KeptStream>,
}

/// The earliest is the greatest.
impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}

impl Table {
    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<KeptStream>> {
        self.streams.get(name).map(Arc::clone)
    }

    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn into_streams(self) -> impl Iterator<Item = Arc<KeptStream>> {
        self.streams.into_values()
    }

    pub(crate) fn add(&mut self, stream: &Arc<KeptStream>) {
        self.streams.insert(Arc::clone(&stream.name), Arc::clone(stream));
        self.check_at(stream.first_check(), Arc::clone(stream));
    }

    /// Removes a stream, unless another one has its name since.
    fn remove(&mut self, stream: &Arc<KeptStream>) {
        if self.streams.get(&stream.name).is_some_and(|found| Arc::ptr_eq(found, stream)) {
            self.streams.remove(&stream.name);
        }
    }

    fn check_at(&mut self, at: Instant, stream: Arc<KeptStream>) {
        self.due.push(Due { at, stream });
    }

    /// Returns a stream whose check is due.
    fn take_due(&mut self, now: Instant) -> Option<Arc<KeptStream>> {
        self.due.peek().filter(|due| due.at <= now)?;
        self.due.pop().map(|due| due.stream)
    }
}

impl StreamsShared {
    pub(crate) fn new(options: StreamsBuilder) -> Arc<Self> {
        let setup = Arc::new(Setup { options, running: AtomicUsize::new(0) });
        Arc::new(Self { setup, table: Mutex::default(), wakes: Arc::default() })
    }

    pub(crate) fn stats(&self) -> StreamsStats {
        let streams = self.table().len();
        StreamsStats { streams, running: self.setup.running.load(atomic::Ordering::Acquire) }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Checks the streams that are due. Returns when the next one is; `None` if there are no streams.
    pub(crate) fn reap(&self, now: Instant) -> Option<Instant> {
        for _ in 0..AT_ONCE {
            let Some(stream) = self.table().take_due(now) else { break };
            match stream.check(now) {
                Some(at) => self.table().check_at(at, stream),
                None => {
                    self.table().remove(&stream);
                }
            }
        }
        let mut table = self.table();
        let next = table.due.peek().map(|due| due.at);
        if next.is_none() {
            table.reaps = false;
            // Their memory is given back.
            (table.streams, table.due) = Default::default();
        }
        next
    }
}

impl Drop for StreamsShared {
    fn drop(&mut self) {
        let table = std::mem::take(&mut *self.table());
        for stream in table.into_streams() {
            stream.leave(StreamEnd::Stopped);
        }
        self.wakes.notify_one();
    }
}
