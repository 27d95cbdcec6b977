//! The driver of one ring: takes programs from any thread, submits them together, hands out what became of them.
//!
//! ```text
//!  any thread                              the flusher of the turn
//!  submit ──▶ slots + queue ──kick──▶      turn: fill the ring ─▶ enter once ─▶ reap until dry ─▶ wake
//!  drop   ──▶ orphan, cancel ──kick──▶     shutdown: cancel all ─▶ reap to zero ─▶ else leak and count
//! ```
//!
//! Two locks: `queue` is held for moments, by anybody; `port` is held while the kernel is entered, by whoever drives.
//! `port` is taken first.
//!
//! Invariants:
//! 1. Programs, sends and cancels in flight never exceed the completion queue, and each of them its [share](super::room).
//!    Receives may: each completes as often as something arrives. What has no room then the kernel keeps, and brings when
//!    it is entered next.
//! 2. The entries of a program are pushed in one piece and handed over in one piece: a chain that was cut by the end of a
//!    submission would lose its links, so the ring is given up then and the rest never submitted.
//! 3. After a push only a completion ends an operation, or the certainty that the entry will never be handed over.
//! 4. A ring that was given up takes nothing new; what is in flight is still reaped.
//! 5. No program waits for the end of another. One that has no room is given back at the end of the turn, to go by plain
//!    calls.
//! 6. A turn hands over a bounded number of entries that move a bounded number of bytes.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use io_uring::squeue::Entry;
use rustix::io::Errno;
use tokio::sync::Semaphore;

use super::fill::Done;
use super::key::About;
use super::net::receive::Buffers;
use super::port::Port;
use super::program::Program;
use super::queue::{After, Queue};
use super::running::Running;
use super::sync::{Mutex, lock};
use crate::counters::{Counter, count};
use crate::sys::uring::Completion;

/// How often in a row the kernel may be too busy to take anything, with nothing to reap, before the ring is given up.
const STALLS_MAX: u32 = 1000;
/// The same for want of memory, which seldom passes.
const STARVED_MAX: u32 = 16;
/// Why a forked child's driver takes nothing.
const FORKED: &str = "the process has forked, and the ring belongs to the parent";

/// The side of the kernel.
pub(super) struct Ring {
    pub(super) port: Box<dyn Port>,
    /// Pushed and not handed over, in order.
    pub(super) pushed: VecDeque<(u64, bool)>,
    /// The kernel holds back completions until it is entered.
    pub(super) held_back: bool,
    pub(super) stalls: u32,
    done: Vec<Completion>,
}

/// One ring and what it works on.
pub(crate) struct Driver {
    pub(super) queue: Mutex<Queue>,
    /// The room of programs that may wait for a peer.
    waiting: Arc<Semaphore>,
    /// Gone once the driver has shut down.
    pub(super) ring: Mutex<Option<Ring>>,
    /// Receives that the last completions were of.
    arrived: AtomicUsize,
    pub(super) kick: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = lock(&self.queue);
        f.debug_struct("Driver").field("in_flight", &queue.in_flight).field("closed", &queue.closed).finish()
    }
}

impl Driver {
    /// A driver of `port`, with places for `files` files that chains open, and `registered` if it knows the
    /// [buffers](super::buffers) by index. Receives have `buffers` to choose from. `kick` is called when there is work: it must
    /// see to it that [`turn`](Self::turn) is called soon, and must not call it itself.
    pub(crate) fn new(
        mut port: Box<dyn Port>,
        files: u32,
        registered: bool,
        buffers: Buffers,
        kick: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        let queue = Queue::new(&mut *port, files as usize, registered, buffers);
        let waiting = Arc::new(Semaphore::new(queue.room.units()));
        let ring = Ring { port, pushed: VecDeque::new(), held_back: false, stalls: 0, done: Vec::new() };
        Self { queue: Mutex::new(queue), waiting, ring: Mutex::new(Some(ring)), arrived: AtomicUsize::new(0), kick }
    }

    /// Where a program that may wait for a peer gets room on this ring, and how many permits it needs. `None` if it cannot
    /// run here.
    pub(crate) fn waiting_room(&self, program: &Program) -> Option<(Arc<Semaphore>, u32)> {
        let need = program.need(true);
        let mut queue = lock(&self.queue);
        queue.refusal(program, need).is_none().then(|| (Arc::clone(&self.waiting), queue.room.units_of(need) as u32))
    }

    /// Takes a program in. Gives it back, with the reason, if this ring cannot run it.
    pub(crate) fn submit(self: &Arc<Self>, program: Box<Program>) -> Result<Running, (Box<Program>, String)> {
        let mut queue = lock(&self.queue);
        let need = program.need(program.has_permit());
        if let Some(why) = queue.refusal(&program, need) {
            drop(queue);
            return Err((program, why));
        }
        let key = queue.slots.insert(program);
        // Where something waits already, a turn is due, or else a completion will bring one.
        let is_first = queue.todo.is_empty();
        queue.todo.push_back(key);
        drop(queue);
        if is_first {
            (self.kick)();
        }
        Ok(Running::new(Arc::clone(self), key))
    }

