//! A writer shared with the turn: who writes when, and who is woken.
//!
//! Without the turn this is an outlet behind a lock that only its owner takes. With it the flusher writes too, and what
//! the inner writer wakes is a bell of ours, which has the turn look again.
//!
//! Invariants, where there is a turn:
//! 1. The inner writer is polled under the lock and with the bell only, so that no task that gives up takes its waker along.
//! 2. While the bell is armed, the inner writer has promised to ring it; nobody polls it before.
//! 3. An outlet that is not idle is armed or scheduled, or its owner is in a call and will see to it.

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
use crate::runtime::{Flush, Held, Turn};

/// A writer and, if it leaves at the end of the turn, what has it written there.
pub(super) struct Shared<W> {
    ends: Option<Ends>,
    /// Counts what was queued, for the turn to look at without the lock.
    writes: AtomicUsize,
    state: Mutex<State<W>>,
}

pub(super) struct State<W> {
    pub(super) write_buffer: WriteBuffer<W>,
    /// The owner, who waits for room or for everything to be written.
    waiter: Option<Waker>,
}

/// How a writer leaves at the end of the turn.
#[derive(Clone)]
pub(super) struct Ends {
    bell: Arc<Bell>,
    /// The bell's.
    waker: Waker,
}

/// What the waker of the inner writer leads to. Rings without the lock, because an inner writer may call its waker while
/// it is being polled.
struct Bell {
    turn: Arc<Turn>,
    limit: Duration,
    /// The writer.
    of: Weak<dyn Flush>,
    armed: AtomicBool,
    /// The inner writer is being polled: whoever does so looks at `armed` afterwards.
    polling: AtomicBool,
    scheduled: AtomicBool,
    /// The runtime has ended: there are no turns any more.
    gone: AtomicBool,
}

impl Ends {
    pub(super) fn new(turn: Arc<Turn>, limit: Duration, of: Weak<dyn Flush>) -> Self {
        let flag = AtomicBool::default;
        let bell = Bell { turn, limit, of, armed: flag(), polling: flag(), scheduled: flag(), gone: flag() };
        let bell = Arc::new(bell);
        Self { waker: Waker::from(Arc::clone(&bell)), bell }
    }

    /// Polls `work` with the bell, unless that is armed. A panic of the inner writer becomes an error: it must not end
    /// the flusher, which works for others too.
    fn poll<W: AsyncWrite + Unpin>(
        &self,
        write_buffer: &mut WriteBuffer<W>,
        work: impl FnOnce(&mut WriteBuffer<W>, &mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        write_buffer.check()?;
        if self.bell.armed.load(SeqCst) {
            return Poll::Pending;
        }
        self.bell.polling.store(true, SeqCst);
        self.bell.armed.store(true, SeqCst);
        let done = catch_unwind(AssertUnwindSafe(|| work(write_buffer, &mut Context::from_waker(&self.waker))));
        let done =
            done.unwrap_or_else(|_| Poll::Ready(Err(write_buffer.fail(io::Error::other("the inner writer panicked")))));
        if done.is_ready() {
            self.bell.armed.store(false, SeqCst);
        }
        // From here on the bell schedules by itself; if it rang before, it is not armed any more.
        self.bell.polling.store(false, SeqCst);
        done
    }
}

impl Bell {
    /// Has the writer flushed at the end of the turn, or now, once, if the runtime is gone. Called without the lock.
    fn schedule(&self) {
        if self.scheduled.swap(true, SeqCst) {
            return;
        }
        let Some(writer) = self.of.upgrade() else { return };
        if !self.turn.schedule(Held::Kept(Arc::clone(&writer)), self.limit) {
            self.gone.store(true, SeqCst);
            writer.flush();
        }
    }
}

impl Wake for Bell {
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

impl<W: AsyncWrite + Unpin> Shared<W> {
    pub(super) fn new(write_buffer: WriteBuffer<W>, ends: Option<Ends>) -> Self {
        Self { ends, writes: AtomicUsize::new(0), state: Mutex::new(State { write_buffer, waiter: None }) }
    }

    pub(super) fn leaves_by_itself(&self) -> bool {
        self.ends.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the state, and afterwards sees to what waits (invariant 3).
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut State<W>) -> T) -> T {
        let mut state = self.lock();
        let done = work(&mut state);
        let waits = !state.write_buffer.is_idle() || state.waiter.is_some();
        drop(state);
        if let Some(Ends { bell, .. }) = &self.ends
            && waits
            && !bell.armed.load(SeqCst)
        {
            bell.schedule();
        }
        done
    }

    /// Notes that something was queued.
    pub(super) fn note_write(&self) {
        // Under the lock only, so no read-modify-write.
        self.writes.store(self.writes.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Polls `work`, which writes, for a task that waits for it or, without one, as far as it goes now.
    pub(super) fn poll(
        &self,
        state: &mut State<W>,
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
            // Whoever waits later polls again, with a waker.
            (None, None) => work(&mut state.write_buffer, &mut Context::from_waker(Waker::noop())),
        }
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> Flush for Shared<W> {
    fn writes(&self) -> usize {
        self.writes.load(Relaxed)
    }

    fn flush(self: Arc<Self>) {
        let Some(Ends { bell, .. }) = &self.ends else { return };
        bell.scheduled.store(false, SeqCst);
        count(Counter::TurnFlushes, 1);
        let mut state = self.lock();
        // The error, if there is one, is kept for the owner.
        let done = self.poll(&mut state, None, WriteBuffer::poll_drain);
        let waiter = if done.is_ready() || state.write_buffer.has_room() { state.waiter.take() } else { None };
        let again = done.is_pending() && !bell.armed.load(SeqCst) && !bell.gone.load(SeqCst);
        drop(state);
        if again {
            bell.schedule();
        }
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl<W> fmt::Debug for Shared<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Shared")
            .field("end_of_turn", &self.ends.as_ref().map(|ends| ends.bell.limit))
            .field("outlet", &state.write_buffer)
            .finish()
    }
}
