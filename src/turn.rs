//! The end of the turn: where writes of many streams, and many writes of one stream, leave together.
//!
//! ```text
//!  stream ──schedule──▶ shard of this thread: dirty list ──wakes──▶ flusher task
//!                                                                      │ look: anything written since the last look?
//!                                                                      │   yes → let the others run, look again
//!                                                                      ▼   no, or waited long enough
//!                                                                   flush each dirty stream once
//! ```
//!
//! The flusher is an ordinary task. `yield_now` runs it after the tasks that are runnable and after the runtime has
//! polled its driver once, so looking again costs no timer and no sleep; an idle service flushes at its first look.
//! No runtime hooks are needed: `on_thread_park` is not called under load.
//!
//! Each runtime has one [`Turn`] with one shard, and one flusher, for each of its worker threads.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Id};
use tokio::task::yield_now;

/// Streams flushed before other tasks get a chance to run.
const FLUSH_BATCH: usize = 64;

/// Something with bytes that wait for the end of the turn.
pub(crate) trait Flush: Send + Sync {
    /// Sends what waits, as far as that is possible now. Never blocks.
    fn flush(self: Arc<Self>);
}

/// The dirty streams of one runtime.
pub(crate) struct Turn {
    runtime: Handle,
    shards: Box<[Shard]>,
}

/// The dirty streams of one worker thread, on cache lines of their own.
#[repr(align(128))]
#[derive(Default)]
struct Shard {
    state: Mutex<ShardState>,
    /// Grows with every gathered write: what the flusher looks at.
    writes: AtomicU64,
}

#[derive(Default)]
struct ShardState {
    dirty: Vec<Arc<dyn Flush>>,
    /// The shortest gather limit among `dirty`.
    limit: Option<Duration>,
    flusher: Flusher,
}

#[derive(Default)]
enum Flusher {
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
    fn state(&self) -> MutexGuard<'_, ShardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// The turn of the runtime this is called on. Panics outside of a tokio runtime.
    #[track_caller]
    pub(crate) fn current() -> Arc<Self> {
        static TURNS: Mutex<Option<HashMap<Id, Weak<Turn>>>> = Mutex::new(None);
        let runtime = Handle::current();
        let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = turns.get_or_insert_default();
        if let Some(turn) = turns.get(&runtime.id()).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let shards = (0..runtime.metrics().num_workers()).map(|_| Shard::default()).collect();
        let turn = Arc::new(Self { runtime, shards });
        turns.insert(turn.runtime.id(), Arc::downgrade(&turn));
        turn
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

    /// Notes that a stream has gathered a write: more may be coming.
    pub(crate) fn wrote(&self) {
        self.shards[self.shard()].writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Has `stream` flushed at the end of this turn, at the latest after `limit`. Returns it if the runtime is gone and
    /// nothing will ever be flushed by it.
    pub(crate) fn schedule(self: &Arc<Self>, stream: Arc<dyn Flush>, limit: Duration) -> Result<(), Arc<dyn Flush>> {
        let index = self.shard();
        let mut state = self.shards[index].state();
        if matches!(state.flusher, Flusher::Gone) {
            return Err(stream);
        }
        state.dirty.push(stream);
        state.limit = Some(state.limit.map_or(limit, |l| l.min(limit)));
        match std::mem::replace(&mut state.flusher, Flusher::Awake) {
            Flusher::Asleep(waker) => {
                drop(state);
                waker.wake();
            }
            Flusher::NotStarted => {
                drop(state);
                let task = FlusherTask { turn: Arc::clone(self), index };
                // On a runtime that is shutting down the task is dropped at once, which marks the shard.
                self.runtime.spawn(async move { task.run().await });
            }
            Flusher::Awake | Flusher::Gone => {}
        }
        Ok(())
    }
}

struct FlusherTask {
    turn: Arc<Turn>,
    index: usize,
}

impl FlusherTask {
    fn shard(&self) -> &Shard {
        &self.turn.shards[self.index]
    }

    async fn run(self) {
        let mut batch = Vec::new();
        loop {
            let limit = self.dirty().await;
            self.gather(limit).await;
            // What became dirty meanwhile goes with the rest.
            self.shard().state().take_into(&mut batch);
            for (n, stream) in batch.drain(..).enumerate() {
                if n % FLUSH_BATCH == FLUSH_BATCH - 1 {
                    yield_now().await;
                }
                stream.flush();
            }
        }
    }

    /// Waits until a stream is dirty; gives the gather limit.
    async fn dirty(&self) -> Duration {
        poll_fn(|cx| {
            let mut state = self.shard().state();
            match state.limit {
                Some(limit) => Poll::Ready(limit),
                None => {
                    state.flusher = Flusher::Asleep(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Lets the other tasks write, as long as they do.
    async fn gather(&self, limit: Duration) {
        let writes = &self.shard().writes;
        let since = Instant::now();
        let mut seen = writes.load(Ordering::Relaxed);
        loop {
            yield_now().await;
            let now = writes.load(Ordering::Relaxed);
            if now == seen || since.elapsed() >= limit {
                return;
            }
            seen = now;
        }
    }
}

impl ShardState {
    fn take_into(&mut self, batch: &mut Vec<Arc<dyn Flush>>) {
        self.limit = None;
        std::mem::swap(&mut self.dirty, batch);
    }
}

impl Drop for FlusherTask {
    fn drop(&mut self) {
        let mut dirty = Vec::new();
        let mut state = self.shard().state();
        state.flusher = Flusher::Gone;
        state.take_into(&mut dirty);
        drop(state);
        // The runtime is shutting down: one last try for what still waits.
        dirty.into_iter().for_each(Flush::flush);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Flush for Counted {
        fn flush(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flushes(stream: &Counted) -> usize {
        stream.0.load(Ordering::Relaxed)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn an_idle_service_flushes_at_its_first_look() {
        let turn = Turn::current();
        let stream = Arc::new(Counted::default());
        for round in 1..=3 {
            turn.wrote();
            turn.schedule(stream.clone(), LONG).ok().unwrap();
            for _ in 0..4 {
                yield_now().await;
            }
            assert_eq!(flushes(&stream), round);
        }
    }

    #[tokio::test]
    async fn writes_are_gathered_while_they_keep_coming() {
        let turn = Turn::current();
        let stream = Arc::new(Counted::default());
        turn.schedule(stream.clone(), LONG).ok().unwrap();
        for _ in 0..100 {
            turn.wrote();
            yield_now().await;
            assert_eq!(flushes(&stream), 0);
        }
        for _ in 0..4 {
            yield_now().await;
        }
        assert_eq!(flushes(&stream), 1);
    }

    #[tokio::test]
    async fn nothing_waits_longer_than_the_limit() {
        let turn = Turn::current();
        let stream = Arc::new(Counted::default());
        turn.schedule(stream.clone(), Duration::ZERO).ok().unwrap();
        for _ in 0..4 {
            turn.wrote();
            yield_now().await;
        }
        assert_eq!(flushes(&stream), 1);
    }

    #[test]
    fn a_runtime_that_ends_flushes_once_more_and_then_refuses() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let stream = Arc::new(Counted::default());
        let turn = runtime.block_on(async {
            let turn = Turn::current();
            turn.schedule(stream.clone(), LONG).ok().unwrap();
            turn
        });
        drop(runtime);
        assert_eq!(flushes(&stream), 1);
        assert!(turn.schedule(stream.clone(), LONG).is_err());
        assert_eq!(Arc::strong_count(&stream), 1);
        assert_eq!(Arc::strong_count(&turn), 1, "the flusher let go");
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
