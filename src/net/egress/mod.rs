//! The sending side of a stream: writes leave at once, or gather until the end of the turn.
//!
//! A write goes *through*, in one call with the bytes queued before it, if the peer has sent bytes since the last write
//! and so waits for an answer, if gathering is off, or if it carries a long slice of unknown origin. Other writes are
//! queued: short slices are copied, slices of known origin are kept by reference.
//!
//! - this file: writes, and the decision whether they gather.
//! - `state`: what the lock protects; `high_water`: the mark above which writers wait.
//! - `socket_writer`: the system calls. `flush`: at the end of a turn, and when the socket has room. `by_ring`,
//!   `ring_send`: in a batch by the ring (feature `uring-net`).
//! - `ready`: waiting for room. `raw`, `outlet`: sends by the caller, and by another task.
//! - `seen`, `leaving`, `tune`: what a handle sees and changes.
//! - `failure`, `close`, `linger`, `held_open`, `exit`: the ends.
//!
//! Invariants:
//! 1. Bytes leave in the order in which writes returned: every sender holds the lock and sends the queue first.
//! 2. While `blocked`, the writer's waker is armed with the runtime's driver, and nothing is sent before it is called.
//! 3. While bytes are `away`, handed out to the ring, only the ring sends; new writes gather behind them.
//! 4. A non-empty queue is scheduled, away or blocked, or the stream has failed.
//! 5. Once bytes are lost nothing more is sent: the peer must not read on after a gap.
//! 6. A shutdown ends the sending side of the socket once the queue is empty. Nothing is queued after a shutdown.

use std::fmt;
use std::io::{self, IoSlice};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::coop;

#[cfg(uring_net)]
pub(super) use self::held_open::HeldOpen;
pub(crate) use self::leaving::Leaving;
use self::state::EgressState;
use super::options::Options;
use super::profile::{Profile, ProfileCell};
use super::send_strategy::{SendStrategy, StrategySwitch};
use super::stats::{KernelStats, Reason, Record, StreamStats};
use crate::buf::origin::{Origin, OriginSlice, OriginSlices};
use crate::buf::queue::Queue;
use crate::runtime::{DirtyRef, Flush, Turn};
use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, BorrowedFd, OwnedFd};
use crate::sys::watch::Watched;
use by_ring::ByRing;
#[cfg(not(uring_net))]
pub(super) use by_ring::HeldOpen;
use socket_writer::{SendFailure, SocketWriter};

#[cfg_attr(not(uring_net), path = "no_by_ring.rs")]
mod by_ring;
mod close;
mod exit;
mod failure;
mod flush;
#[cfg(uring_net)]
mod held_open;
mod high_water;
mod leaving;
mod linger;
pub(super) mod outlet;
mod raw;
mod ready;
#[cfg(uring_net)]
mod ring_send;
mod seen;
mod socket_writer;
mod state;
mod tune;

/// Slices of unknown origin longer than this are sent at once, not copied.
const COPY_MAX: usize = 16 << 10;
/// Bytes a task sends before it yields to others.
const BURST: usize = 2 << 20;

/// A socket, the bytes to send on it, and the tasks that wait for it.
pub(super) struct Egress {
    writer: SocketWriter,
    turn: Arc<Turn>,
    options: Options,
    send_strategy: StrategySwitch,
    profile: ProfileCell,
    by_ring: ByRing,
    /// Whether the peer has sent bytes since the last write.
    peer_spoke: AtomicBool,
    /// Whether bytes wait in the socket although it is not ready to read, as far as the runtime's driver knows.
    unread: AtomicBool,
    /// Counts gathered writes, so that the flusher can check for new ones without the lock.
    writes: AtomicUsize,
    /// Whether there is a failure to return, so that flushes can check without the lock.
    failed: AtomicBool,
    /// The task that waits to read. It is woken for a failure.
    reader: Mutex<Option<Waker>>,
    state: Mutex<EgressState>,
    record: OnceLock<Arc<Record>>,
    me: Weak<Self>,
}

/// Waker for a stream that may send again: the socket has room, or the rate allows it.
#[derive(Default)]
struct Writable(OnceLock<Weak<Egress>>);

impl Wake for Writable {
    fn wake(self: Arc<Self>) {
        if let Some(egress) = self.0.get().and_then(Weak::upgrade) {
            egress.go_on();
        }
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Egress")
            .field("fd", &self.as_fd())
            .field("queued", &state.queued())
            .field("blocked", &state.blocked)
            .field("failure", &state.failure)
            .finish_non_exhaustive()
    }
}

