//! The sending side of a stream: at once, or gathered until the end of the turn.
//!
//! A write goes *through* (one `sendmsg` of the queue and the caller's slices, or `sendfile`) when the peer has spoken
//! since the last write and so waits for an answer, when gathering is off, or when it carries a long slice of unknown
//! origin. Other writes are queued: short ones copied, those of known origin kept by reference.
//!
//! Invariants:
//! 1. Bytes leave in the order in which writes returned: whoever sends holds the lock and sends the queue first.
//! 2. While `blocked`, the waker of this stream is armed with the runtime's driver; nobody tries to send before it fires.
//! 3. A queue that is not empty has someone to empty it: it is scheduled, blocked, or its stream has failed.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::coop;

use crate::buf::origin::{self, Kept};
use crate::buf::queue::{Front, Queue};
use crate::kernel::call::{self, IOV_LIMIT};
use crate::kernel::caps::Capabilities;
use crate::kernel::{map, socket};
use crate::observe::counters::{Counter, count};
use crate::turn::{Flush, Turn};

/// Slices of a file at least this long are sent by `sendfile`; shorter ones cost less copied from their mapping.
const SENDFILE_MIN: usize = 256 << 10;
/// Most bytes one `sendfile` moves.
const SENDFILE_MAX: usize = 1 << 20;
/// Slices of known origin at least this long are kept rather than copied.
const KEEP_MIN: usize = 2 << 10;
/// Slices of unknown origin longer than this are sent at once rather than copied.
const COPY_MAX: usize = 16 << 10;
/// Bytes a task sends before it lets others run.
const BURST: usize = 2 << 20;
/// Queued bytes of all streams beyond which nothing more is gathered.
const PROCESS_MAX: usize = 256 << 20;

/// Queued bytes of all streams.
static QUEUED: AtomicUsize = AtomicUsize::new(0);

/// How a stream gathers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gather {
    /// Longest time a byte waits for company; zero sends every write at once.
    pub(crate) limit: Duration,
    /// Queued bytes beyond which writers wait; they are woken at half of it.
    pub(crate) high: usize,
}

impl Default for Gather {
    fn default() -> Self {
        Self { limit: Duration::from_micros(200), high: 64 << 10 }
    }
}

/// A socket, what waits to be sent on it, and who waits for that.
pub(crate) struct Egress {
    io: AsyncFd<OwnedFd>,
    turn: Arc<Turn>,
    gather: Gather,
    /// The peer has sent something since our last write.
    peer_spoke: AtomicBool,
    state: Mutex<State>,
    me: Weak<Self>,
}

#[derive(Default)]
struct State {
    queue: Queue,
    /// The writer that waits for room, or for the queue to be empty.
    waiter: Option<Waker>,
    scheduled: bool,
    blocked: bool,
    failure: Option<Failure>,
    /// Wakes this stream when the socket has room; made when it first had none.
    writable: Option<Waker>,
    /// Bytes sent since the writing task last had to wait.
    burst: usize,
}

/// Why nothing more can be sent; kept because errors surface on later calls.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Errno(Errno),
    /// The file behind a response became shorter than what was promised.
    Torn,
}

