//! State shared by futures and the driver: the programs, the submissions to make, and the entries in flight.
//!
//! One lock protects the state and is held only briefly. Under it, nothing calls the kernel, wakes a task or drops
//! values of users: such work is collected in an [`After`], which runs once the lock is released.

use std::collections::VecDeque;
use std::task::Waker;

use rustix::io::Errno;
use tokio::sync::OwnedSemaphorePermit;

use super::key::{About, Key, STEPS_MAX};
use super::port::{Port, Ring, leak};
use super::room::Room;
use super::slots::{Ended, Slots};
use crate::counters::{Counter, count, log};
use crate::ops::program::{Need, Program, ProgramVerdict};
use crate::sync::guarded;
use crate::sys::uring::Completion;

/// Reason of a ring that was closed by the end of its runtime.
pub(super) const ENDED: &str = "the runtime has shut down";

pub(super) struct Queue {
    pub(super) slots: Slots,
    /// Programs that are not admitted yet, oldest first. Keys of dropped programs stay in the queues and are skipped.
    pub(super) todo: VecDeque<Key>,
    /// Programs that are admitted and have steps left to submit.
    pub(super) again: VecDeque<Key>,
    /// Programs to cancel. Only the first owed step of a chain can be cancelled: the others have not begun.
    pub(super) cancels: VecDeque<Key>,
    /// Programs whose cancel found nothing. They are cancelled again when the timer expires.
    pub(super) later: VecDeque<Key>,
    pub(super) timer: bool,
    /// Number of owed final completions, including those of cancels.
    pub(super) in_flight: usize,
    /// Room that programs and cancels may use, and the room in use.
    pub(super) room: Room,
    pub(super) files: Vec<u32>,
    /// Places whose files are still open although their programs have ended.
    pub(super) stale_files: Vec<u32>,
    /// Whether an operation runs by plain calls, by opcode.
    pub(super) by_calls: [bool; 256],
    entries: usize,
    /// Reason why the ring is closed.
    pub(super) closed: Option<String>,
}

#[derive(Default)]
pub(super) struct After {
    pub(super) wake: Vec<Waker>,
    #[expect(clippy::vec_box, reason = "programs are already boxed; unboxing them would only copy")]
    pub(super) drop: Vec<Box<Program>>,
    permits: Vec<OwnedSemaphorePermit>,
    /// Reason why the ring was closed, to be reported.
    closed: Option<String>,
}

impl After {
    pub(super) fn ended(&mut self, (waker, end): (Option<Waker>, Option<Ended>)) {
        self.wake.extend(waker);
        match end {
            Some(Ended::Finished(program) | Ended::Fallback(program, _)) => self.drop.push(program),
            Some(Ended::Lost) | None => {}
        }
    }

    /// Wakes the tasks and drops the values. Each may run code of users. A panic of one must not prevent the others.
    pub(super) fn run(self) {
        let Self { wake, drop: programs, permits, closed } = self;
        // A subscriber may ask for the state of the driver.
        closed.into_iter().for_each(|reason| _ = guarded(|| log::ring_closed(&reason)));
        wake.into_iter().for_each(|waker| _ = guarded(|| waker.wake()));
        programs.into_iter().for_each(|program| _ = guarded(|| drop(program)));
        permits.into_iter().for_each(|permit| _ = guarded(|| drop(permit)));
    }
}

impl Queue {
    /// Creates an empty queue for a ring with `files` places in its table.
    pub(super) fn new(port: &mut dyn Port, files: usize) -> Self {
        let mut by_calls = [false; 256];
        by_calls.iter_mut().zip(0..=u8::MAX).for_each(|(by_calls, opcode)| *by_calls = !port.supports(opcode));
        Self {
            slots: Slots::default(),
            todo: VecDeque::new(),
            again: VecDeque::new(),
            cancels: VecDeque::new(),
            later: VecDeque::new(),
            timer: false,
            in_flight: 0,
            room: Room::new(port.completions(), files),
            files: (0..files as u32).collect(),
            stale_files: Vec::new(),
            by_calls,
            entries: port.room().min(STEPS_MAX),
            closed: None,
        }
    }

    /// Returns the reason why a program with this need can never run on this ring, or `None` if it can.
    pub(super) fn refusal(&mut self, program: &Program, need: Need) -> Option<String> {
        if let Some(why) = &self.closed {
            return Some(why.clone());
        }
        if program.codes().any(|code| self.by_calls[usize::from(code)]) {
            return Some("the ring of this kernel refuses one of its operations".to_owned());
        }
        if need.completions > self.entries || !self.room.could_take(need) || program.len() > STEPS_MAX {
            return Some(format!("it needs more than {} entries, or too many files at once", self.entries));
        }
        None
    }