    /// Whether [`turn`](Self::turn) has something to hand over.
    pub(crate) fn has_work(&self) -> bool {
        lock(&self.queue).has_work()
    }

    /// Operations whose last completion is still to come.
    pub(crate) fn in_flight(&self) -> usize {
        let queue = lock(&self.queue);
        queue.in_flight + queue.net.receive.armed
    }

    /// Connections that have something to answer, as far as the last completions tell.
    pub(crate) fn arrived(&self) -> usize {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Why the ring takes nothing any more, if so.
    pub(crate) fn closed(&self) -> Option<String> {
        lock(&self.queue).closed.clone()
    }

    /// From now on an operation goes by plain calls: the kernel refused it by ring and did it so.
    pub(crate) fn demote(&self, opcode: u8) {
        let mut queue = lock(&self.queue);
        if !std::mem::replace(&mut queue.by_calls[usize::from(opcode)], true) {
            count(Counter::RingDemotions, 1);
        }
    }

    /// Hands over what is queued and reaps until nothing more comes at once. Never waits. Returns whether there is more to
    /// do, because this turn is full or the kernel was too busy: then call again after other tasks have run.
    pub(crate) fn turn(&self) -> bool {
        let mut guard = lock(&self.ring);
        let Some(ring) = guard.as_mut() else { return false };
        let mut after = After::default();
        if !ring.port.is_ours() {
            self.close(ring, FORKED.to_owned(), &mut after);
            self.lose(&mut after);
            drop(guard);
            after.run();
            return false;
        }
        self.reap(ring, &mut after);
        let mut done = Done::default();
        let more = loop {
            self.close_files(ring);
            let before = ring.pushed.len();
            self.fill(ring, &mut done, &mut after);
            let pushed = ring.pushed.len() > before;
            let stalled = match self.hand_over(ring, 0, None, &mut after) {
                Ok(stalled) => stalled,
                Err(reason) => {
                    self.close(ring, reason, &mut after);
                    false
                }
            };
            // Not until nothing is held back: what another thread has to run, entering from here does not bring.
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

    /// Enters the ring if that is of use. `Ok(true)` says that the kernel took nothing for now, `Err` that the ring is of
    /// no use any more.
    pub(super) fn hand_over(
        &self,
        ring: &mut Ring,
        want: usize,
        timeout: Option<Duration>,
        after: &mut After,
    ) -> Result<bool, String> {
        // A ring that was given up only waits: what is queued in it must never be handed over.
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
                    return Err("the kernel took a part of a chain".to_owned());
                }
                if ring.port.dropped() > 0 {
                    self.reap(ring, after);
                    self.lose(after);
                    return Err("the kernel dropped completions for want of memory".to_owned());
                }
                Ok(taken < submit && self.stall(ring, STALLS_MAX))
            }
            Err(e) => match Errno::from_io_error(&e) {
                Some(Errno::INTR) => Ok(false),
                Some(Errno::AGAIN | Errno::BUSY) if self.stall(ring, STALLS_MAX) => Ok(true),
                Some(Errno::NOMEM) if self.stall(ring, STARVED_MAX) => Ok(true),
                Some(Errno::BADR) => {
                    self.reap(ring, after);
                    self.lose(after);
                    Err("the kernel dropped completions (EBADR)".to_owned())
                }
                _ => Err(format!("io_uring_enter: {e}")),
            },
        }
    }

    /// Whether it makes sense to try again.
    fn stall(&self, ring: &mut Ring, max: u32) -> bool {
        ring.stalls += 1;
        ring.stalls < max
    }

    /// Reaps and hands out. Returns how many completions there were.
    pub(super) fn reap(&self, ring: &mut Ring, after: &mut After) -> usize {
        let mut done = std::mem::take(&mut ring.done);
        ring.held_back = ring.port.reap(&mut done);
        let reaped = done.len();
        if reaped > 0 {
            count(Counter::RingCompletions, reaped as u64);
            let mut queue = lock(&self.queue);
            for completion in done.drain(..) {
                queue.complete(completion, after);
            }
            self.arrived.store(std::mem::take(&mut queue.net.receive.arrivals), Ordering::Relaxed);
        }
        ring.done = done;
        reaped
    }
}

impl Ring {
    /// # Safety
    ///
    /// As [`Port::push`].
    pub(super) unsafe fn push(&mut self, entry: &Entry, user_data: u64, linked: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.port.push(&entry.clone().user_data(user_data), linked) };
        self.pushed.push_back((user_data, linked));
    }

    /// Pushes a cancel, a stop or the timer, for which there must be room.
    ///
    /// # Safety
    ///
    /// As [`Port::push`].
    pub(super) unsafe fn push_control(&mut self, entry: &Entry, about: About, queue: &mut Queue) {
        queue.in_flight += 1;
        queue.room.control.used += 1;
        // SAFETY: the caller's promise.
        unsafe { self.push(entry, about.user_data(), false) };
    }
}
