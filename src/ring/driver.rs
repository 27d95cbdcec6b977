//! The driver of one ring: takes programs from any thread, submits them together, distributes their results.
//!
//! ```text
//!  any thread                              the flusher of the worker thread
//!  submit ──▶ slots + queue ──kick──▶      turn: fill the ring ─▶ enter once ─▶ reap until dry ─▶ wake
//!  drop   ──▶ orphan, cancel ──kick──▶     shutdown: cancel all ─▶ reap to zero ─▶ else leak and count
//! ```
//!
//! Two locks: `queue` is held briefly by any thread; `ring`, which is locked first, is held to enter the kernel.
//!
//! Invariants:
//! 1. Programs and cancels in flight never exceed the completion queue, nor each kind its [share](super::room).
//! 2. The entries of a program are pushed and submitted in one piece: a chain that is cut by the end of a submission
//!    would lose its links. If the kernel cuts it, the ring is closed and the rest is never submitted.
//! 3. After a push, an operation ends only by a completion, or when it is certain that the entry will never be
//!    submitted.
//! 4. A closed ring accepts nothing; entries in flight are still reaped.
//! 5. No program waits for the end of another. A program without room is returned at the end of the turn and runs by
//!    plain calls.
//! 6. A turn submits a bounded number of entries that move a bounded number of bytes.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tokio::sync::Semaphore;

use super::fill::Done;
use super::key::Key;
use super::port::{Port, Ring};
use super::queue::{After, ENDED, Queue};
use super::slots::{Ended, Orphan};
use crate::counters::{Counter, count};
use crate::ops::program::Program;
use crate::sync::{Mutex, lock};

/// Maximum number of consecutive enters that accept and reap nothing, because the kernel is busy.
const STALLS_MAX: u32 = 1000;
/// The same if the kernel lacks memory, which rarely recovers.
const STARVED_MAX: u32 = 16;
/// Interval of repeated cancels during shutdown.
const CANCEL_AGAIN: Duration = Duration::from_millis(20);
const FORKED: &str = "the process has forked, and the ring belongs to the parent";

pub(crate) struct RingDriver {
    pub(super) queue: Mutex<Queue>,
    /// Permits of programs that may wait for a peer.
    waiting: Arc<Semaphore>,
    /// `None` after shutdown.
    ring: Mutex<Option<Ring>>,
    kick: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for RingDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = lock(&self.queue);
        f.debug_struct("RingDriver").field("in_flight", &queue.in_flight).field("closed", &queue.closed).finish()
    }
}

impl RingDriver {
    /// Creates a driver of `port`, with `files` places for files opened by chains. `kick` is called when there is work:
    /// it must cause [`turn`](Self::turn) to be called soon, and must not call it itself.
    pub(crate) fn new(mut port: Box<dyn Port>, files: u32, kick: Box<dyn Fn() + Send + Sync>) -> Self {
        let queue = Queue::new(&mut *port, files as usize);
        let waiting = Arc::new(Semaphore::new(queue.room.units()));
        let ring = Mutex::new(Some(Ring::new(port)));
        Self { queue: Mutex::new(queue), waiting, ring, kick }
    }

    /// Returns the permits of programs that may wait for a peer, and the number needed. `None`: it cannot run here.
    pub(crate) fn waiting_room(&self, program: &Program) -> Option<(Arc<Semaphore>, u32)> {
        let need = program.need(true);
        let mut queue = lock(&self.queue);
        queue.refusal(program, need).is_none().then(|| (Arc::clone(&self.waiting), queue.room.units_of(need) as u32))
    }

