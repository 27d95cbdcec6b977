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
//! 1. Operations and cancels in flight never exceed the completion queue, so it does not overflow.
//! 2. The entries of a program are pushed in one piece and handed over in one piece: a chain that was cut by the end of a
//!    submission would lose its links, so the ring is given up then and the rest never submitted.
//! 3. After a push only a completion ends an operation, or the certainty that the entry will never be handed over.
//! 4. A ring that was given up takes nothing new; what is in flight is still reaped.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use io_uring::opcode;
use io_uring::squeue::Entry;
use rustix::io::Errno;

use super::port::Port;
use super::program::{Program, Verdict};
use super::slots::{Ended, Key, Orphan, STEPS_MAX, Slots};
use super::sync::{Mutex, lock};
use crate::kernel::uring::Completion;
use crate::observe::counters::{Counter, count};
use crate::observe::log;

/// The key of a cancel's own completion.
const CANCEL: u64 = u64::MAX;
/// How often in a row the kernel may be too busy to take anything, with nothing to reap, before the ring is given up.
const STALLS_MAX: u32 = 1000;
/// The same for want of memory, which seldom passes.
const STARVED_MAX: u32 = 16;
/// Why a driver that was shut down takes nothing.
const ENDED: &str = "the runtime has shut down";

/// What is shared with the futures.
struct Queue {
    slots: Slots,
    /// Programs to submit, oldest first. Keys of programs that were dropped meanwhile stay and are skipped.
    todo: VecDeque<Key>,
    /// Cancels to submit, by the key of the operation.
    cancels: VecDeque<u64>,
    /// Completions the kernel owes, those of cancels included.
    in_flight: usize,
    /// Free places in the ring's table of files.
    files: Vec<u32>,
    /// Places whose files are still open though their programs have ended.
    stale_files: Vec<u32>,
    /// Operations that go by plain calls.
    by_calls: [bool; 256],
    /// Entries and files that one program can have.
    limits: (usize, usize),
    /// Operations may name pool memory by its index.
    registered: bool,
    /// Why the ring takes nothing any more.
    closed: Option<String>,
}

/// The side of the kernel.
struct Ring {
    port: Box<dyn Port>,
    /// Pushed and not handed over, in order.
    pushed: VecDeque<(u64, bool)>,
    /// The kernel holds back completions until it is entered.
    held_back: bool,
    stalls: u32,
    done: Vec<Completion>,
}

/// One ring and what it works on.
pub(crate) struct Driver {
    queue: Mutex<Queue>,
    /// Gone once the driver has shut down.
    ring: Mutex<Option<Ring>>,
    kick: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = lock(&self.queue);
        f.debug_struct("Driver").field("in_flight", &queue.in_flight).field("closed", &queue.closed).finish()
    }
}

/// What is to be done once no lock is held: wakers and programs may run the code of users.
#[derive(Default)]
struct After {
    wake: Vec<Waker>,
    drop: Vec<Box<Program>>,
}

impl After {
    fn ended(&mut self, (waker, end): (Option<Waker>, Option<Ended>)) {
        self.wake.extend(waker);
        match end {
            Some(Ended::Finished(program) | Ended::Fallback(program, _)) => self.drop.push(program),
            Some(Ended::Lost) | None => {}
        }
    }

    fn run(self) {
        drop(self.drop);
        self.wake.into_iter().for_each(Waker::wake);
    }
}

impl Driver {
    /// A driver of `port`, with places for `files` files that chains open, and `registered` if it knows the
    /// [buffers](super::buffers) by index. `kick` is called when there is work: it must
    /// see to it that [`turn`](Self::turn) is called soon, and must not call it itself.
    pub(crate) fn new(
        mut port: Box<dyn Port>,
        files: u32,
        registered: bool,
        kick: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        let mut by_calls = [false; 256];
        by_calls.iter_mut().zip(0..=u8::MAX).for_each(|(by_calls, opcode)| *by_calls = !port.supports(opcode));
        let limits = (port.room().min(STEPS_MAX), files as usize);
        let queue = Queue {
            slots: Slots::default(),
            todo: VecDeque::new(),
            cancels: VecDeque::new(),
            in_flight: 0,
            files: (0..files).collect(),
            stale_files: Vec::new(),
            by_calls,
            limits,
            registered,
            closed: None,
        };
        let ring = Ring { port, pushed: VecDeque::new(), held_back: false, stalls: 0, done: Vec::new() };
        Self { queue: Mutex::new(queue), ring: Mutex::new(Some(ring)), kick }
    }

