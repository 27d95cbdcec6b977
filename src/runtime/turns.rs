//! The turns of this process: for each runtime, for each of its worker threads, what is to leave together.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Id};
use tokio::sync::Semaphore;

use super::backstop;
use super::dirty::{Held, Work};
use super::flusher::FlusherTask;
use super::reactor::{Bell, Reactor};
use super::setup::{DriverBuilder, DriverInfo, Io};
use crate::sys::thread;
use crate::sys::thread::ThreadId;
use crate::uring::driver::Driver;
use crate::uring::net::send::SendOp;

/// Streams from which on one call of the ring for all is made instead of a call for each.
const TOGETHER: usize = 4;

/// Jobs that look at files at a time, when nothing else tells whether they have to be waited for.
const LOOK_JOBS: usize = 8;

/// Something with bytes that wait for the end of the turn.
pub(crate) trait Flush: Send + Sync {
    /// A number that changes with every write.
    fn writes(&self) -> usize;

    /// Sends what waits, as far as that is possible now. Never blocks.
    fn flush(self: Arc<Self>);

    /// For how many streams it counts when those are that gain by being sent together: none, one, or enough by itself.
    fn joins(&self) -> usize {
        0
    }

    /// Hands out what waits, to be sent together with that of others, and sends nothing itself until that comes back by
    /// [`end`](Self::end). `None` leaves all as it was: then it is to be flushed.
    fn begin(self: Arc<Self>) -> Option<SendOp> {
        None
    }

    /// Takes back what was handed out, and goes on from there.
    fn end(self: Arc<Self>, send_op: SendOp) {
        drop(send_op);
    }
}

/// The dirty streams of one runtime.
pub(crate) struct Turn {
    runtime: Handle,
    pub(super) shards: Box<[Shard]>,
    setup: OnceLock<DriverBuilder>,
    /// Permits for jobs of programs that may wait for a peer.
    waiting_jobs: OnceLock<Arc<Semaphore>>,
    look_jobs: Arc<Semaphore>,
}

/// The dirty streams of one worker thread, on cache lines of their own.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Shard {
    pub(super) state: Mutex<ShardState>,
    pub(super) work: Mutex<Work>,
    /// Why there is none, if it could not be made.
    pub(super) ring: OnceLock<Result<Reactor, String>>,
    /// Programs that tasks of this thread are waiting for.
    programs: AtomicUsize,
}

/// One of the programs that run at a time.
#[derive(Debug)]
pub(super) struct Running {
    turn: Arc<Turn>,
    index: usize,
    /// Whether others ran when it started.
    pub(super) together: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.turn.shards[self.index].programs.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(super) struct ShardState {
    /// Those the flusher has not looked at yet, with their limits.
    pub(super) dirty: Vec<(Held, Duration)>,
    /// When the first socket among them became dirty.
    pub(super) since: Option<Instant>,
    /// The thread that has written to it.
    pub(super) thread: Option<ThreadId>,
    /// How often there was a first one.
    pub(super) rounds: u32,
    pub(super) flusher: Flusher,
    /// Until the flusher takes it.
    pub(super) bell: Option<Bell>,
}

#[derive(Default)]
pub(super) enum Flusher {
    /// Nothing was ever dirty here.
    #[default]
    NotStarted,
    /// It has work, or is about to look for some.
    Awake,
    Asleep(Waker),
    /// The runtime has shut down.
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

/// The turns of all runtimes, those that have ended among them.
static TURNS: Mutex<Option<HashMap<Id, Weak<Turn>>>> = Mutex::new(None);

impl Turn {
    /// The turn of the runtime this is called on. Panics outside of a tokio runtime.
    #[track_caller]
    pub(crate) fn current() -> Arc<Self> {
        Self::of(Handle::current())
    }

    /// As [`current`](Self::current); the error says that there is no runtime.
    pub(super) fn try_current() -> io::Result<Arc<Self>> {
        Ok(Self::of(Handle::try_current().map_err(io::Error::other)?))
    }

    fn of(runtime: Handle) -> Arc<Self> {
        thread_local! {
            /// The last one this thread has asked for, which is nearly always the only one.
            static LAST: RefCell<Weak<Turn>> = const { RefCell::new(Weak::new()) };
        }
        let last = LAST.try_with(|last| last.borrow().upgrade()).ok().flatten();
        if let Some(turn) = last.filter(|turn| turn.runtime.id() == runtime.id()) {
            return turn;
        }
        let turn = Self::find(runtime);
        let _ = LAST.try_with(|last| last.replace(Arc::downgrade(&turn)));
        turn
    }

    fn find(runtime: Handle) -> Arc<Self> {
        let mut guard = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = guard.get_or_insert_default();
        if let Some(turn) = turns.get(&runtime.id()).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let shards = (0..runtime.metrics().num_workers()).map(|_| Shard::default()).collect();
        let (setup, waiting_jobs) = (OnceLock::new(), OnceLock::new());
        let look_jobs = Arc::new(Semaphore::new(LOOK_JOBS));
        let turn = Arc::new(Self { runtime, shards, setup, waiting_jobs, look_jobs });
        turns.insert(turn.runtime.id(), Arc::downgrade(&turn));
        drop(guard);
        // A flusher keeps the turn for as long as the runtime lives.
        turn.wake(0, turn.shards[0].state());
        turn
    }

