//! State of a writer, shared between its owner and the flush at the end of the turn.
//!
//! Without a flush at the end of the turn only the owner takes the lock. With it, the runtime flushes too, and the
//! inner writer gets the waker of a [`FlushWaker`], which schedules the next flush.
//!
//! Invariants with a flush at the end of the turn:
//! 1. The inner writer is polled only under the lock and with the `FlushWaker`, so a task that gives up does not take
//!    the registered waker with it.
//! 2. While the `FlushWaker` is armed, the inner writer will wake it and is not polled before.
//! 3. A write buffer that is not idle is armed or scheduled, or its owner is in a call that schedules it.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::io::AsyncWrite;

use super::write_buffer::WriteBuffer;
use crate::counters::{Counter, count};
use crate::runtime::{DirtyRef, Flush, Turn};

pub(super) struct WriterShared<W> {
    ends: Option<Ends>,
    /// Number of writes, read by the turn without the lock.
    writes: AtomicUsize,
    state: Mutex<WriterState<W>>,
}

pub(super) struct WriterState<W> {
    pub(super) write_buffer: WriteBuffer<W>,
    waiter: Option<Waker>,
}

#[derive(Clone)]
pub(super) struct Ends {
    flush_waker: Arc<FlushWaker>,
    waker: Waker,
}

/// Target of the inner writer's waker. It takes no lock, because the waker may be called during a poll.
struct FlushWaker {
    turn: Arc<Turn>,
    limit: Duration,
    of: Weak<dyn Flush>,
    armed: AtomicBool,
    /// Whether the inner writer is being polled. The polling code checks `armed` afterwards.
    polling: AtomicBool,
    scheduled: AtomicBool,
    /// Whether the runtime has ended, after which there are no turns.
    gone: AtomicBool,
}

impl Ends {
    pub(super) fn new(turn: Arc<Turn>, limit: Duration, of: Weak<dyn Flush>) -> Self {
        let flag = AtomicBool::default;
        let flush_waker =
            FlushWaker { turn, limit, of, armed: flag(), polling: flag(), scheduled: flag(), gone: flag() };
        let flush_waker = Arc::new(flush_waker);
        Self { waker: Waker::from(Arc::clone(&flush_waker)), flush_waker }
    }

    /// Polls `work` with the `FlushWaker`, unless that is armed. A panic of the inner writer becomes an error: it
    /// must not end the flusher, which serves other writers too.
    fn poll<W: AsyncWrite + Unpin>(
        &self,
        write_buffer: &mut WriteBuffer<W>,
        work: impl FnOnce(&mut WriteBuffer<W>, &mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        write_buffer.check()?;
        if self.flush_waker.armed.load(SeqCst) {
            return Poll::Pending;
        }
        self.flush_waker.polling.store(true, SeqCst);
        self.flush_waker.armed.store(true, SeqCst);
        let done = catch_unwind(AssertUnwindSafe(|| work(write_buffer, &mut Context::from_waker(&self.waker))));
        let done =
            done.unwrap_or_else(|_| Poll::Ready(Err(write_buffer.fail(io::Error::other("the inner writer panicked")))));
        if done.is_ready() {
            self.flush_waker.armed.store(false, SeqCst);
        }
        // From here on the `FlushWaker` schedules a flush itself. If it was woken earlier, it is no longer armed.
        self.flush_waker.polling.store(false, SeqCst);
        done
    }
}

impl FlushWaker {
    /// Schedules a flush at the end of the turn, or flushes once now if the runtime has ended. Called without the lock.
    fn schedule(&self) {
        if self.scheduled.swap(true, SeqCst) {
            return;
        }
        let Some(writer) = self.of.upgrade() else { return };
        if !self.turn.schedule(DirtyRef::Kept(Arc::clone(&writer)), self.limit) {
            self.gone.store(true, SeqCst);
            writer.flush();
        }
    }
}

impl Wake for FlushWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.armed.store(false, SeqCst);
        if !self.polling.load(SeqCst) {
            self.schedule();
        }
    }
}

impl<W: AsyncWrite + Unpin> WriterShared<W> {
    pub(super) fn new(write_buffer: WriteBuffer<W>, ends: Option<Ends>) -> Self {
        Self { ends, writes: AtomicUsize::new(0), state: Mutex::new(WriterState { write_buffer, waiter: None }) }
    }

    pub(super) fn leaves_by_itself(&self) -> bool {
        self.ends.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, WriterState<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the state, then schedules a flush if one is needed (invariant 3).
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut WriterState<W>) -> T) -> T {
        let mut state = self.lock();
        let done = work(&mut state);
        let waits = !state.write_buffer.is_idle() || state.waiter.is_some();
        drop(state);
        if let Some(Ends { flush_waker, .. }) = &self.ends
            && waits
            && !flush_waker.armed.load(SeqCst)
        {
            flush_waker.schedule();
        }
        done
    }

    pub(super) fn note_write(&self) {
        // Written only under the lock, so no atomic read-modify-write is needed.
        self.writes.store(self.writes.load(Relaxed).wrapping_add(1), Relaxed);
    }

    pub(super) fn poll(
        &self,
        state: &mut WriterState<W>,
        cx: Option<&mut Context<'_>>,
        work: impl FnOnce(&mut WriteBuffer<W>, &mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        match (&self.ends, cx) {
            (Some(ends), cx) => {
                let done = ends.poll(&mut state.write_buffer, work);
                if let Some(cx) = cx {
                    let waits = done.is_pending();
                    state.waiter = waits.then(|| cx.waker().clone());
                }
                done
            }
            (None, Some(cx)) => work(&mut state.write_buffer, cx),
            (None, None) => work(&mut state.write_buffer, &mut Context::from_waker(Waker::noop())),
        }
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> Flush for WriterShared<W> {
    fn writes(&self) -> usize {
        self.writes.load(Relaxed)
    }

    fn flush(self: Arc<Self>) {
        let Some(Ends { flush_waker, .. }) = &self.ends else { return };
        flush_waker.scheduled.store(false, SeqCst);
        count(Counter::TurnFlushes, 1);
        let mut state = self.lock();
        // An error is kept for the owner.
        let done = self.poll(&mut state, None, WriteBuffer::poll_drain);
        let waiter = if done.is_ready() || state.write_buffer.check_room() { state.waiter.take() } else { None };
        let again = done.is_pending() && !flush_waker.armed.load(SeqCst) && !flush_waker.gone.load(SeqCst);
        drop(state);
        if again {
            flush_waker.schedule();
        }
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl<W> fmt::Debug for WriterShared<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("WriterShared")
            .field("gather_limit", &self.ends.as_ref().map(|ends| ends.flush_waker.limit))
            .field("write_buffer", &state.write_buffer)
            .finish()
    }
}
