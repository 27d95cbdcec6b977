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
//! A backstop thread takes over if a flusher does not run in time: see [`backstop`](super::backstop).
//!
//! A shard whose tasks work on files also has a ring. A task that queues a program wakes the flusher. The flusher lets
//! ready tasks run, submits the programs that have been queued by then, and reaps at once, because most operations on
//! cached files end during submission. While the flusher sleeps, the ring's descriptor wakes it.
//!
//! Each runtime has one [`Turn`] with one shard and one flusher per worker thread.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::task::yield_now;

use super::dirty::{Dirty, Held};
use super::reactor::Bell;
use super::turns::{Flush, Flusher, Shard, Turn};
use crate::counters::log;
use crate::sys::thread;
use crate::uring::driver::Driver;
use crate::uring::net::send::SendBatch;

/// Maximum number of streams flushed before other tasks get a chance to run.
const FLUSH_BATCH: usize = 64;

/// Maximum time that a runtime waits at its end for the kernel to release buffers.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// The flusher of one shard. The streams it has taken are stored in the shard ([`Work`](super::dirty::Work)), because
/// the flusher may be dropped at any await, or not be polled for a long time.
pub(super) struct FlusherTask {
    turn: Arc<Turn>,
    index: usize,
    /// New dirty streams with their limits, during sorting. `since` is the time at which the first socket became dirty.
    taken: Vec<(Held, Duration)>,
    since: Option<Instant>,
    batch: Vec<Arc<dyn Flush>>,
    send_batch: SendBatch,
    sending: Vec<Arc<dyn Flush>>,
    waits: bool,
    /// Present once the shard has a ring.
    bell: Option<Bell>,
}