    /// Accepts a program, or returns it with the reason if this ring cannot run it.
    pub(crate) fn submit(self: &Arc<Self>, program: Box<Program>) -> Result<Running, (Box<Program>, String)> {
        let mut queue = lock(&self.queue);
        let need = program.need(program.has_permit());
        if let Some(why) = queue.refusal(&program, need) {
            drop(queue);
            return Err((program, why));
        }
        let key = queue.slots.insert(program);
        // If other programs are queued, a turn is already due, or a completion will cause one.
        let is_first = queue.todo.is_empty();
        queue.todo.push_back(key);
        drop(queue);
        if is_first {
            (self.kick)();
        }
        Ok(Running { driver: Arc::clone(self), key: Some(key) })
    }

    pub(crate) fn has_work(&self) -> bool {
        lock(&self.queue).has_work()
    }

    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.queue).in_flight
    }

    /// Returns the reason why the ring is closed, or `None` if it is open.
    pub(crate) fn closed(&self) -> Option<String> {
        lock(&self.queue).closed.clone()
    }

    /// Runs this operation by plain calls from now on, because the ring refused it.
    pub(crate) fn demote(&self, program: &Program, step: usize) {
        let opcode = program.code(step);
        let mut queue = lock(&self.queue);
        if !std::mem::replace(&mut queue.by_calls[usize::from(opcode)], true) {
            count(Counter::RingDemotions, 1);
        }
    }

    /// Submits queued entries and reaps until no more completions arrive at once. Never waits. Returns whether work is
    /// left, because this turn is full or the kernel was busy: call again after other tasks have run.
    pub(crate) fn turn(&self) -> bool {
        let mut guard = lock(&self.ring);
        let Some(ring) = guard.as_mut() else { return false };
        let mut after = After::default();
        if !ring.port.is_ours() {
            lock(&self.queue).close(ring, FORKED.to_owned(), &mut after);
            lock(&self.queue).lose(&mut after);
            drop(guard);
            after.run();
            return false;
        }
        self.reap(ring, &mut after);
        let mut done = Done::default();
        let more = loop {
            self.close_files(ring);
            let before = ring.pushed.len();
            lock(&self.queue).fill(ring, &mut done, &mut after);
            let pushed = ring.pushed.len() > before;
            let stalled = match self.hand_over(ring, 0, None, &mut after) {
                Ok(stalled) => stalled,
                Err(reason) => {
                    lock(&self.queue).close(ring, reason, &mut after);
                    false
                }
            };
            // Does not loop until nothing is held back: completions that another thread has to run would not arrive.
            let reaped = self.reap(ring, &mut after);
            done.work += reaped;
            if reaped > 0 {
                ring.stalls = 0;
            }
            if stalled || (reaped == 0 && !pushed) || done.is_full() {
                break stalled || self.has_work();
            }
        };
        drop(guard);
        after.run();
        more
    }

    /// Enters the ring if necessary. `Ok(true)`: the kernel accepted nothing for now; `Err`: the ring is unusable.
    fn hand_over(
        &self,
        ring: &mut Ring,
        want: usize,
        timeout: Option<Duration>,
        after: &mut After,
    ) -> Result<bool, String> {
        // A closed ring only waits: entries still queued in it must never be submitted.
        let submit = ring.pushed.len();
        if submit == 0 && !ring.held_back && want == 0 {
            return Ok(false);
        }
        count(Counter::RingEnters, 1);
        match ring.port.enter(submit, want, timeout) {
            Ok(taken) => {
                count(Counter::RingSubmissions, taken as u64);
                let mut cut = false;
                for _ in 0..taken.min(submit) {
                    cut = ring.pushed.pop_front().is_some_and(|(_, linked)| linked);
                }
                if cut {
                    return Err("the kernel accepted only part of a chain".to_owned());
                }
                if ring.port.dropped() > 0 {
                    self.reap(ring, after);
                    lock(&self.queue).lose(after);
                    return Err("the kernel dropped completions for lack of memory".to_owned());
                }
                Ok(taken < submit && self.stall(ring, STALLS_MAX))
            }
            Err(e) => match Errno::from_io_error(&e) {
                Some(Errno::INTR) => Ok(false),
                Some(Errno::AGAIN | Errno::BUSY) if self.stall(ring, STALLS_MAX) => Ok(true),
                Some(Errno::NOMEM) if self.stall(ring, STARVED_MAX) => Ok(true),
                Some(Errno::BADR) => {
                    self.reap(ring, after);
                    lock(&self.queue).lose(after);
                    Err("the kernel dropped completions (EBADR)".to_owned())
                }
                _ => Err(format!("io_uring_enter: {e}")),
            },
        }
    }

    fn stall(&self, ring: &mut Ring, max: u32) -> bool {
        ring.stalls += 1;
        ring.stalls < max
    }

    fn reap(&self, ring: &mut Ring, after: &mut After) -> usize {
        let mut done = std::mem::take(&mut ring.done);
        ring.held_back = ring.port.reap(&mut done);
        let reaped = done.len();
        if reaped > 0 {
            count(Counter::RingCompletions, reaped as u64);
            let mut queue = lock(&self.queue);
            for completion in done.drain(..) {
                queue.complete(completion, after);
            }
        }
        ring.done = done;
        reaped
    }

    fn close_files(&self, ring: &mut Ring) {
        let stale = std::mem::take(&mut lock(&self.queue).stale_files);
        if !stale.is_empty() {
            stale.iter().for_each(|&place| ring.port.close_file(place));
            lock(&self.queue).files.extend(stale);
        }
    }

    /// Shuts down: cancels everything, reaps for at most `bound`, then leaks programs that have not ended, because
    /// closing the ring does not stop the kernel from writing into buffers. Returns the number of leaked programs.
    pub(crate) fn shutdown(&self, bound: Duration) -> usize {
        let mut guard = lock(&self.ring);
        let Some(mut ring) = guard.take() else { return 0 };
        drop(guard);
        let mut after = After::default();
        lock(&self.queue).close(&mut ring, ENDED.to_owned(), &mut after);
        if ring.port.is_ours() {
            self.drain(&mut ring, bound, &mut after);
        }
        let lost = lock(&self.queue).lose(&mut after);
        drop(ring);
        after.run();
        lost
    }

    fn drain(&self, ring: &mut Ring, bound: Duration, after: &mut After) {
        let deadline = Instant::now() + bound;
        loop {
            self.reap(ring, after);
            let left = deadline.saturating_duration_since(Instant::now()).min(CANCEL_AGAIN);
            if self.in_flight() == 0 || left.is_zero() {
                break;
            }
            // Repeated, because chains continue. Fails before Linux 6.0, or in a sandbox; then only waiting is left.
            let _ = ring.port.cancel_all(left);
            match ring.port.enter(0, 1, Some(left)) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }
}

impl Drop for RingDriver {
    fn drop(&mut self) {
        self.shutdown(Duration::from_secs(2));
    }
}

/// A running program; resolves to its end.
///
/// Dropping it cancels the entries in flight. Memory and descriptors of the operations are kept until the kernel has
/// completed them, and descriptors that they open are closed.
pub(crate) struct Running {
    driver: Arc<RingDriver>,
    key: Option<Key>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Future for Running {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let key = self.key.expect("polled after completion");
        let waker = cx.waker().clone();
        let polled = lock(&self.driver.queue).slots.poll(key, waker);
        match polled {
            Ok(ended) => {
                self.key = None;
                Poll::Ready(ended)
            }
            Err(_) => Poll::Pending,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut queue = lock(&self.driver.queue);
        let dropped = match queue.slots.orphan(key) {
            Orphan::Free(program) => program.map(|program| queue.without_room(program)),
            Orphan::InFlight => {
                if queue.closed.is_none() {
                    queue.cancels.push_back(key);
                }
                None
            }
        };
        let has_work = queue.has_work();
        drop(queue);
        drop(dropped);
        if has_work {
            (self.driver.kick)();
        }
    }
}
