//! The sending side of a stream: writes leave at once, or gather until the end of the turn.
//!
//! A write goes *through*, in one call with the bytes queued before it, if the peer has sent bytes since the last write
//! and so waits for an answer, if the last turns had one write each, if gathering is off, or if it carries a long slice
//! of unknown origin. Other writes are queued: short slices are copied, slices of known origin are kept by reference.
//!
//! - this file: the type, and what its parts share.
//! - `at_once`: the common write, sent at once. `single_writes`: whether a write is likely the only one of its turn.
//! - `gather`: other writes, and the decision whether they gather.
//! - `state`: what the lock protects; `high_water`: the mark above which writers wait.
//! - `socket_writer`: the system calls. `flush`: at the end of a turn, and when the socket has room.
//! - `ready`: waiting for room. `raw`, `outlet`, `records`: sends by the caller, and by another task.
//! - `seen`, `leaving`, `tune`: what a handle sees and changes.
//! - `failure`, `reader_waker`, `close`, `linger`, `exit`: the ends.
//!
//! Invariants:
//! 1. Bytes leave in the order in which writes returned: every sender holds the lock and sends the queue first.
//! 2. While `blocked`, the writer's waker is armed with the runtime's driver, and nothing is sent before it is called.
//! 3. A non-empty queue is scheduled or blocked, or the stream has failed.
//! 4. Once bytes are lost nothing more is sent: the peer must not read on after a gap.
//! 5. A shutdown ends the sending side of the socket once the queue is empty. Nothing is queued after a shutdown.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::coop;

pub use self::leaving::Leaving;
use self::state::EgressState;
use super::options::Options;
use super::profile::{Profile, ProfileCell};
#[cfg(feature = "server")]
use super::resumed::Resumed;
use super::send_strategy::{SendStrategy, StrategySwitch};
use super::stats::{KernelStats, Reason, Record, StreamStats};
use crate::runtime::{DirtyRef, Flush, Turn};
use crate::sync::guarded;
use crate::sys::fd::{AsFd, BorrowedFd, OwnedFd};
use crate::sys::watch::Watched;
use reader_waker::ReaderWaker;
use socket_writer::SocketWriter;

mod at_once;
mod close;
mod exit;
mod failure;
mod flush;
mod gather;
mod high_water;
mod leaving;
mod linger;
pub(super) mod outlet;
mod raw;
mod reader_waker;
mod ready;
#[cfg(tls)]
pub(super) mod records;
mod seen;
mod single_writes;
mod socket_writer;
mod state;
mod tune;

/// Slices of unknown origin longer than this are sent at once, not copied.
const COPY_MAX: usize = 16 << 10;

/// A socket, the bytes to send on it, and the tasks that wait for it.
pub(super) struct Egress {
    writer: SocketWriter,
    turn: Arc<Turn>,
    options: Arc<Options>,
    send_strategy: StrategySwitch,
    profile: ProfileCell,
    /// Whether the peer has sent bytes since the last write.
    peer_spoke: AtomicBool,
    /// Whether the next write may be the only one of its turn, so that writes can check without the lock.
    expects_single: AtomicBool,
    /// Whether the socket is not given to another process.
    stays: AtomicBool,
    /// Whether bytes wait in the socket although it is not ready to read, as far as the runtime's driver knows.
    unread: AtomicBool,
    /// Counts gathered writes, so that the flusher can check for new ones without the lock.
    writes: AtomicUsize,
    /// Whether there is a failure to return, so that flushes can check without the lock.
    failed: AtomicBool,
    /// The task that waits to read. It is woken for a failure.
    reader: ReaderWaker,
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
            .field("queued", &state.queue.len())
            .field("blocked", &state.blocked)
            .field("failure", &state.failure)
            .finish_non_exhaustive()
    }
}

impl Egress {
    /// Panics outside a tokio runtime with I/O enabled.
    #[track_caller]
    pub(super) fn new(socket: OwnedFd, turn: Arc<Turn>, options: impl Into<Arc<Options>>) -> io::Result<Arc<Self>> {
        let options: Arc<Options> = options.into();
        // The waker and the stream refer to each other, so the waker gets its reference later.
        let writable = Arc::new(Writable::default());
        let writer = SocketWriter::new(socket, turn.runtime(), Waker::from(Arc::clone(&writable)))?;
        let egress = Arc::new_cyclic(|me| Self {
            writer,
            turn,
            send_strategy: StrategySwitch::new(options.send_strategy),
            profile: ProfileCell::new(Profile::System),
            peer_spoke: AtomicBool::new(false),
            expects_single: AtomicBool::new(false),
            stays: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            writes: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            reader: ReaderWaker::default(),
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

    /// Keeps the socket from being given to another process.
    pub(super) fn stay(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }

    pub(super) fn stays(&self) -> bool {
        self.stays.load(Ordering::Relaxed)
    }

    /// Returns the socket's registration with the runtime's driver, to wait for readability.
    #[inline]
    pub(super) fn watched(&self) -> &Watched {
        self.writer.watched()
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
        self.state().queue.len()
    }

    #[cfg(feature = "server")]
    pub(super) fn resumed(&self) -> Option<&Resumed> {
        self.options.resumed.as_deref()
    }

    fn state(&self) -> MutexGuard<'_, EgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts bytes of `slices` in order. Returns their number. `Pending` means none; room wakes the task.
    #[inline]
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let progress = ready!(coop::poll_proceed(cx));
        let written = match self.send_at_once(slices) {
            Some(sent) => Poll::Ready(sent),
            None => self.write(Some(cx.waker()), slices),
        };
        if written.is_ready() {
            progress.made_progress();
        }
        written
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
        if state.blocked || state.failure.is_some() || state.queue.is_empty() {
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
            guarded(|| on_close.0(&numbers));
        }
    }
}

#[cfg(test)]
mod tests;