impl FlusherTask {
    pub(super) fn new(turn: Arc<Turn>, index: usize) -> Self {
        let (taken, batch, sending) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            turn,
            index,
            taken,
            since: None,
            batch,
            send_batch: SendBatch::default(),
            sending,
            waits: false,
            bell: None,
        }
    }

    fn shard(&self) -> &Shard {
        &self.turn.shards[self.index]
    }

    pub(super) async fn run(&mut self) {
        let mut stalled = false;
        loop {
            self.wait(stalled).await;
            if self.look(true) && self.turn.shards.len() > 1 {
                // A task that was just woken on a multi-thread runtime runs next, before others with work to batch.
                requeue().await;
                self.take();
                self.look(false);
            }
            while self.flush_batch() {
                yield_now().await;
            }
            if self.driver().is_some_and(Driver::has_work) {
                requeue().await;
            }
            stalled = self.driver().is_some_and(Driver::turn);
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
    fn look(&mut self, again: bool) -> bool {
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
            work.due.extend(work.waiting.extract_if(.., |dirty| dirty.is_due(now)).map(|dirty| dirty.stream));
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

    /// Flushes the first due streams, by the ring if there are several. Returns whether more are due.
    fn flush_batch(&mut self) -> bool {
        let mut work = self.turn.shards[self.index].work();
        let batch = work.due.len().min(FLUSH_BATCH);
        self.batch.extend(work.due.drain(..batch).filter_map(|stream| stream.get()));
        let more = !work.due.is_empty();
        drop(work);
        let joining = self.batch.iter().map(|stream| stream.joins()).fold(0, usize::saturating_add);
        let driver = if joining >= self.turn.together() { self.turn.driver() } else { None };
        let Some(driver) = driver else {
            self.batch.drain(..).for_each(Flush::flush);
            return more;
        };
        for stream in self.batch.drain(..) {
            match Arc::clone(&stream).begin() {
                Some(send_op) => {
                    self.send_batch.send_ops.push(send_op);
                    self.sending.push(stream);
                }
                None => stream.flush(),
            }
        }
        driver.send(&mut self.send_batch);
        for (stream, send_op) in self.sending.drain(..).zip(self.send_batch.send_ops.drain(..)) {
            stream.end(send_op);
        }
        more
    }

    fn driver(&self) -> Option<&Driver> {
        self.bell.as_ref()?;
        self.shard().ring.get()?.as_ref().ok().map(|reactor| &*reactor.driver)
    }

    /// Takes the streams that have become dirty. Waits for one if there is no other work.
    async fn wait(&mut self, stalled: bool) {
        poll_fn(|cx| {
            let turn = Arc::clone(&self.turn);
            let mut state = turn.shards[self.index].state();
            self.bell = self.bell.take().or_else(|| state.bell.take());
            let rang = self.bell.as_ref().is_some_and(|bell| bell.poll(cx));
            let ring = rang || stalled || self.driver().is_some_and(Driver::has_work);
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
        state.bell = None;
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
        due.into_iter().chain(waiting).chain(dirty).for_each(Held::flush);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Counted {
        writes: AtomicUsize,
        flushes: AtomicUsize,
    }

    impl Counted {
        fn write(&self) {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }

        fn flushes(&self) -> usize {
            self.flushes.load(Ordering::Relaxed)
        }
    }

    impl Flush for Counted {
        fn writes(&self) -> usize {
            self.writes.load(Ordering::Relaxed)
        }

        fn flush(self: Arc<Self>) {
            self.flushes.fetch_add(1, Ordering::Relaxed);
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    fn schedule(turn: &Arc<Turn>, stream: &Arc<Counted>, limit: Duration) {
        assert!(turn.schedule(held(stream), limit));
    }

    fn held(stream: &Arc<Counted>) -> Held {
        // `Kept`, so that no other thread flushes it.
        Held::Kept(Arc::clone(stream) as _)
    }

    async fn turns(n: usize) {
        for _ in 0..n {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_stream_that_is_written_to_once_is_flushed_soon() {
        let turn = Turn::current();
        let stream = Arc::new(Counted::default());
        for round in 1..=3 {
            stream.write();
            schedule(&turn, &stream, LONG);
            turns(4).await;
            assert_eq!(stream.flushes(), round);
        }
    }

    #[tokio::test]
    async fn writes_are_gathered_while_they_keep_coming() {
        let turn = Turn::current();
        let (busy, quiet) = (Arc::new(Counted::default()), Arc::new(Counted::default()));
        schedule(&turn, &busy, LONG);
        schedule(&turn, &quiet, LONG);
        for turn in 0..100 {
            if turn < 50 || turn % 2 == 0 {
                busy.write();
            }
            yield_now().await;
            assert_eq!(busy.flushes(), 0);
        }
        assert_eq!(quiet.flushes(), 1, "one stream does not wait for another");
        turns(4).await;
        assert_eq!(busy.flushes(), 1);
        assert_eq!(quiet.flushes(), 1);
    }

    #[tokio::test]
    async fn nothing_waits_longer_than_the_limit() {
        let turn = Turn::current();
        let stream = Arc::new(Counted::default());
        schedule(&turn, &stream, Duration::ZERO);
        for _ in 0..4 {
            stream.write();
            yield_now().await;
        }
        assert_eq!(stream.flushes(), 1);
    }

    #[tokio::test]
    async fn more_streams_than_one_batch_are_all_flushed() {
        let turn = Turn::current();
        let streams: Vec<_> = (0..FLUSH_BATCH * 3 + 5).map(|_| Arc::new(Counted::default())).collect();
        for stream in &streams {
            schedule(&turn, stream, LONG);
        }
        turns(10).await;
        assert!(streams.iter().all(|stream| stream.flushes() == 1));
    }

    #[test]
    fn a_runtime_that_ends_anywhere_flushes_every_stream() {
        for looks in 0..12 {
            // The runtime checks for its end after every poll of a task.
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().event_interval(1).build().unwrap();
            let streams: Vec<_> = (0..FLUSH_BATCH * 3 + 5).map(|_| Arc::new(Counted::default())).collect();
            runtime.block_on(async {
                let turn = Turn::current();
                let mut nothing = Box::pin(crate::uring::chain::Chain::new().nop().run());
                let _ = poll_fn(|cx| Poll::Ready(nothing.as_mut().poll(cx).is_ready())).await;
                for stream in &streams {
                    schedule(&turn, stream, LONG);
                }
                // The flusher is polled about once for each of these tasks, which are queued after it.
                for _ in 0..looks {
                    tokio::spawn(async {}).await.unwrap();
                }
            });
            drop(runtime);
            let flushes = streams.iter().map(|stream| stream.flushes());
            assert!(flushes.into_iter().all(|flushes| flushes == 1), "after {looks} looks");
        }
    }

    #[test]
    fn a_runtime_that_ends_flushes_once_more_and_then_refuses() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let stream = Arc::new(Counted::default());
        let turn = runtime.block_on(async {
            let turn = Turn::current();
            schedule(&turn, &stream, LONG);
            turn
        });
        drop(runtime);
        assert_eq!(stream.flushes(), 1);
        assert!(!turn.schedule(held(&stream), LONG));
        assert_eq!(Arc::strong_count(&stream), 1);
        // The backstop thread may hold the turn briefly.
        let since = Instant::now();
        while Arc::strong_count(&turn) > 1 {
            assert!(since.elapsed() < Duration::from_secs(30), "the flusher let go");
            std::thread::yield_now();
        }
    }
}