    /// Returns whether a turn has something to submit. Cancels without room are retried when another cancel has ended.
    pub(super) fn has_work(&mut self) -> bool {
        let Self { slots, todo, again, .. } = self;
        for keys in [todo, again] {
            while keys.front().is_some_and(|&key| slots.queued(key).is_none()) {
                keys.pop_front();
            }
        }
        let control = !self.cancels.is_empty() || (!self.later.is_empty() && !self.timer);
        let is_idle = self.todo.is_empty() && self.again.is_empty();
        !(is_idle && self.stale_files.is_empty()) || (control && self.room.control.left() > 0)
    }

    /// Handles a completion. The last completion of a program wakes its task.
    pub(super) fn complete(&mut self, completion: Completion, after: &mut After) {
        match About::parse(completion.key) {
            About::Step { key, step, is_limit } => self.complete_step(key, step, is_limit, completion, after),
            About::Cancel(key) => {
                self.control_ended();
                // Between two steps of a chain a cancel finds nothing, but the second step may be about to begin.
                let found_nothing = completion.result == Err(Errno::NOENT.raw_os_error());
                if found_nothing && self.closed.is_none() && self.slots.is_orphan(key) {
                    self.later.push_back(key);
                }
            }
            About::Timer => {
                self.control_ended();
                self.timer = false;
                self.cancels.append(&mut self.later);
            }
        }
    }

    fn control_ended(&mut self) {
        self.in_flight -= 1;
        self.room.control.used -= 1;
    }

    fn complete_step(&mut self, key: Key, step: usize, is_limit: bool, completion: Completion, after: &mut After) {
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
            // The chain continues with another step, which may wait forever.
            if self.closed.is_none() && self.slots.is_orphan(key) {
                self.cancels.push_back(key);
            }
            return;
        }
        let verdict = program.settle();
        if verdict == ProgramVerdict::Again && self.closed.is_none() {
            match self.slots.requeue(key) {
                Some(orphan) => after.drop.push(self.without_room(orphan)),
                None => self.again.push_back(key),
            }
            return;
        }
        self.end(key, verdict, after);
    }

    /// Ends a program that has nothing in flight, and frees its room.
    pub(super) fn end(&mut self, key: Key, verdict: ProgramVerdict, after: &mut After) {
        let Self { slots, room, files, stale_files, .. } = self;
        let ended = slots.end(key, |mut program| {
            let is_out_of_reach = !program.open_places().is_empty();
            release(&mut program, room, files, stale_files);
            after.permits.extend(program.take_permit());
            match verdict {
                ProgramVerdict::Refused(step) => Ended::Fallback(program, Some(step)),
                ProgramVerdict::Again if is_out_of_reach => {
                    program.give_up(Errno::CANCELED.raw_os_error());
                    Ended::Finished(program)
                }
                ProgramVerdict::Again => Ended::Fallback(program, None),
                ProgramVerdict::Finished => Ended::Finished(program),
            }
        });
        after.ended(ended);
    }

    pub(super) fn without_room(&mut self, mut program: Box<Program>) -> Box<Program> {
        release(&mut program, &mut self.room, &mut self.files, &mut self.stale_files);
        program
    }

    /// Closes the ring: programs that were not submitted run by plain calls; completions in flight are still reaped.
    pub(super) fn close(&mut self, ring: &mut Ring, reason: String, after: &mut After) {
        if self.closed.is_none() {
            count(Counter::RingsClosed, 1);
            after.closed = Some(reason.clone()).filter(|reason| reason != ENDED);
            self.closed = Some(reason);
        }
        self.cancels.clear();
        self.later.clear();
        // These entries are never submitted, and end as if the kernel had cancelled them.
        for (user_data, _) in ring.pushed.drain(..) {
            let result = Err(Errno::CANCELED.raw_os_error());
            self.complete(Completion { key: user_data, result }, after);
        }
        while let Some(key) = self.again.pop_front().or_else(|| self.todo.pop_front()) {
            self.end(key, ProgramVerdict::Again, after);
        }
    }

    /// Gives up everything in flight, whose results will never be known. Returns the number of programs.
    pub(super) fn lose(&mut self, after: &mut After) -> usize {
        let mut lost = 0;
        self.in_flight = 0;
        for key in self.slots.keys() {
            if self.slots.in_flight(key).is_none() {
                continue;
            }
            let end = self.slots.end(key, |mut program| {
                after.permits.extend(program.take_permit());
                // The kernel may still write to its buffers, so they must never be reused.
                leak(program);
                lost += 1;
                Ended::Lost
            });
            after.ended(end);
        }
        lost
    }
}

/// Frees the room and the places of a program. Places that are still open become free once the ring has closed them.
fn release(program: &mut Program, room: &mut Room, files: &mut Vec<u32>, stale: &mut Vec<u32>) {
    if let Some(need) = program.leave() {
        room.give(need);
    }
    let (open, assigned) = (program.open_places(), program.files().take_assigned());
    files.extend(assigned.into_iter().filter(|place| !open.contains(place)));
    stale.extend(open);
}