impl Egress {
    /// Panics outside a tokio runtime with I/O enabled.
    #[track_caller]
    pub(super) fn new(socket: OwnedFd, turn: Arc<Turn>, options: Options) -> io::Result<Arc<Self>> {
        // The waker and the stream refer to each other, so the waker gets its reference later.
        let writable = Arc::new(Writable::default());
        let writer = SocketWriter::new(socket, turn.runtime().clone(), Waker::from(Arc::clone(&writable)));
        let by_ring = ByRing::new(&writer, &turn, &options);
        if !by_ring.receives {
            writer.io()?;
        }
        let egress = Arc::new_cyclic(|me| Self {
            writer,
            turn,
            send_strategy: StrategySwitch::new(options.send_strategy),
            profile: ProfileCell::new(Profile::System),
            by_ring,
            peer_spoke: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            writes: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            reader: Mutex::default(),
            state: Mutex::new(EgressState::new(&options)),
            record: OnceLock::new(),
            options,
            me: me.clone(),
        });
        let _ = writable.0.set(egress.me.clone());
        exit::register(&egress);
        if egress.options.profile != Profile::System {
            egress.set_profile(egress.options.profile);
        }
        Ok(egress)
    }

    /// Returns the socket's registration with the runtime's driver, to wait for readability.
    #[inline]
    pub(super) fn io(&self) -> io::Result<&Watched<Arc<OwnedFd>>> {
        if let Some(io) = self.writer.watched() {
            return Ok(io);
        }
        // The lock makes first calls exclusive.
        let _state = self.state();
        self.writer.io()
    }

    /// Records received bytes. Calls must not be concurrent.
    #[inline]
    pub(super) fn received(&self, bytes: usize) {
        self.peer_spoke.store(true, Ordering::Relaxed);
        self.writer.meter.received(bytes);
    }

    #[inline]
    pub(super) fn send_strategy(&self) -> SendStrategy {
        self.send_strategy.get()
    }

    pub(super) fn set_send_strategy(&self, strategy: SendStrategy) {
        self.send_strategy.set(strategy);
    }

    fn sends_files(&self) -> bool {
        self.send_strategy() != SendStrategy::NoSendfile
    }

    pub(super) fn queued(&self) -> usize {
        self.state().queued()
    }