    /// Appends the turns of all runtimes to `turns`.
    pub(super) fn all(turns: &mut Vec<Arc<Self>>) {
        let guard = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        turns.extend(guard.iter().flatten().filter_map(|(_, turn)| turn.upgrade()));
    }

    /// The runtime whose turn this is.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    fn shard(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        MINE.try_with(Cell::get).unwrap_or(0) % self.shards.len()
    }

    /// Has `stream` flushed at the end of this turn, at the latest after `limit`. `false` if the runtime is gone and nothing
    /// will ever be flushed by it.
    #[must_use]
    pub(crate) fn schedule(self: &Arc<Self>, stream: Held, limit: Duration) -> bool {
        let index = self.shard();
        let mut state = self.shards[index].state();
        if matches!(state.flusher, Flusher::Gone) {
            return false;
        }
        let first = state.since.is_none() && stream.is_ours();
        if first {
            state.since = Some(Instant::now());
            state.thread = Some(thread::current());
            state.rounds = state.rounds.wrapping_add(1);
        }
        state.dirty.push((stream, limit));
        self.wake(index, state);
        if first {
            backstop::arm();
        }
        true
    }

    /// Has the flusher of a shard look.
    fn wake(self: &Arc<Self>, index: usize, mut state: MutexGuard<'_, ShardState>) {
        if matches!(state.flusher, Flusher::Gone) {
            return;
        }
        match std::mem::replace(&mut state.flusher, Flusher::Awake) {
            Flusher::Asleep(waker) => {
                drop(state);
                waker.wake();
            }
            Flusher::NotStarted => {
                drop(state);
                let mut task = FlusherTask::new(Arc::clone(self), index);
                // On a runtime that is shutting down the task is dropped at once, which marks the shard.
                self.runtime.spawn(async move { task.run().await });
            }
            Flusher::Awake | Flusher::Gone => {}
        }
    }

    /// Sets up the driver, before anything has asked for it. Gives the builder back if that is too late.
    pub(super) fn install(&self, setup: DriverBuilder) -> Result<(), DriverBuilder> {
        self.setup.set(setup)
    }

    fn setup(&self) -> &DriverBuilder {
        self.setup.get_or_init(DriverBuilder::default)
    }

    /// Which way operations go.
    pub(crate) fn io(&self) -> Io {
        self.setup().io
    }

    /// Permits for jobs of programs that may wait for a peer: these hold a part of the blocking pool only.
    #[cfg(feature = "uring")]
    pub(super) fn waiting_jobs(&self) -> &Arc<Semaphore> {
        self.waiting_jobs.get_or_init(|| Arc::new(Semaphore::new(self.setup().waiting_jobs)))
    }

    /// Permits for jobs that look whether a program may wait for a peer.
    pub(super) fn look_jobs(&self) -> &Arc<Semaphore> {
        &self.look_jobs
    }

    /// Counts a program that starts.
    pub(super) fn begin(self: &Arc<Self>) -> Running {
        let index = self.shard();
        let together = self.shards[index].programs.fetch_add(1, Ordering::Relaxed) > 0;
        Running { turn: Arc::clone(self), index, together }
    }

    /// The driver of this thread's ring, made now if there was none. `None` where there can be none.
    pub(crate) fn driver(self: &Arc<Self>) -> Option<Arc<Driver>> {
        let index = self.shard();
        let shard = &self.shards[index];
        let ring = shard.ring.get_or_init(|| {
            let turn = Arc::downgrade(self);
            let kick = move || {
                if let Some(turn) = turn.upgrade() {
                    turn.wake(index, turn.shards[index].state());
                }
            };
            let (reactor, bell) = Reactor::new(self.setup(), kick)?;
            let mut state = shard.state();
            if matches!(state.flusher, Flusher::Gone) {
                return Err("the runtime has shut down".to_owned());
            }
            state.bell = Some(bell);
            Ok(reactor)
        });
        ring.as_ref().ok().map(|reactor| Arc::clone(&reactor.driver))
    }

    /// How many streams that [join](Flush::joins) have to be due at once to be flushed by the ring.
    pub(super) fn together(&self) -> usize {
        match self.io() {
            Io::Auto => TOGETHER,
            Io::Uring => 1,
            Io::Epoll => usize::MAX,
        }
    }

    /// Whether the answer that is written now will have company in this turn: several connections have been received from.
    pub(crate) fn answers_together(&self) -> bool {
        let ring = self.shards[self.shard()].ring.get();
        ring.is_some_and(|ring| ring.as_ref().is_ok_and(|reactor| reactor.driver.arrived() >= self.together()))
    }

    /// What drives the files of this runtime.
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
