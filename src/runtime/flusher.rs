//! The flusher: batches writes of many streams, many writes of one stream, and operations of many tasks.
//!
//! ```text
//!  stream ──schedule──▶ shard of this thread: dirty list ──wakes──▶ flusher task
//!                                                                      │ let the other tasks run, then check:
//!                                                                      │ was this stream written to again?
//!                                                                      │   yes → check again after the next turn
//!                                                                      ▼   no, or its limit is reached
//!                                                                   flush it
//! ```
//!
//! The flusher is an ordinary task. `yield_now` runs it after all runnable tasks and after the runtime has polled its
//! driver once, so another check costs no timer and no sleep. A stream that is written to once is flushed after two
//! checks. No runtime hooks are needed: `on_thread_park` is not called under load.
//!
//! A backstop thread takes over if a flusher does not run in time: see [`backstop`].
//!
//! A shard whose tasks work on files also has a ring. A task that queues a program wakes the flusher. The flusher lets
//! ready tasks run, submits the programs that have been queued by then, and reaps at once, because most operations on
//! cached files end during submission. While the flusher sleeps, the ring's descriptor wakes it.
//!
//! Each runtime has one [`Turn`] with one shard and one flusher per worker thread.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, MutexGuard, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::yield_now;

use super::backstop;
use super::dirty::{Dirty, DirtyRef, Flush};
use super::reactor::{CompletionEvent, Reactor};
use super::setup::{DriverBuilder, DriverInfo};
use super::turns::{Flusher, Shard, ShardState, Turn};
use crate::counters::log;
use crate::ring::driver::RingDriver;
use crate::sync::guarded;
use crate::sys::thread;

/// Maximum number of streams flushed before other tasks get a chance to run.
const FLUSH_BATCH: usize = 64;

/// Maximum time that a runtime waits at its end for the kernel to release buffers.
const SHUTDOWN: Duration = Duration::from_secs(2);

impl Turn {
    #[track_caller]
    pub(crate) fn current() -> Arc<Self> {
        Self::of(Handle::current())
    }

    pub(super) fn try_current() -> io::Result<Arc<Self>> {
        Ok(Self::of(Handle::try_current().map_err(io::Error::other)?))
    }

    fn of(runtime: Handle) -> Arc<Self> {
        thread_local! {
            static LAST: RefCell<Weak<Turn>> = const { RefCell::new(Weak::new()) };
        }
        let last = LAST.try_with(|last| last.borrow().upgrade()).ok().flatten();
        if let Some(turn) = last.filter(|turn| turn.runtime().id() == runtime.id()) {
            return turn;
        }
        let (turn, is_new) = Self::find(runtime);
        if is_new {
            // A flusher keeps the turn while the runtime lives.
            turn.wake(0, turn.shards[0].state());
        }
        let _ = LAST.try_with(|last| last.replace(Arc::downgrade(&turn)));
        turn
    }

    /// Schedules a flush of `stream` at the end of this turn, at most after `limit`. Returns `false` if the runtime is
    /// gone and will never flush it.
    #[must_use]
    pub(crate) fn schedule(self: &Arc<Self>, stream: DirtyRef, limit: Duration) -> bool {
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

    /// Wakes or starts the flusher of a shard.
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
                // A runtime that is shutting down drops the task at once, which marks the shard.
                self.runtime().spawn(async move { task.run().await });
            }
            Flusher::Awake | Flusher::Gone => {}
        }
    }

    /// Returns the driver of this thread's ring, created at the first call, or `None` if there can be none.
    pub(crate) fn driver(self: &Arc<Self>) -> Option<Arc<RingDriver>> {
        let index = self.shard();
        let shard = &self.shards[index];
        // The kernel binds a ring of one thread to its creator. Other threads, as those of the blocking pool, have
        // none.
        if shard.ring.get().is_none() && !self.is_own_thread() {
            return None;
        }
        let ring = shard.ring.get_or_init(|| {
            let turn = Arc::downgrade(self);
            let kick = move || {
                if let Some(turn) = turn.upgrade() {
                    turn.wake(index, turn.shards[index].state());
                }
            };
            let (reactor, completion_event) = Reactor::new(self.setup(), kick)?;
            let mut state = shard.state();
            if matches!(state.flusher, Flusher::Gone) {
                return Err("the runtime has shut down".to_owned());
            }
            state.completion_event = Some(completion_event);
            Ok(reactor)
        });
        ring.as_ref().ok().map(|reactor| Arc::clone(&reactor.driver))
    }
}

impl DriverBuilder {
    /// Installs these options on the current runtime.
    ///
    /// # Errors
    ///
    /// `ErrorKind::AlreadyExists` if the runtime has already run a file operation, or options are installed.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    #[track_caller]
    pub fn install(self) -> io::Result<()> {
        let turn = Turn::current();
        let in_use = io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the driver of this runtime is in use: install it before the first operation on a file",
        );
        turn.install(self).map_err(|_| in_use)
    }
}

/// Returns the driver of the current runtime.
///
/// # Panics
///
/// Panics outside a tokio runtime.
#[track_caller]
pub fn driver_info() -> DriverInfo {
    Turn::current().driver_info()
}