impl State {
    /// Whether the queue has nobody yet to empty it (invariant 3); whoever is told so has to schedule the stream.
    fn needs_flush(&mut self) -> bool {
        let needs = !self.scheduled && !self.blocked && !self.queue.is_empty();
        self.scheduled |= needs;
        needs
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Errno(errno) => errno.into(),
            Failure::Torn => Self::new(io::ErrorKind::UnexpectedEof, "the file shrank while it was being sent"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Errno(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Egress")
            .field("fd", self.io.get_ref())
            .field("queued", &state.queue.len())
            .field("blocked", &state.blocked)
            .field("failure", &state.failure)
            .finish_non_exhaustive()
    }
}

impl Egress {
    pub(crate) fn new(fd: OwnedFd, turn: Arc<Turn>, gather: Gather) -> io::Result<Arc<Self>> {
        let io = socket::watch(fd, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Arc::new_cyclic(|me| Self {
            io,
            turn,
            gather,
            peer_spoke: AtomicBool::new(false),
            state: Mutex::default(),
            me: me.clone(),
        }))
    }

    /// The socket, for reading and for options.
    pub(crate) fn io(&self) -> &AsyncFd<OwnedFd> {
        &self.io
    }

    /// Notes that something was received.
    #[inline]
    pub(crate) fn peer_spoke(&self) {
        self.peer_spoke.store(true, Ordering::Relaxed);
    }

    /// Bytes that wait to be sent.
    pub(crate) fn queued(&self) -> usize {
        self.state().queue.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes of `slices` in order; says how many. `Pending` means none: the task is woken when there is room.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let progress = ready!(coop::poll_proceed(cx));
        let mut state = self.state();
        if map::take_touched_torn() {
            // Whoever wrote this has just read zeros where its file has ended: it must not pass for the whole.
            self.fail(&mut state, Failure::Torn);
        }
        if let Some(failure) = state.failure {
            return Poll::Ready(Err(failure.into()));
        }
        let offered = slices.iter().map(|s| s.len()).sum();
        if offered == 0 {
            return Poll::Ready(Ok(0));
        }
        if state.burst >= BURST {
            state.burst = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let took = if self.gathers(&state, slices, offered) {
            self.enqueue(&mut state, slices, offered);
            if state.needs_flush() {
                drop(state);
                self.schedule();
            }
            progress.made_progress();
            return Poll::Ready(Ok(offered));
        } else if state.blocked {
            None
        } else {
            match self.send_through(&mut state, slices) {
                Ok(took) => took,
                Err(failure) => {
                    self.fail(&mut state, failure);
                    return Poll::Ready(Err(failure.into()));
                }
            }
        };
        match took {
            Some(n) => {
                progress.made_progress();
                Poll::Ready(Ok(n))
            }
            None => {
                state.burst = 0;
                state.waiter = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whether a write is to wait in the queue.
    fn gathers(&self, state: &State, slices: &[IoSlice<'_>], offered: usize) -> bool {
        if self.gather.limit.is_zero() || state.queue.len() + offered > self.gather.high {
            return false;
        }
        let answers = !state.blocked && self.peer_spoke.load(Ordering::Relaxed);
        if answers {
            self.peer_spoke.store(false, Ordering::Relaxed);
        }
        !answers
            && QUEUED.load(Ordering::Relaxed) < PROCESS_MAX
            && slices.iter().all(|s| s.len() <= COPY_MAX || origin::is_known(s))
    }

    fn enqueue(&self, state: &mut State, slices: &[IoSlice<'_>], offered: usize) {
        let mut copied = 0;
        for slice in slices {
            match Some(slice).filter(|s| s.len() >= KEEP_MIN).and_then(|s| Kept::of(s)) {
                Some(kept) => state.queue.push_kept(kept, from_file(slice)),
                None => {
                    state.queue.push_copy(slice);
                    copied += slice.len();
                }
            }
        }
        QUEUED.fetch_add(offered, Ordering::Relaxed);
        count(Counter::Gathered, 1);
        count(Counter::BytesCopied, copied as u64);
        count(Counter::BytesHeld, (offered - copied) as u64);
        self.turn.wrote();
    }

    /// Has the queue flushed at the end of the turn, or now if the runtime is gone. Called without the lock, after
    /// [`State::needs_flush`]: a runtime that shuts down flushes from inside this call.
    fn schedule(&self) {
        let Some(me) = self.me.upgrade() else { return };
        let me: Arc<dyn Flush> = me;
        if let Err(me) = self.turn.schedule(me, self.gather.limit) {
            me.flush();
        }
    }

    /// Sends the queue and then `slices` until the socket is full or a call's worth is sent. Says how many bytes of
    /// `slices` left; `None` if there was no room for any.
    fn send_through(&self, state: &mut State, slices: &[IoSlice<'_>]) -> Result<Option<usize>, Failure> {
        loop {
            if !state.queue.fits_one_call(IOV_LIMIT) {
                self.send_queue(state)?;
                if !state.queue.is_empty() {
                    return Ok(None);
                }
            }
            // Taken out so that its memory can be borrowed while `state` changes.
            let queue = std::mem::take(&mut state.queue);
            let sent = self.send_both(state, &queue, slices);
            let queued = queue.len();
            state.queue = queue;
            let Some(sent) = sent? else { return Ok(None) };
            self.advance(state, sent.min(queued));
            state.burst += sent;
            if sent > queued {
                return Ok(Some(sent - queued));
            }
        }
    }

    /// Sends all of `queue` and the memory at the front of `slices` in one call, and a piece of a file behind it in
    /// another. Says how many bytes left.
    fn send_both(&self, state: &mut State, queue: &Queue, slices: &[IoSlice<'_>]) -> Result<Option<usize>, Failure> {
        let mut iov = [IoSlice::new(&[]); IOV_LIMIT];
        let mut used = match queue.front(&mut iov) {
            Front::Memory { slices, .. } => slices,
            _ => 0,
        };
        let mut offered = queue.len();
        let mut file = None;
        for slice in slices.iter().filter(|s| !s.is_empty()) {
            if from_file(slice) {
                file = origin::file_of(slice).map(|(fd, offset)| (fd, offset, slice.len()));
                break;
            }
            if used == IOV_LIMIT {
                break;
            }
            iov[used] = IoSlice::new(slice);
            used += 1;
            offered += slice.len();
        }
        let mut sent = 0;
        if used > 0 {
            let more = file.is_some();
            match self.try_send(state, |fd| call::send(fd, &iov[..used], more))? {
                Some(n) => sent = n,
                None => return Ok(None),
            }
            if sent < offered {
                count(Counter::PartialWrites, 1);
                return Ok(Some(sent));
            }
        }
        match file {
            Some((fd, offset, len)) => match self.try_send_file(state, fd, offset, len)? {
                Some(n) => Ok(Some(sent + n)),
                None => Ok(Some(sent).filter(|&n| n > 0)),
            },
            None => Ok(Some(sent)),
        }
    }

    /// Sends the queue as far as the socket takes it.
    fn send_queue(&self, state: &mut State) -> Result<(), Failure> {
        loop {
            let mut iov = [IoSlice::new(&[]); IOV_LIMIT];
            let queue = std::mem::take(&mut state.queue);
            let sent = match queue.front(&mut iov) {
                Front::Empty => {
                    state.queue = queue;
                    return Ok(());
                }
                Front::Memory { slices, more, .. } => self.try_send(state, |fd| call::send(fd, &iov[..slices], more)),
                Front::File { file, offset, len } => self.try_send_file(state, file, offset, len),
            };
            state.queue = queue;
            match sent? {
                Some(n) => self.advance(state, n),
                None => return Ok(()),
            }
        }
    }

    fn advance(&self, state: &mut State, n: usize) {
        state.queue.advance(n);
        QUEUED.fetch_sub(n, Ordering::Relaxed);
    }

    fn try_send_file(
        &self,
        state: &mut State,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Result<Option<usize>, Failure> {
        let sent = self.try_send(state, |fd| call::send_file(fd, file, offset, len.min(SENDFILE_MAX)))?;
        match sent {
            Some(0) => return Err(Failure::Torn),
            Some(n) => count(Counter::BytesBySendfile, n as u64),
            None => {}
        }
        Ok(sent)
    }

    /// Runs `send`; `None` if the socket has no room, and then its waker is armed (invariant 2).
    fn try_send(
        &self,
        state: &mut State,
        mut send: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Result<Option<usize>, Failure> {
        loop {
            match self.io.try_io(Interest::WRITABLE, |fd| send(fd.as_fd())) {
                Ok(n) => {
                    count(Counter::Writes, 1);
                    count(Counter::BytesWritten, n as u64);
                    return Ok(Some(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    count(Counter::WouldBlock, 1);
                    let me = &self.me;
                    let writable = state.writable.get_or_insert_with(|| Waker::from(Arc::new(Writable(me.clone()))));
                    match self.io.poll_write_ready(&mut Context::from_waker(writable)) {
                        // Room came while we looked.
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(e)) => return Err(e.into()),
                        Poll::Pending => {
                            state.blocked = true;
                            return Ok(None);
                        }
                    }
                }
                // The mapping a slice lies in has lost its file.
                Err(e) if Errno::from_io_error(&e) == Some(Errno::FAULT) => return Err(Failure::Torn),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Ends the stream: what waits is lost, and the peer must not take what it has for the whole.
    fn fail(&self, state: &mut State, failure: Failure) {
        state.failure = Some(failure);
        let lost = state.queue.clear();
        QUEUED.fetch_sub(lost, Ordering::Relaxed);
        count(Counter::BytesLost, lost as u64);
        if matches!(failure, Failure::Torn) {
            count(Counter::TornFiles, 1);
            socket::reset_on_close(self.io.as_fd());
        }
        // A task that only reads must learn of it too.
        socket::shutdown_both(self.io.as_fd());
    }

    /// Ready once every byte that was written has been taken by the kernel.
    pub(crate) fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state();
        if state.failure.is_none()
            && !state.blocked
            && let Err(failure) = self.send_queue(&mut state)
        {
            self.fail(&mut state, failure);
        }
        match state.failure {
            Some(failure) => Poll::Ready(Err(failure.into())),
            None if state.queue.is_empty() => Poll::Ready(Ok(())),
            None => {
                state.waiter = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The error that ended the stream, if one did.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.state().failure.map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Sends what waits, then ends the sending side.
    pub(crate) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drained(cx))?;
        match socket::shutdown_write(self.io.as_fd()) {
            // The peer has closed the connection already: there is nothing left to end.
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            done => Poll::Ready(done),
        }
    }

    /// The stream was dropped. What the socket does not take now is sent by a task of its own, as long as the peer keeps
    /// reading: the kernel gives up on one that does not after 30 s.
    pub(crate) fn abandon(self: Arc<Self>) {
        let mut state = self.state();
        if state.queue.is_empty() || state.failure.is_some() {
            return;
        }
        if !state.blocked
            && let Err(failure) = self.send_queue(&mut state)
        {
            self.fail(&mut state, failure);
        }
        let left = !state.queue.is_empty();
        drop(state);
        if left {
            socket::give_up_after(self.io.as_fd(), Duration::from_secs(30));
            let runtime = self.turn.runtime().clone();
            runtime.spawn(std::future::poll_fn(move |cx| self.poll_drained(cx).map(drop)));
        }
    }
}

/// Whether a slice is to be sent by `sendfile`.
#[inline]
fn from_file(slice: &[u8]) -> bool {
    slice.len() >= SENDFILE_MIN && Capabilities::get().sendfile().is_yes() && origin::file_of(slice).is_some()
}

impl Flush for Egress {
    fn flush(self: Arc<Self>) {
        let mut state = self.state();
        state.scheduled = false;
        if state.failure.is_none() && !state.blocked {
            count(Counter::TurnFlushes, 1);
            if let Err(failure) = self.send_queue(&mut state) {
                self.fail(&mut state, failure);
            }
        }
        let enough = state.queue.len() <= self.gather.high / 2;
        let waiter = if enough { state.waiter.take() } else { None };
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let lost = state.queue.clear();
        QUEUED.fetch_sub(lost, Ordering::Relaxed);
        count(Counter::BytesLost, lost as u64);
    }
}

/// Told by the runtime's driver that the socket has room again.
struct Writable(Weak<Egress>);

impl Wake for Writable {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(egress) = self.0.upgrade() else { return };
        let mut state = egress.state();
        state.blocked = false;
        let flush = state.needs_flush();
        let waiter = if flush { None } else { state.waiter.take() };
        drop(state);
        if flush {
            egress.schedule();
        }
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}
