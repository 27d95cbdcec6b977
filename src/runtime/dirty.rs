//! Dirty streams: streams with bytes that wait for the end of a turn.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::sys::thread::ThreadId;

/// Number of checks without a new write after which a stream is flushed. Two, because the runtime may run the flusher
/// before a stream's task in one turn and after it in the next: yielding tasks are woken last in, first out.
const QUIET_LOOKS: u32 = 2;

/// A stream with bytes that wait for the end of the turn.
pub(crate) trait Flush: Send + Sync {
    /// Returns a number that changes with every write.
    fn writes(&self) -> usize;

    /// Sends waiting bytes as far as possible. Never blocks.
    fn flush(self: Arc<Self>);
}

/// A reference to a dirty stream.
#[derive(Clone)]
pub(crate) enum DirtyRef {
    /// A socket of this crate. It closes once its owner has dropped it and no bytes wait. Any thread can flush it.
    Weak(Weak<dyn Flush>),
    /// A writer around another type. It is kept until it is flushed, and only its runtime flushes it.
    Kept(Arc<dyn Flush>),
}

impl DirtyRef {
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

    /// Returns whether any thread can flush the stream.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self, Self::Weak(_))
    }
}

pub(super) struct Dirty {
    pub(super) stream: DirtyRef,
    pub(super) limit: Duration,
    seen: usize,
    /// Number of consecutive checks without a new write.
    quiet: u32,
    pub(super) since: Instant,
}

impl Dirty {
    pub(super) fn new(stream: DirtyRef, limit: Duration, since: Instant) -> Self {
        let seen = stream.get().map_or(0, |stream| stream.writes());
        Self { stream, limit, seen, quiet: 0, since }
    }

    pub(super) fn check_due(&mut self, now: Instant) -> bool {
        // A stream that no longer exists is due; flushing it does nothing.
        let Some(writes) = self.stream.get().map(|stream| stream.writes()) else { return true };
        self.quiet = if writes == self.seen { self.quiet + 1 } else { 0 };
        self.seen = writes;
        self.quiet >= QUIET_LOOKS || now.duration_since(self.since) >= self.limit
    }
}

/// Streams that the flusher has taken. The flusher holds the lock during a check, and acquires it before the lock of
/// the [`ShardState`](super::turns::ShardState). The [`backstop`](super::backstop) only tries to lock it.
#[derive(Default)]
pub(super) struct Work {
    pub(super) waiting: Vec<Dirty>,
    pub(super) due: VecDeque<DirtyRef>,
    pub(super) looked: Option<Instant>,
    pub(super) thread: Option<ThreadId>,
    /// Delay of recent checks.
    pub(super) lag: Duration,
    pub(super) suspect: Option<Suspect>,
}

/// CPU time that the threads of a late flusher had used when it became late, and at the last check.
pub(super) struct Suspect {
    pub(super) since: Duration,
    pub(super) last: Duration,
}

impl Suspect {
    /// Returns whether the threads sleep, or have used enough CPU time to have reached the flusher.
    pub(super) fn is_stuck(&self, runnable: bool, ran: Duration, enough: Duration) -> bool {
        let sleep = !runnable && ran == self.last;
        sleep || ran.saturating_sub(self.since) >= enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_sleep_or_compute_are_stuck() {
        let ms = Duration::from_millis;
        let suspect = Suspect { since: ms(10), last: ms(11) };
        let stuck = |runnable, ran| suspect.is_stuck(runnable, ms(ran), ms(5));
        // They have run since the flusher became late, and sleep now.
        assert!(stuck(false, 11));
        // They have just run, or wait for a CPU.
        assert!(!stuck(false, 12) && !stuck(true, 11) && !stuck(true, 14));
        assert!(stuck(true, 15) && stuck(false, 15));
    }
}
