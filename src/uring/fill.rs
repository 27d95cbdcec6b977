//! Submission of one turn: cancels first, then programs that were already admitted, then new programs that find room.
//!
//! A program that finds no room is returned and runs by plain calls, unless entries were pushed in the same fill: these
//! may end at once and free room. So only a full turn leaves programs that are not yet admitted.

#![allow(unsafe_code)]

use io_uring::opcode;
use io_uring::types::Timespec;

use super::driver::{Driver, Ring};
use super::key::{About, Key};
use super::program::Verdict;
use super::queue::{After, Queue};
use super::sync::lock;

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

impl Driver {
    pub(super) fn close_files(&self, ring: &mut Ring) {
        let stale = std::mem::take(&mut lock(&self.queue).stale_files);
        if !stale.is_empty() {
            stale.iter().for_each(|&place| ring.port.close_file(place));
            lock(&self.queue).files.extend(stale);
        }
    }

    pub(super) fn fill(&self, ring: &mut Ring, done: &mut Done, after: &mut After) {
        let mut queue = lock(&self.queue);
        let queue = &mut *queue;
        if queue.closed.is_some() {
            return;
        }
        let before = ring.pushed.len();
        self.fill_cancels(ring, queue);
        self.fill_receives(ring, queue);
        while let Some(&key) = queue.again.front() {
            if queue.slots.queued(key).is_some() && !self.push_program(ring, queue, key, done) {
                return;
            }
            queue.again.pop_front();
        }
        while let Some(&key) = queue.todo.front() {
            if let Some(program) = queue.slots.queued(key) {
                let need = program.need(program.has_permit());
                if need.places > queue.files.len() && !queue.stale_files.is_empty() {
                    return;
                }
                if need.places <= queue.files.len() && queue.room.take(need) {
                    program.enter(need, queue.files.split_off(queue.files.len() - need.places));
                    program.files().set_registered(queue.registered);
                    // The program holds its room from here on, whether it is pushed now or later.
                    queue.todo.pop_front();
                    if !self.push_program(ring, queue, key, done) {
                        queue.again.push_back(key);
                        return;
                    }
                    continue;
                }
                if ring.pushed.len() > before {
                    // The pushed entries may end at once and free their room.
                    return;
                }
                queue.end(key, Verdict::Again, after);
            }
            queue.todo.pop_front();
        }
    }

    fn fill_cancels(&self, ring: &mut Ring, queue: &mut Queue) {
        if !queue.later.is_empty() && !queue.timer && queue.room.control.left() > 0 && ring.port.room() > 0 {
            queue.timer = true;
            let entry = opcode::Timeout::new(&raw const LATER).build();
            // SAFETY: `LATER` is a static, so the pointer is valid forever.
            unsafe { ring.push_control(&entry, About::Timer, queue) };
        }
        while queue.room.control.left() > 0
            && ring.port.room() > 0
            && let Some(key) = queue.cancels.pop_front()
        {
            if let Some(step) = queue.slots.in_flight(key).and_then(|program| program.owed_steps().next()) {
                let entry = opcode::AsyncCancel::new(About::Step { key, step, is_limit: false }.user_data()).build();
                // SAFETY: a cancel entry contains no pointers.
                unsafe { ring.push_control(&entry, About::Cancel(key), queue) };
            }
        }
    }

    /// Pushes the steps of an admitted program. Returns whether they fit into this submission and this turn.
    fn push_program(&self, ring: &mut Ring, queue: &mut Queue, key: Key, done: &mut Done) -> bool {
        let program = queue.slots.queued(key).expect("internal: the program is not queued");
        let (entries, bytes) = program.weight();
        if entries > ring.port.room() || !done.takes(entries, bytes) {
            return false;
        }
        let pieces = program.pieces();
        queue.in_flight += pieces.len();
        for piece in pieces {
            let about = About::Step { key, step: piece.step, is_limit: piece.is_limit };
            // SAFETY: the entry points into operations of the program or into memory they own. The program stays in its
            // slot, untouched, until all its completions have arrived (invariants of `op`, `slots`).
            unsafe { ring.push(&piece.entry, about.user_data(), piece.linked) };
        }
        queue.slots.submitted(key);
        true
    }
}
