//! What futures and the driver share: the programs, what is to be submitted, what is in flight.
//!
//! It is behind one lock that is held for moments. Nothing in here calls the kernel, wakes anybody or drops what belongs
//! to users: that is put into an [`After`], for when the lock is released.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use rustix::io::Errno;

use super::inbox::{Buffers, Inbox, Receiver};
use super::key::{About, Key, STEPS_MAX};
use super::outbox::Sends;
use super::port::Port;
use super::program::{Program, Verdict};
use super::slots::{Ended, Slots};
use crate::buf::queue::Shares;
use crate::kernel::uring::Completion;
use crate::observe::counters::{Counter, count};

/// What is shared with the futures.
pub(super) struct Queue {
    pub(super) slots: Slots,
    /// Programs to submit, oldest first. Keys of programs that were dropped meanwhile stay and are skipped.
    pub(super) todo: VecDeque<Key>,
    /// Programs to cancel. Of a chain only the first step that is owed can be: the others have not begun.
    pub(super) cancels: VecDeque<Key>,
    /// Programs whose cancel has found nothing, to be cancelled again a little later.
    pub(super) later: VecDeque<Key>,
    /// Sockets that are received from.
    pub(super) inbox: Inbox,
    /// Sends of this moment, and what zero-copy ones keep.
    pub(super) sends: Sends,
    /// Last completions the kernel owes, those of cancels included and those of receives not.
    pub(super) in_flight: usize,
    /// Free places in the ring's table of files.
    pub(super) files: Vec<u32>,
    /// Places whose files are still open though their programs have ended.
    pub(super) stale_files: Vec<u32>,
    /// Operations that go by plain calls.
    pub(super) by_calls: [bool; 256],
    /// Entries and files that one program can have.
    pub(super) limits: (usize, usize),
    /// The most that may be in flight.
    pub(super) completions: usize,
    /// Operations may name pool memory by its index.
    pub(super) registered: bool,
    /// Why the ring takes nothing any more.
    pub(super) closed: Option<String>,
}

/// What is to be done once no lock is held: wakers and programs may run the code of users.
#[derive(Default)]
pub(super) struct After {
    pub(super) wake: Vec<Waker>,
    #[expect(clippy::vec_box, reason = "they come in boxes, and none is to be moved out of its own")]
    pub(super) drop: Vec<Box<Program>>,
    pub(super) receivers: Vec<Arc<dyn Receiver>>,
    pub(super) shares: Vec<Shares>,
}

impl After {
    pub(super) fn ended(&mut self, (waker, end): (Option<Waker>, Option<Ended>)) {
        self.wake.extend(waker);
        match end {
            Some(Ended::Finished(program) | Ended::Fallback(program, _)) => self.drop.push(program),
            Some(Ended::Lost) | None => {}
        }
    }

    pub(super) fn run(self) {
        drop(self.drop);
        drop(self.receivers);
        drop(self.shares);
        self.wake.into_iter().for_each(Waker::wake);
    }
}

impl Queue {
    /// An empty one, for a ring that has room for so many entries and files at once, and knows registered buffers or not.
    pub(super) fn new(port: &mut dyn Port, files: usize, registered: bool, buffers: Buffers) -> Self {
        let mut by_calls = [false; 256];
        by_calls.iter_mut().zip(0..=u8::MAX).for_each(|(by_calls, opcode)| *by_calls = !port.supports(opcode));
        let limits = (port.room().min(STEPS_MAX), files);
        Self {
            slots: Slots::default(),
            todo: VecDeque::new(),
            cancels: VecDeque::new(),
            later: VecDeque::new(),
            inbox: Inbox::new(buffers),
            sends: Sends::default(),
            in_flight: 0,
            files: (0..files as u32).collect(),
            stale_files: Vec::new(),
            by_calls,
            limits,
            completions: port.completions(),
            registered,
            closed: None,
        }
    }

    /// Why a program cannot run on this ring.
    pub(super) fn refusal(&self, program: &Program) -> Option<String> {
        if let Some(why) = &self.closed {
            return Some(why.clone());
        }
        if program.codes().any(|code| self.by_calls[usize::from(code)]) {
            return Some("the kernel refuses one of its operations by ring".to_owned());
        }
        let (entries, files) = self.limits;
        if program.entries_in_all() > entries || program.opens() > files || program.len() > STEPS_MAX {
            return Some(format!("it needs more than {entries} entries or {files} files at once"));
        }
        None
    }

    /// Completions that there is room for.
    pub(super) fn room(&self) -> usize {
        self.completions.saturating_sub(self.in_flight)
    }

    /// The next program to submit, if there is room for its entries, and for the files it opens. Those whose futures were
    /// dropped are skipped.
    pub(super) fn next(&mut self, room: usize) -> Option<Key> {
        while let Some(&key) = self.todo.front() {
            if let Some(program) = self.slots.queued(key) {
                let fits = program.entries() <= room && program.places_needed() <= self.files.len();
                return fits.then_some(key);
            }
            self.todo.pop_front();
        }
        None
    }

    /// Whether something can be submitted now. What has to wait for a completion, or for a file to be closed by one, is
    /// looked at again when that has come.
    pub(super) fn has_work(&mut self) -> bool {
        let room = self.room();
        let cancels = !(self.cancels.is_empty() && self.later.is_empty() && self.inbox.stopping.is_empty());
        !self.stale_files.is_empty()
            || !self.inbox.queued.is_empty()
            || (cancels && room > 0)
            || self.next(room).is_some()
    }

    /// Takes a completion: whoever waits for the program is woken with its last one.
    pub(super) fn complete(&mut self, completion: Completion, after: &mut After) {
        match About::parse(completion.key) {
            About::Step { key, step, is_limit } => self.complete_step(key, step, is_limit, completion, after),
            About::Cancel(key) => {
                self.in_flight -= 1;
                self.complete_cancel(key, completion.result);
            }
            About::Send(key) => {
                let (is_last, shares) = self.sends.complete(key, completion);
                self.in_flight -= usize::from(is_last);
                after.shares.extend(shares);
            }
            About::Receive(key) => after.receivers.extend(self.inbox.complete(key, completion, &mut after.wake)),
            About::Stop(_) => self.in_flight -= 1,
        }
    }

    fn complete_cancel(&mut self, key: Key, result: Result<u32, i32>) {
        if self.closed.is_none() && self.slots.is_orphan(key) {
            match result.map_err(Errno::from_raw_os_error) {
                // Between two steps of a chain nothing is found: the kernel may be about to begin the second.
                Err(Errno::NOENT) => self.later.push_back(key),
                // It is later.
                Err(Errno::TIME) => self.cancels.push_back(key),
                _ => {}
            }
        }
    }

    fn complete_step(&mut self, key: Key, step: usize, is_limit: bool, completion: Completion, after: &mut After) {
        if completion.more {
            // The first of two completions of a zero-copy send carries the result; the memory is still in use.
            return;
        }
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
            // The chain goes on to another step, which may wait for ever.
            if self.closed.is_none() && self.slots.is_orphan(key) {
                self.cancels.push_back(key);
            }
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
    pub(super) fn end(&mut self, key: Key, verdict: Verdict, after: &mut After) {
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
    pub(super) fn without_files(&mut self, mut program: Box<Program>) -> Box<Program> {
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