    fn state(&self) -> MutexGuard<'_, EgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts bytes of `slices` in order. Returns their number. `Pending` means none; room wakes the task.
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let progress = ready!(coop::poll_proceed(cx));
        let written = self.write(Some(cx.waker()), slices);
        if written.is_ready() {
            progress.made_progress();
        }
        written
    }

    /// As [`poll_write`](Self::poll_write). Without `waker` the task is not woken.
    fn write(&self, waker: Option<&Waker>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        // The origin of each slice is looked up here and nowhere else. hyper passes at most 64 slices, usually few.
        match slices.len() {
            n @ ..=4 => self.write_from(waker, OriginSlices::new(slices, &mut [Origin::Unknown; 4][..n])),
            n @ ..=64 => self.write_from(waker, OriginSlices::new(slices, &mut [Origin::Unknown; 64][..n])),
            n => self.write_from(waker, OriginSlices::new(slices, &mut vec![Origin::Unknown; n])),
        }
    }

    fn write_from(&self, waker: Option<&Waker>, slices: OriginSlices<'_>) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        self.report(&mut state)?;
        if state.dead || state.shut_down {
            return Poll::Ready(Err(Errno::PIPE.into()));
        }
        let offered = slices.iter().map(|slice| slice.bytes().len()).sum();
        if let Some(limit) = self.gathers(&state, slices, offered) {
            state.enqueue(slices);
            state.record_bytes(offered, 0);
            self.writer.meter.frame();
            // Copying a short slice may read beyond the end of its file.
            if slices.iter().any(OriginSlice::is_torn) {
                return Poll::Ready(Err(self.fail_now(&mut state, SendFailure::Torn)));
            }
            // Written only under the lock, so a plain store suffices; an atomic increment costs more than the copy.
            self.writes.store(self.writes.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            let flush = state.needs_flush();
            drop(state);
            if flush {
                self.schedule(limit);
            }
            return Poll::Ready(Ok(offered));
        }
        if state.burst >= BURST
            && let Some(waker) = waker
        {
            state.burst = 0;
            waker.wake_by_ref();
            return Poll::Pending;
        }
        if !state.is_held()
            && let Some(n) = self.write_through(&mut state, slices, offered)?
        {
            return Poll::Ready(Ok(n));
        }
        self.check_runtime()?;
        (state.burst, state.refused) = (0, true);
        if let Some(waker) = waker {
            state.waiter = Some(waker.clone());
        }
        Poll::Pending
    }

    /// Returns the maximum time that a write may wait in the queue, or `None` if it goes through.
    fn gathers(&self, state: &EgressState, slices: OriginSlices<'_>, offered: usize) -> Option<Duration> {
        let (mut limit, strategy) = (self.options.limit, self.send_strategy());
        if limit.is_zero() || strategy == SendStrategy::NoCork || state.queued() + offered > state.high {
            return None;
        }
        // Empty writes, and writes that must fail, go to the kernel for its own result.
        if state.failure.is_some() || state.ended || (offered == 0 && state.queued() == 0) {
            return None;
        }
        if !state.is_held() && self.peer_spoke.load(Ordering::Relaxed) {
            self.peer_spoke.store(false, Ordering::Relaxed);
            if state.scheduled || !self.by_ring.answers_together(strategy, &self.turn) {
                return None;
            }
            limit = Duration::ZERO;
        }
        // The rest of a file cannot be gathered with other bytes; HTTP/2 frames include their heads.
        if slices.is_one_file() {
            return None;
        }
        let is_short = |slice: OriginSlice<'_>| slice.bytes().len() <= COPY_MAX;
        let fits = !Queue::all_are_full() && slices.iter().all(|slice| is_short(slice) || slice.is_known());
        fits.then_some(limit)
    }

    fn write_through(
        &self,
        state: &mut EgressState,
        slices: OriginSlices<'_>,
        offered: usize,
    ) -> io::Result<Option<usize>> {
        if offered == 0 && state.queued() > 0 {
            return Ok(Some(0));
        }
        let waited = state.queue.len();
        if !self.may_send(state, waited + offered) {
            return Ok(None);
        }
        match self.writer.send_through(&mut state.queue, slices, self.sends_files()) {
            Ok(sent) => {
                state.blocked = sent.is_none();
                // A full socket may have taken a part of the queue.
                let through = sent.unwrap_or(0);
                self.record_bytes(state, through, waited - state.queue.len() + through);
                if let Some(sent) = sent {
                    state.burst += sent;
                    self.writer.meter.frame();
                    self.writer.meter.count_flush(Reason::Through);
                }
                state.settle();
                self.tune_if_due(state);
                Ok(sent)
            }
            Err(failure) => Err(self.fail_now(state, failure)),
        }
    }

    /// Schedules a flush at the end of the turn, at most after `limit`; flushes now if the runtime is gone. Must be
    /// called without the lock, after [`EgressState::needs_flush`]: a runtime that shuts down flushes inside this call.
    fn schedule(&self, limit: Duration) {
        if !self.turn.schedule(DirtyRef::Weak(self.me.clone()), limit)
            && let Some(me) = self.me.upgrade()
        {
            me.flush();
        }
    }

    /// Sends the queue as far as the socket accepts it, unless sending is blocked.
    fn send_queue(&self, state: &mut EgressState, reason: Reason) {
        if state.is_held() || state.failure.is_some() || state.queue.is_empty() {
            return;
        }
        let waited = state.queue.len();
        if !self.may_send(state, waited) {
            return;
        }
        self.offer(state, reason);
        if state.failure.is_none() {
            self.tune_if_due(state);
        }
    }

    /// Sends the queue as far as the socket accepts it, whether or not sending is blocked.
    fn offer(&self, state: &mut EgressState, reason: Reason) {
        let waited = state.queue.len();
        self.writer.meter.count_flush(reason);
        match self.writer.send_queue(&mut state.queue, self.sends_files()) {
            Ok(sent) => {
                self.record_bytes(state, 0, waited - state.queue.len());
                state.blocked = sent.is_none();
                state.settle();
                self.close_if_due(state);
            }
            Err(failure) => self.fail(state, failure),
        }
    }

    pub(super) fn runtime(&self) -> &Handle {
        self.turn.runtime()
    }
}

impl AsFd for Egress {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        exit::unregister(self);
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).lose(&self.writer.meter);
        let record = self.record.get().filter(|record| Arc::strong_count(record) > 1);
        if record.is_none() && self.options.on_close.is_none() {
            return;
        }
        let kernel = Some(KernelStats::of(self.as_fd()));
        let numbers = StreamStats { kernel, ..self.writer.meter.stats(0, false, self.send_strategy()) };
        if let Some(record) = record {
            record.set(&numbers);
        }
        if let Some(on_close) = &self.options.on_close {
            // The hook may run inside a flush of many streams, which its panic must not end.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(|| on_close.0(&numbers)));
        }
    }
}

#[cfg(test)]
mod tests;
