//! Streams with bytes that wait for the end of a turn, as the flusher holds them.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::turns::Flush;
use crate::kernel::thread::ThreadId;

/// Looks without a new write after which a stream is flushed. Two, because the runtime may run the flusher before a
/// stream's task in one turn and after it in the next: tasks that yield are woken last in, first out.
const QUIET_LOOKS: u32 = 2;

/// A dirty stream, as the turn holds it.
#[derive(Clone)]
pub(crate) enum Held {
    /// A socket of ours. It is closed as soon as its owner has dropped it and nothing waits, whatever the turn does; and
    /// any thread can flush it.
    Weak(Weak<dyn Flush>),
    /// A writer around something else: kept until it is flushed, and flushed by its runtime alone.
    Kept(Arc<dyn Flush>),
}

impl Held {
    /// The stream, if it is still there.
    pub(super) fn get(&self) -> Option<Arc<dyn Flush>> {
        match self {
            Self::Weak(stream) => stream.upgrade(),
            Self::Kept(stream) => Some(Arc::clone(stream)),
        }
    }

    pub(super) fn flush(self) {
        if let Some(stream) = self.get() {
            stream.flush();
        }
    }

    /// Whether any thread can flush it.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self, Self::Weak(_))
    }
}

/// A stream that is dirty.
pub(super) struct Dirty {
    pub(super) stream: Held,
    /// How long it may wait.
    pub(super) limit: Duration,
    /// Its writes at the last look.
    seen: usize,
    /// Looks in a row that saw no new write.
    quiet: u32,
    /// The first look at it.
    pub(super) since: Instant,
}

impl Dirty {
    /// One that the flusher sees for the first time.
    pub(super) fn new(stream: Held, limit: Duration, since: Instant) -> Self {
        let seen = stream.get().map_or(0, |stream| stream.writes());
        Self { stream, limit, seen, quiet: 0, since }
    }

    /// Whether the stream is to be flushed now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        // One that is gone is due, and then nothing happens.
        let Some(writes) = self.stream.get().map(|stream| stream.writes()) else { return true };
        self.quiet = if writes == self.seen { self.quiet + 1 } else { 0 };
        self.seen = writes;
        self.quiet >= QUIET_LOOKS || now.duration_since(self.since) >= self.limit
    }
}

/// What the flusher has taken. It holds the lock while it looks, and takes it before that of the [`ShardState`](super::turns::ShardState); the
/// [`backstop`](super::backstop) only ever tries.
#[derive(Default)]
pub(super) struct Work {
    /// Streams that may yet be written to.
    pub(super) waiting: Vec<Dirty>,
    /// Streams to flush now.
    pub(super) due: VecDeque<Held>,
    /// The last look; `None` before the first.
    pub(super) looked: Option<Instant>,
    /// The thread that looked.
    pub(super) thread: Option<ThreadId>,
    /// How late the looks were of late.
    pub(super) lag: Duration,
    /// CPU time that the threads of the runtime had used when the next look became late.
    pub(super) suspect: Option<Duration>,
}