    /// Takes a program in. Gives it back, with the reason, if this ring cannot run it.
    pub(crate) fn submit(self: &Arc<Self>, program: Box<Program>) -> Result<Running, (Box<Program>, String)> {
        let mut queue = lock(&self.queue);
        if let Some(why) = queue.refusal(&program) {
            drop(queue);
            return Err((program, why));
        }
        let key = queue.slots.insert(program);
        queue.todo.push_back(key);
        drop(queue);
        (self.kick)();
        Ok(Running { driver: Arc::clone(self), key: Some(key) })
    }

    /// Whether [`turn`](Self::turn) has something to hand over.
    pub(crate) fn has_work(&self) -> bool {
        let queue = lock(&self.queue);
        !(queue.todo.is_empty() && queue.cancels.is_empty() && queue.stale_files.is_empty())
    }

    /// Completions that are still to come.
    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.queue).in_flight
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

    /// Hands over what is queued and reaps until nothing more comes at once. Never waits. Returns whether the kernel was
    /// too busy to take everything: then call again after other tasks have run.
    pub(crate) fn turn(&self) -> bool {
        let mut guard = lock(&self.ring);
        let Some(ring) = guard.as_mut() else { return false };
        let mut after = After::default();
        self.reap(ring, &mut after);
        let stalled = loop {
            self.close_files(ring);
            let pushed = self.fill(ring);
            let stalled = match self.hand_over(ring, 0, None, &mut after) {
                Ok(stalled) => stalled,
                Err(reason) => {
                    self.close(ring, reason, &mut after);
                    false
                }
            };
            // Not until nothing is held back: what another thread has to run, entering from here does not bring.
            let reaped = self.reap(ring, &mut after);
            if reaped > 0 {
                ring.stalls = 0;
            } else if stalled || !pushed {
                break stalled;
            }
        };
        drop(guard);
        after.run();
        stalled
    }

    /// Closes files that chains have left open in the table.
    fn close_files(&self, ring: &mut Ring) {
        let stale = std::mem::take(&mut lock(&self.queue).stale_files);
        if !stale.is_empty() {
            stale.iter().for_each(|&place| ring.port.close_file(place));
            lock(&self.queue).files.extend(stale);
        }
    }

    /// Pushes cancels and programs while there is room. Returns whether anything was pushed.
    fn fill(&self, ring: &mut Ring) -> bool {
        let mut queue = lock(&self.queue);
        let before = ring.pushed.len();
        let mut room = ring.port.room().min(ring.port.completions().saturating_sub(queue.in_flight));
        while room > 0
            && let Some(target) = queue.cancels.pop_front()
        {
            let (key, ..) = Key::parse(target);
            if queue.slots.in_flight(key).is_some() {
                let entry = opcode::AsyncCancel::new(target).build();
                // SAFETY: a cancel points to nothing.
                unsafe { ring.push(&entry, CANCEL, false) };
                queue.in_flight += 1;
                room -= 1;
            }
        }
        while let Some(&key) = queue.todo.front() {
            let Queue { slots, files, registered, .. } = &mut *queue;
            if let Some(program) = slots.queued(key) {
                let opens = program.opens() - program.files().assigned().len();
                if program.entries() > room || opens > files.len() {
                    break;
                }
                if opens > 0 {
                    let places = files.split_off(files.len() - opens);
                    program.files().assign(places);
                }
                program.files().set_registered(*registered);
                let pieces = program.pieces();
                room -= pieces.len();
                queue.in_flight += pieces.len();
                for piece in pieces {
                    // SAFETY: the entry points into operations of the program or into what they own, and the program
                    // stays in its slot, untouched, until all its completions have come (invariants of `op`, `slots`).
                    unsafe { ring.push(&piece.entry, key.user_data(piece.step, piece.is_limit), piece.linked) };
                }
                queue.slots.submitted(key);
            }
            queue.todo.pop_front();
        }
        ring.pushed.len() > before
    }

    /// Enters the ring if that is of use. `Ok(true)` says that the kernel took nothing for now, `Err` that the ring is of
    /// no use any more.
    fn hand_over(
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
                    self.lose(ring, after);
                    return Err("the kernel dropped completions for want of memory".to_owned());
                }
                Ok(taken < submit && self.stall(ring, STALLS_MAX))
            }
            Err(e) => match Errno::from_io_error(&e) {
                Some(Errno::INTR) => Ok(false),
                Some(Errno::AGAIN | Errno::BUSY) if self.stall(ring, STALLS_MAX) => Ok(true),
                Some(Errno::NOMEM) if self.stall(ring, STARVED_MAX) => Ok(true),
                Some(Errno::BADR) => {
                    self.lose(ring, after);
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

    /// Gives the ring up: what was not handed over goes by plain calls, what is in flight is still reaped.
    fn close(&self, ring: &mut Ring, reason: String, after: &mut After) {
        let mut queue = lock(&self.queue);
        if queue.closed.is_none() {
            count(Counter::RingsClosed, 1);
            if reason != ENDED {
                log::ring_closed(&reason);
            }
            queue.closed = Some(reason);
        }
        queue.cancels.clear();
        // Entries that stay in the submission queue for ever: as if the kernel had cancelled them.
        for (user_data, _) in ring.pushed.drain(..) {
            let result = Err(Errno::CANCELED.raw_os_error());
            queue.complete(Completion { key: user_data, result, more: false, notification: false }, after);
        }
        while let Some(key) = queue.todo.pop_front() {
            queue.end(key, Verdict::Again, after);
        }
    }

    /// Gives up what is in flight: nobody will ever know what became of it. Returns how many programs that are.
    fn lose(&self, ring: &mut Ring, after: &mut After) -> usize {
        self.reap(ring, after);
        let mut queue = lock(&self.queue);
        queue.in_flight = 0;
        let mut lost = 0;
        for key in queue.slots.keys() {
            if queue.slots.in_flight(key).is_none() {
                continue;
            }
            let end = queue.slots.end(key, |program| {
                // The kernel may still write to its buffers: they must never be used again.
                count(Counter::RingLeaks, 1);
                lost += 1;
                Box::leak(program);
                Ended::Lost
            });
            after.ended(end);
        }
        lost
    }

    /// Ends the driver: cancels all, reaps for at most `bound`, and leaks what has not ended by then. The ring is closed;
    /// that alone would not stop the kernel from writing into buffers. Returns how many programs were leaked.
    pub(crate) fn shutdown(&self, bound: Duration) -> usize {
        let mut guard = lock(&self.ring);
        let Some(mut ring) = guard.take() else { return 0 };
        drop(guard);
        let mut after = After::default();
        let deadline = Instant::now() + bound;
        self.close(&mut ring, ENDED.to_owned(), &mut after);
        self.reap(&mut ring, &mut after);
        if self.in_flight() > 0 {
            // Fails where the kernel is older than Linux 6.0, or where somebody blocks it: then waiting must do.
            let _ = ring.port.cancel_all(bound / 2);
        }
        loop {
            self.reap(&mut ring, &mut after);
            let left = deadline.saturating_duration_since(Instant::now());
            if self.in_flight() == 0 || left.is_zero() {
                break;
            }
            match ring.port.enter(0, 1, Some(left)) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let lost = self.lose(&mut ring, &mut after);
        drop(ring);
        after.run();
        lost
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shutdown(Duration::from_secs(2));
    }
}

impl Ring {
    /// # Safety
    ///
    /// As [`Port::push`].
    unsafe fn push(&mut self, entry: &Entry, user_data: u64, linked: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.port.push(&entry.clone().user_data(user_data), linked) };
        self.pushed.push_back((user_data, linked));
    }
}

impl Queue {
    /// Why a program cannot run on this ring.
    fn refusal(&self, program: &Program) -> Option<String> {
        if let Some(why) = &self.closed {
            return Some(why.clone());
        }
        if program.codes().any(|code| self.by_calls[usize::from(code)]) {
            return Some("the kernel refuses one of its operations by ring".to_owned());
        }
        let (entries, files) = self.limits;
        if program.entries() > entries || program.opens() > files {
            return Some(format!("it needs more than {entries} entries or {files} files at once"));
        }
        None
    }

    fn complete(&mut self, completion: Completion, after: &mut After) {
        if completion.more {
            // The first of two completions of a zero-copy send carries the result; the memory is still in use.
            return;
        }
        if completion.key == CANCEL {
            self.in_flight -= 1;
            return;
        }
        let (key, step, is_limit) = Key::parse(completion.key);
        let Some(program) = self.slots.in_flight(key) else {
            count(Counter::RingStrays, 1);
            return;
        };
        if !program.complete(step, is_limit, completion.result) {
            count(Counter::RingStrays, 1);
            return;
        }
        self.in_flight -= 1;
        if program.owed() > 0 {
            return;
        }
        let verdict = program.settle();
        if verdict == Verdict::Again && self.closed.is_none() {
            match self.slots.requeue(key) {
                Some(orphan) => after.drop.push(self.without_files(orphan)),
                None => self.todo.push_back(key),
            }
            return;
        }
        self.end(key, verdict, after);
    }

    /// Ends a program of which nothing is in flight.
    fn end(&mut self, key: Key, verdict: Verdict, after: &mut After) {
        let mut left = None;
        let ended = self.slots.end(key, |mut program| {
            let open = program.open_places();
            let is_out_of_reach = !open.is_empty();
            left = Some((open, program.files().take_assigned()));
            match verdict {
                Verdict::Refused(step) => Ended::Fallback(program, Some(step)),
                Verdict::Again if is_out_of_reach => {
                    program.give_up(Errno::CANCELED.raw_os_error());
                    Ended::Finished(program)
                }
                Verdict::Again => Ended::Fallback(program, None),
                Verdict::Finished => Ended::Finished(program),
            }
        });
        if let Some((open, assigned)) = left {
            self.release_files(open, assigned);
        }
        after.ended(ended);
    }

    /// Takes back the places of a program that nobody wants.
    fn without_files(&mut self, mut program: Box<Program>) -> Box<Program> {
        let (open, assigned) = (program.open_places(), program.files().take_assigned());
        self.release_files(open, assigned);
        program
    }

    /// Places that are still open are free only once the ring was told to close them.
    fn release_files(&mut self, open: Vec<u32>, assigned: Vec<u32>) {
        self.files.extend(assigned.into_iter().filter(|place| !open.contains(place)));
        self.stale_files.extend(open);
    }
}

/// A program that runs; resolves to how it ended.
///
/// Dropping it asks the kernel to cancel what is in flight. What the operations own is kept until the kernel has
/// answered, and descriptors that they open are closed.
pub(crate) struct Running {
    driver: Arc<Driver>,
    /// `None` once it has ended.
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
        let key = self.key.expect("polled after it has ended");
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
            Orphan::Free(program) => program.map(|program| queue.without_files(program)),
            Orphan::InFlight => {
                if queue.closed.is_none() {
                    let Queue { slots, cancels, .. } = &mut *queue;
                    let owed = slots.in_flight(key).into_iter().flat_map(|program| program.owed_steps());
                    cancels.extend(owed.map(|step| key.user_data(step, false)));
                }
                None
            }
        };
        drop(queue);
        drop(dropped);
        (self.driver.kick)();
    }
}
