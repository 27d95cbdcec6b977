//! Options of a log in a directory.

use std::path::PathBuf;
use std::time::Duration;

use crate::fs::Durability;

/// Bounds of the size of a segment: offsets in an index have 32 bits.
const SEGMENT_MIN: u64 = 4 << 10;
const SEGMENT_MAX: u64 = 1 << 30;

/// Options of a [`Disk`](super::Disk), from [`Disk::builder`](super::Disk::builder).
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before open"]
pub struct DiskBuilder {
    pub(super) path: PathBuf,
    pub(super) durability: Durability,
    pub(super) segment_bytes: u64,
    pub(super) keep: Keep,
    pub(super) queue: usize,
    pub(super) queue_bytes: usize,
}

/// The limits of the log, within which readers can reconnect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    pub(super) bytes: u64,
    pub(super) segments: usize,
    pub(super) age: Option<Duration>,
}

impl DiskBuilder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            durability: Durability::default(),
            segment_bytes: 64 << 20,
            keep: Keep { bytes: 1 << 30, segments: usize::MAX, age: None },
            queue: 4096,
            queue_bytes: 16 << 20,
        }
    }

    /// Sets which failures confirmed events survive. By default they survive a power cut ([`Durability::Full`]): each
    /// commit ends with [fdatasync(2)](https://man7.org/linux/man-pages/man2/fdatasync.2.html), each new segment with a
    /// sync of the directory. [`Durability::Data`] is the same here, because a segment is of no use without its name.
    ///
    /// With [`Durability::None`] confirmed events survive the end of the process. A power cut or a crash of the kernel
    /// loses the events that the kernel has not written yet. The log then ends earlier, and assigns [the ids of the
    /// lost events](super::Disk#guarantees) again. A full segment that was lost before later ones leaves a gap.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the maximum size of a segment in bytes, from 4 KiB to 1 GiB; by default 64 MiB. A larger event has a
    /// segment of its own. Opening the log reads one segment, and old events are removed by segments.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes.clamp(SEGMENT_MIN, SEGMENT_MAX);
        self
    }

    /// Sets the maximum size of all segments in bytes, by default 1 GiB. The segment that is written is always kept.
    pub fn keep_bytes(mut self, bytes: u64) -> Self {
        self.keep.bytes = bytes;
        self
    }

    /// Sets the maximum number of segments, at least 1; by default there is no maximum.
    pub fn keep_segments(mut self, segments: usize) -> Self {
        self.keep.segments = segments.max(1);
        self
    }

    /// Sets how long a segment is kept after its last event; by default without a limit. The next event starts a new
    /// segment if the current one was started that long ago, or by an earlier process. So while new events arrive, each
    /// event stays in the log for at most about twice the time. A log without new events keeps its last segment.
    pub fn keep_for(mut self, age: Duration) -> Self {
        self.keep.age = Some(age);
        self
    }

    /// Sets the maximum number of events that wait for their commit, at least 1; by default 4096. Beyond that
    /// [`Hub::send`](crate::sse::Hub::send) returns [`SendError::Full`](crate::sse::SendError::Full).
    pub fn queue(mut self, events: usize) -> Self {
        self.queue = events.max(1);
        self
    }

    /// Sets the maximum size of the waiting events in bytes, by default 16 MiB. An empty queue accepts an event of any
    /// size up to 16 MiB.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue_bytes = bytes;
        self
    }
}