/// The flusher of one shard. The streams it has taken are stored in the shard ([`Work`](super::dirty::Work)), because
/// the flusher may be dropped at any await, or not be polled for a long time.
pub(super) struct FlusherTask {
    turn: Arc<Turn>,
    index: usize,
    /// New dirty streams with their limits, during sorting. `since` is the time at which the first socket became dirty.
    taken: Vec<(DirtyRef, Duration)>,
    since: Option<Instant>,
    batch: Vec<Arc<dyn Flush>>,
    waits: bool,
    /// Present once the shard has a ring.
    completion_event: Option<CompletionEvent>,
}

impl FlusherTask {
    pub(super) fn new(turn: Arc<Turn>, index: usize) -> Self {
        let (taken, batch) = (Vec::new(), Vec::new());
        Self { turn, index, taken, since: None, batch, waits: false, completion_event: None }
    }

    fn shard(&self) -> &Shard {
        &self.turn.shards[self.index]
    }

    pub(super) async fn run(&mut self) {
        let mut stalled = false;
        loop {
            self.wait(stalled).await;
            if self.sort_due(true) && self.turn.shards.len() > 1 {
                // A task that was just woken on a multi-thread runtime runs next, before others with work to batch.
                requeue().await;
                self.take();
                self.sort_due(false);
            }
            while self.flush_batch() {
                yield_now().await;
            }
            if self.driver().is_some_and(RingDriver::has_work) {
                requeue().await;
            }
            stalled = self.driver().is_some_and(RingDriver::turn);
            if stalled || self.waits {
                yield_now().await;
            }
        }
    }

    fn take(&mut self) {
        let mut state = self.turn.shards[self.index].state();
        self.since = state.since.take();
        std::mem::swap(&mut state.dirty, &mut self.taken);
    }

    /// Checks which waiting streams are due, if `again`, and sorts the taken streams into those that are due at once
    /// and those that may wait. Returns whether any of the taken streams is due at once.
    fn sort_due(&mut self, again: bool) -> bool {
        let mut work = self.turn.shards[self.index].work();
        if self.taken.is_empty() && work.waiting.is_empty() {
            self.waits = false;
            return false;
        }
        let now = Instant::now();
        if let Some(due) = work.looked.filter(|_| self.waits).or(self.since) {
            work.lag = now.saturating_duration_since(due).max(work.lag / 2);
        }
        work.looked = Some(now);
        work.thread = Some(thread::current());
        work.suspect = None;
        let work = &mut *work;
        if again {
            work.due.extend(work.waiting.extract_if(.., |dirty| dirty.check_due(now)).map(|dirty| dirty.stream));
        }
        let before = work.due.len();
        for (stream, limit) in self.taken.drain(..) {
            match limit {
                Duration::ZERO => work.due.push_back(stream),
                _ => work.waiting.push(Dirty::new(stream, limit, now)),
            }
        }
        self.waits = !work.waiting.is_empty();
        work.due.len() > before
    }

    /// Flushes the first due streams. Returns whether more are due.
    fn flush_batch(&mut self) -> bool {
        let mut work = self.turn.shards[self.index].work();
        let batch = work.due.len().min(FLUSH_BATCH);
        self.batch.extend(work.due.drain(..batch).filter_map(|stream| stream.get()));
        let more = !work.due.is_empty();
        drop(work);
        self.batch.drain(..).for_each(|stream| _ = guarded(|| stream.flush()));
        more
    }

    fn driver(&self) -> Option<&RingDriver> {
        self.completion_event.as_ref()?;
        self.shard().ring.get()?.as_ref().ok().map(|reactor| &*reactor.driver)
    }

    /// Takes the streams that have become dirty. Waits for one if there is no other work.
    async fn wait(&mut self, stalled: bool) {
        poll_fn(|cx| {
            let turn = Arc::clone(&self.turn);
            let mut state = turn.shards[self.index].state();
            self.completion_event = self.completion_event.take().or_else(|| state.completion_event.take());
            let is_ready = self.completion_event.as_ref().is_some_and(|completion_event| completion_event.poll(cx));
            let ring = is_ready || stalled || self.driver().is_some_and(RingDriver::has_work);
            if state.dirty.is_empty() && !self.waits && !ring {
                state.flusher = Flusher::Asleep(cx.waker().clone());
                return Poll::Pending;
            }
            self.since = state.since.take();
            std::mem::swap(&mut state.dirty, &mut self.taken);
            Poll::Ready(())
        })
        .await;
    }
}

/// Runs the calling task again after all ready tasks, without waiting for the runtime to poll its driver as `yield_now`
/// does. A task that was just woken on a multi-thread runtime would otherwise run before the others.
async fn requeue() {
    let mut waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Drop for FlusherTask {
    fn drop(&mut self) {
        let mut state = self.shard().state();
        state.flusher = Flusher::Gone;
        let dirty = std::mem::take(&mut state.dirty);
        state.completion_event = None;
        drop(state);
        if let Some(Ok(reactor)) = self.shard().ring.get() {
            let leaked = reactor.driver.shutdown(SHUTDOWN);
            if leaked > 0 {
                log::leaked(leaked);
            }
        }
        // The runtime is shutting down: flush the waiting streams one last time.
        let mut work = self.shard().work();
        let (due, waiting) = (std::mem::take(&mut work.due), std::mem::take(&mut work.waiting));
        drop(work);
        let waiting = waiting.into_iter().map(|dirty| dirty.stream);
        let dirty = self.taken.drain(..).chain(dirty).map(|(stream, _)| stream);
        due.into_iter().chain(waiting).chain(dirty).for_each(|stream| _ = guarded(|| stream.flush()));
    }
}

#[cfg(test)]
mod tests;
