//! State of the turns of all runtimes of this process: the dirty streams, the programs and the ring of each worker
//! thread. Its [flusher](super::flusher) is above.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Id};
use tokio::sync::Semaphore;

use super::dirty::{DirtyRef, Work};
use super::reactor::{CompletionEvent, Reactor};
use super::setup::{DriverBuilder, DriverInfo, Io};
use crate::sys::thread::{self, ThreadId};

/// Maximum number of concurrent jobs that check whether a program may wait for a peer.
const LOOK_JOBS: usize = 8;

pub(crate) struct Turn {
    runtime: Handle,
    pub(super) shards: Box<[Shard]>,
    setup: OnceLock<DriverBuilder>,
    /// The thread that runs this runtime, if it was promised that no other does.
    own_thread: OnceLock<ThreadId>,
    waiting_jobs: OnceLock<Arc<Semaphore>>,
    look_jobs: Arc<Semaphore>,
}

/// The dirty streams of one worker thread, on separate cache lines.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Shard {
    pub(super) state: Mutex<ShardState>,
    pub(super) work: Mutex<Work>,
    /// The ring, or the reason why there is none.
    pub(super) ring: OnceLock<Result<Reactor, String>>,
    /// Number of running programs of this thread.
    programs: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct Running {
    turn: Arc<Turn>,
    index: usize,
    pub(super) together: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.turn.shards[self.index].programs.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(super) struct ShardState {
    /// Streams that the flusher has not seen yet, with their limits.
    pub(super) dirty: Vec<(DirtyRef, Duration)>,
    pub(super) since: Option<Instant>,
    pub(super) thread: Option<ThreadId>,
    /// Number of times the list became non-empty.
    pub(super) rounds: u32,
    pub(super) flusher: Flusher,
    pub(super) completion_event: Option<CompletionEvent>,
}

#[derive(Default)]
pub(super) enum Flusher {
    /// No stream was ever dirty in this shard.
    #[default]
    NotStarted,
    /// The flusher has work, or is about to check for some.
    Awake,
    Asleep(Waker),
    Gone,
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("runtime", &self.runtime.id()).field("shards", &self.shards.len()).finish()
    }
}

impl Shard {
    pub(super) fn state(&self) -> MutexGuard<'_, ShardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turns of all runtimes, including runtimes that have ended.
static TURNS: Mutex<Option<HashMap<Id, Weak<Turn>>>> = Mutex::new(None);

impl Turn {
    /// Returns the turn of a runtime, and whether it is new.
    pub(super) fn find(runtime: Handle) -> (Arc<Self>, bool) {
        let mut guard = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = guard.get_or_insert_default();
        if let Some(turn) = turns.get(&runtime.id()).and_then(Weak::upgrade) {
            return (turn, false);
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let shards = (0..runtime.metrics().num_workers()).map(|_| Shard::default()).collect();
        let (setup, own_thread, waiting_jobs) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let look_jobs = Arc::new(Semaphore::new(LOOK_JOBS));
        let turn = Arc::new(Self { runtime, shards, setup, own_thread, waiting_jobs, look_jobs });
        turns.insert(turn.runtime.id(), Arc::downgrade(&turn));
        (turn, true)
    }

    pub(super) fn all(turns: &mut Vec<Arc<Self>>) {
        let guard = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        turns.extend(guard.iter().flatten().filter_map(|(_, turn)| turn.upgrade()));
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(super) fn shard(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        MINE.try_with(Cell::get).unwrap_or(0) % self.shards.len()
    }

    pub(super) fn install(&self, setup: DriverBuilder) -> Result<(), DriverBuilder> {
        let is_single_thread = setup.is_single_thread();
        self.setup.set(setup)?;
        if is_single_thread {
            let _ = self.own_thread.set(thread::current());
        }
        Ok(())
    }

    /// Returns whether the calling thread may create a ring.
    pub(super) fn is_own_thread(&self) -> bool {
        self.own_thread.get().is_none_or(|&own| own == thread::current())
    }

    pub(super) fn setup(&self) -> &DriverBuilder {
        self.setup.get_or_init(DriverBuilder::default)
    }

    pub(crate) fn io(&self) -> Io {
        self.setup().io
    }

    /// Returns the permits of jobs for programs that may wait for a peer: a part of the blocking pool.
    #[cfg(feature = "fs")]
    pub(super) fn waiting_jobs(&self) -> &Arc<Semaphore> {
        self.waiting_jobs.get_or_init(|| Arc::new(Semaphore::new(self.setup().waiting_jobs)))
    }

    pub(super) fn look_jobs(&self) -> &Arc<Semaphore> {
        &self.look_jobs
    }

    pub(super) fn begin(self: &Arc<Self>) -> Running {
        let index = self.shard();
        let together = self.shards[index].programs.fetch_add(1, Ordering::Relaxed) > 0;
        Running { turn: Arc::clone(self), index, together }
    }

    pub(super) fn driver_info(&self) -> DriverInfo {
        let mut info = DriverInfo { io: self.io(), rings: Vec::new(), refused: Vec::new() };
        for ring in self.shards.iter().filter_map(|shard| shard.ring.get()) {
            match ring {
                Ok(reactor) => match reactor.driver.closed() {
                    Some(reason) => info.refused.push(reason),
                    None => info.rings.push(reactor.info.clone()),
                },
                Err(reason) => info.refused.push(reason.clone()),
            }
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_no_cache_line() {
        assert_eq!((align_of::<Shard>(), size_of::<Shard>() % 128), (128, 0));
    }

    #[test]
    fn each_runtime_has_a_turn_of_its_own() {
        let one = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
        let two = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let turn = |rt: &tokio::runtime::Runtime| rt.block_on(async { Turn::current() });
        assert!(Arc::ptr_eq(&turn(&one), &turn(&one)));
        let kept = turn(&one);
        assert!(!Arc::ptr_eq(&kept, &turn(&two)));
        assert_eq!(kept.shards.len(), 3);
    }
}
