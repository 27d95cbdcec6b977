//! Submission of one turn: cancels first, then programs that were already admitted, then new programs that find room.
//!
//! A program that finds no room is returned and runs by plain calls. If entries were pushed in the same fill, it stays
//! queued, because they may end at once and free room.

#![allow(unsafe_code)]

use io_uring::opcode;
use io_uring::squeue::Entry;
use io_uring::types::Timespec;

use super::key::{About, Key};
use super::port::Ring;
use super::queue::{After, Queue};
use crate::ops::program::ProgramVerdict;

const TURN_WORK: usize = 1024;
/// Maximum number of bytes that submitting one turn may move: about 100 us of copying. A single entry may exceed it.
const TURN_BYTES: usize = 1 << 20;
/// Delay before a cancel that found nothing is retried.
static LATER: Timespec = Timespec::new().nsec(2_000_000);

#[derive(Default)]
pub(super) struct Done {
    pub(super) work: usize,
    bytes: usize,
    full: bool,
}

impl Done {
    pub(super) fn is_full(&self) -> bool {
        self.full || self.work >= TURN_WORK
    }

    /// Counts entries that may move `bytes` bytes. Returns `false` if they are left for the next turn.
    fn takes(&mut self, entries: usize, bytes: usize) -> bool {
        self.full = self.bytes > 0 && self.bytes + bytes > TURN_BYTES;
        if !self.full {
            self.work += entries;
            self.bytes += bytes;
        }
        !self.full
    }
}

impl Queue {
    pub(super) fn fill(&mut self, ring: &mut Ring, done: &mut Done, after: &mut After) {
        if self.closed.is_some() {
            return;
        }
        let before = ring.pushed.len();
        self.fill_cancels(ring);
        while let Some(&key) = self.again.front() {
            if self.slots.queued(key).is_some() && !self.push_program(ring, key, done) {
                return;
            }
            self.again.pop_front();
        }
        while let Some(&key) = self.todo.front() {
            if let Some(program) = self.slots.queued(key) {
                let need = program.need(program.has_permit());
                if need.places > self.files.len() && !self.stale_files.is_empty() {
                    return;
                }
                if need.places <= self.files.len() && self.room.take(need) {
                    program.enter(need, self.files.split_off(self.files.len() - need.places));
                    // The program holds its room from here on, whether it is pushed now or later.
                    self.todo.pop_front();
                    if !self.push_program(ring, key, done) {
                        self.again.push_back(key);
                        return;
                    }
                    continue;
                }
                if ring.pushed.len() > before {
                    // The pushed entries may end at once and free their room.
                    return;
                }
                self.end(key, ProgramVerdict::Again, after);
            }
            self.todo.pop_front();
        }
    }

    fn fill_cancels(&mut self, ring: &mut Ring) {
        if !self.later.is_empty() && !self.timer && self.room.control.left() > 0 && ring.port.room() > 0 {
            self.timer = true;
            let entry = opcode::Timeout::new(&raw const LATER).build();
            // SAFETY: `LATER` is a static, so the pointer is valid forever.
            unsafe { self.push_control(ring, &entry, About::Timer) };
        }
        while self.room.control.left() > 0
            && ring.port.room() > 0
            && let Some(key) = self.cancels.pop_front()
        {
            if let Some(step) = self.slots.in_flight(key).and_then(|program| program.owed_steps().next()) {
                let entry = opcode::AsyncCancel::new(About::Step { key, step, is_limit: false }.user_data()).build();
                // SAFETY: a cancel entry contains no pointers.
                unsafe { self.push_control(ring, &entry, About::Cancel(key)) };
            }
        }
    }

    /// Pushes the steps of an admitted program. Returns whether they fit into this submission and this turn.
    fn push_program(&mut self, ring: &mut Ring, key: Key, done: &mut Done) -> bool {
        let program = self.slots.queued(key).expect("internal: the program is not queued");
        let (entries, bytes) = program.weight();
        if entries > ring.port.room() || !done.takes(entries, bytes) {
            return false;
        }
        let pieces = program.pieces();
        self.in_flight += pieces.len();
        for piece in pieces {
            let about = About::Step { key, step: piece.step, is_limit: piece.is_limit };
            // SAFETY: the entry points into operations of the program or into memory they own. The program stays in its
            // slot, untouched, until all its completions have arrived (invariants of `op`, `slots`).
            unsafe { ring.push(&piece.entry, about.user_data(), piece.linked) };
        }
        self.slots.submitted(key);
        true
    }

    /// Pushes a cancel or the timer, for which there must be room.
    ///
    /// # Safety
    ///
    /// As [`Port::push`](super::port::Port::push).
    unsafe fn push_control(&mut self, ring: &mut Ring, entry: &Entry, about: About) {
        self.in_flight += 1;
        self.room.control.used += 1;
        // SAFETY: the caller's promise.
        unsafe { ring.push(entry, about.user_data(), false) };
    }
}
