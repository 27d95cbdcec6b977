//! Programs: linked operations in order, run by a ring or by one blocking job with the same outcomes.
//!
//! The runner reports the raw result of each step. [`Program::settle`] turns results into outcomes and returns whether
//! steps are left. A step that moved a part of its bytes is resumed at the first missing byte, together with the later
//! steps that the kernel cancelled for that reason.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use tokio::sync::OwnedSemaphorePermit;

use super::op::{FileUse, Files, Operation, StepOutcome};
use super::peer_waits::PeerWaits;
use super::room::Need;
use super::step::{CANCELED, Judgement, Limit, Link, RETRIES, Step};

/// Action for a program whose completions have all arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Finished,
    Again,
    /// The ring refuses this step; a plain call may do it.
    Refused(usize),
}

/// Operations in order, with their progress.
pub(crate) struct Program {
    steps: Vec<Step>,
    files: Files,
    opens: usize,
    retries: u32,
    by_calls: bool,
    abandoned: Option<Arc<AtomicBool>>,
    pub(crate) peer_waits: PeerWaits,
    /// Permission to wait for a peer on a ring.
    permit: Option<OwnedSemaphorePermit>,
    taken: Option<Need>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.steps.iter().map(|step| (&step.op, step.outcome))).finish()
    }
}

pub(super) struct Piece {
    pub(super) entry: Entry,
    pub(super) step: usize,
    /// Whether the entry is the time limit of the step.
    pub(super) is_limit: bool,
    /// Whether the next entry belongs to the same chain.
    pub(super) linked: bool,
}

impl Program {
    pub(crate) fn new() -> Self {
        Self {
            steps: Vec::new(),
            files: Files::default(),
            opens: 0,
            retries: 0,
            by_calls: false,
            abandoned: None,
            peer_waits: PeerWaits::default(),
            permit: None,
            taken: None,
        }
    }

    pub(crate) fn of(op: impl Operation) -> Self {
        let mut program = Self::new();
        program.push(op);
        program
    }

    pub(crate) fn push(&mut self, op: impl Operation) {
        self.steps.push(Step::new(Box::new(op)));
    }

    /// Appends a step that may run even if the previous step failed. Its outcome is ignored.
    pub(crate) fn push_last(&mut self, op: impl Operation) {
        let mut step = Step::new(Box::new(op));
        step.is_last = true;
        self.steps.push(step);
    }

    /// Announces that the next step opens a file. Returns its number for [`super::op::Target::Opened`].
    pub(crate) fn open_next(&mut self) -> usize {
        self.opens += 1;
        self.opens - 1
    }

    pub(crate) fn set_link(&mut self, link: Link) {
        if let Some(step) = self.steps.last_mut() {
            step.link = link;
        }
    }

    pub(crate) fn set_limit(&mut self, limit: Duration) {
        if let Some(step) = self.steps.last_mut() {
            step.limit = Some(Limit::new(limit));
        }
    }

    /// Sets a flag that stops a blocking job before its next step and ends its waits.
    pub(crate) fn abandon_by(&mut self, abandoned: Arc<AtomicBool>) {
        self.abandoned = Some(abandoned);
    }

    pub(crate) fn ran_by_calls(&self) -> bool {
        self.by_calls
    }

    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Allows the program to run on the ring that issued the permit, even if it waits for a peer.
    pub(crate) fn permit(&mut self, permit: OwnedSemaphorePermit) {
        self.permit = Some(permit);
    }

    pub(super) fn has_permit(&self) -> bool {
        self.permit.is_some()
    }

    pub(super) fn take_permit(&mut self) -> Option<OwnedSemaphorePermit> {
        self.permit.take()
    }

    pub(super) fn need(&self, waits: bool) -> Need {
        Need { waits, completions: self.entries_in_all(), places: self.opens }
    }

    pub(super) fn enter(&mut self, need: Need, places: Vec<u32>) {
        self.taken = Some(need);
        if !places.is_empty() {
            self.files.assign(places);
        }
    }

    /// Ends the use of the ring. Returns the room that the program held.
    pub(super) fn leave(&mut self) -> Option<Need> {
        self.taken.take()
    }

    pub(super) fn files(&mut self) -> &mut Files {
        &mut self.files
    }

    pub(crate) fn outcome(&self, step: usize) -> StepOutcome {
        self.steps[step].outcome.unwrap_or(StepOutcome::Skipped)
    }

    pub(crate) fn take<T: Operation>(&mut self, step: usize) -> T {
        let op = std::mem::replace(&mut self.steps[step].op, Box::new(super::op::rw::Nop));
        let op: Box<dyn Any> = op;
        *op.downcast().expect("internal: an operation of another type")
    }

    /// Returns the operation of a one-step program, and the bytes moved or the error. A short step is no error.
    pub(crate) fn into_single<T: Operation>(mut self) -> (T, io::Result<u64>) {
        let result = match self.outcome(0) {
            StepOutcome::Done(n) | StepOutcome::Short(n) => Ok(n),
            StepOutcome::Failed(errno) => Err(io::Error::from_raw_os_error(errno)),
            StepOutcome::Skipped => Err(io::Error::other("the runtime is shutting down")),
        };
        (self.take(0), result)
    }

    pub(crate) fn code(&self, step: usize) -> u8 {
        self.steps[step].op.code()
    }

    pub(super) fn codes(&self) -> impl Iterator<Item = u8> {
        self.steps.iter().filter(|step| step.outcome.is_none()).map(|step| step.op.code())
    }

    /// Returns the steps to submit together: up to the first one after which the kernel would wrongly continue.
    fn todo(&self) -> impl Iterator<Item = (usize, &Step)> {
        let (mut may_go_on, mut is_over) = (true, false);
        let left = self.steps.iter().enumerate().filter(|(_, step)| step.outcome.is_none());
        left.map_while(move |(n, step)| {
            if is_over || (!may_go_on && !step.is_last) {
                return None;
            }
            // A ready descriptor does not mean that the step is done.
            is_over = step.is_waiting();
            may_go_on &= step.link == Link::Hard || step.op.stops_links();
            Some((n, step))
        })
    }

    /// Returns the number of [`pieces`](Self::pieces), and of bytes that the kernel may move at submission.
    pub(super) fn weight(&self) -> (usize, usize) {
        self.todo().fold((0, 0), |(entries, bytes), (_, step)| {
            let here = if step.is_waiting() { 0 } else { step.op.bytes_at_once() };
            (entries + 1 + usize::from(step.limit.is_some()), bytes + here)
        })
    }

    pub(super) fn entries_in_all(&self) -> usize {
        self.steps.iter().map(|step| 1 + usize::from(step.limit.is_some())).sum()
    }

    /// Builds the entries of the remaining steps. The program must not move until every completion has arrived.
    pub(super) fn pieces(&mut self) -> Vec<Piece> {
        let todo: Vec<usize> = self.todo().map(|(n, _)| n).collect();
        let mut pieces = Vec::with_capacity(2 * todo.len());
        for (nth, &n) in todo.iter().enumerate() {
            let step = &mut self.steps[n];
            let linked = nth + 1 < todo.len();
            let link = match step.link {
                _ if !linked => Flags::empty(),
                Link::Soft => Flags::IO_LINK,
                Link::Hard => Flags::IO_HARDLINK,
            };
            let mut entry = step.entry(&self.files);
            if let Some(limit) = &mut step.limit {
                // A time limit belongs to the preceding entry, which must be soft-linked to it.
                entry = entry.flags(if step.link == Link::Hard { Flags::IO_HARDLINK } else { Flags::IO_LINK });
                pieces.push(Piece { entry, step: n, is_limit: false, linked: true });
                // The kernel measures the time of later steps, whose start is unknown.
                let is_first = nth == 0;
                entry = opcode::LinkTimeout::new(limit.for_kernel(is_first)).build();
            }
            pieces.push(Piece { entry: entry.flags(link), step: n, is_limit: step.limit.is_some(), linked });
        }
        pieces
    }

    /// Handles a completion. Returns whether it was owed.
    pub(super) fn complete(&mut self, step: usize, is_limit: bool, result: Result<u32, i32>) -> bool {
        self.steps.get_mut(step).is_some_and(|step| step.complete(is_limit, result))
    }

    pub(super) fn owed(&self) -> usize {
        self.steps.iter().map(|step| usize::from(step.owed)).sum()
    }

    pub(super) fn owed_steps(&self) -> impl Iterator<Item = usize> {
        self.steps.iter().enumerate().filter(|(_, step)| step.owed > 0).map(|(n, _)| n)
    }

    pub(super) fn open_places(&self) -> Vec<u32> {
        let mut open: Vec<u32> = Vec::new();
        let places = self.files.assigned();
        for step in self.steps.iter().filter(|step| matches!(step.outcome, Some(StepOutcome::Done(_)))) {
            match step.op.file() {
                FileUse::Opens(n) => open.extend(places.get(n)),
                FileUse::Closes(n) => open.retain(|place| Some(place) != places.get(n)),
                FileUse::None => {}
            }
        }
        open
    }

    /// Ends every remaining step: the first with the error, the others as skipped.
    pub(super) fn give_up(&mut self, errno: i32) {
        let mut left = self.steps.iter_mut().filter(|step| step.outcome.is_none());
        if let Some(first) = left.next() {
            first.outcome = Some(StepOutcome::Failed(errno));
        }
        left.for_each(|step| step.outcome = Some(StepOutcome::Skipped));
    }

    pub(super) fn settle(&mut self) -> Verdict {
        // After an incomplete step the kernel cancels the linked steps: for good, or until the step is resumed.
        let mut cut: Option<bool> = None;
        let mut left = false;
        let mut moved = false;
        let mut refused = None;
        let is_spent = self.retries >= RETRIES;
        // Plain calls cannot reach files in the ring's table.
        let is_out_of_reach = self.steps.iter().any(Step::has_opened);
        for (n, step) in self.steps.iter_mut().enumerate().filter(|(_, step)| step.outcome.is_none()) {
            let bytes = step.op.bytes();
            step.outcome = match step.result.take() {
                None | Some(Err(CANCELED)) if cut == Some(false) => Some(StepOutcome::Skipped),
                None => None,
                Some(Err(CANCELED)) if cut == Some(true) => None,
                Some(result) => match step.judge(result, is_spent) {
                    Judgement::Ended(outcome) => Some(outcome),
                    Judgement::Refused(e) if is_out_of_reach => Some(StepOutcome::Failed(e)),
                    Judgement::Refused(_) => {
                        refused = refused.or(Some(n));
                        None
                    }
                    Judgement::Again => None,
                },
            };
            left |= step.outcome.is_none();
            moved |= step.outcome.is_some() || step.op.bytes() > bytes;
            if step.link == Link::Soft && cut.is_none() && !matches!(step.outcome, Some(StepOutcome::Done(_))) {
                cut = Some(step.outcome.is_none());
            }
        }
        self.retries = if moved { 0 } else { self.retries + 1 };
        match refused {
            Some(n) => Verdict::Refused(n),
            None if left => Verdict::Again,
            None => Verdict::Finished,
        }
    }

    /// Runs the remaining steps by plain calls, **waiting for each**.
    pub(crate) fn run_blocking(&mut self) {
        self.by_calls = true;
        let is_abandoned = || self.abandoned.as_ref().is_some_and(|abandoned| abandoned.load(Ordering::Relaxed));
        let mut cut = false;
        for step in self.steps.iter_mut() {
            if step.outcome.is_none() {
                cut |= is_abandoned();
                let outcome = if cut { StepOutcome::Skipped } else { step.perform(&mut self.files, is_abandoned) };
                step.outcome = Some(outcome);
            }
            cut |= step.link == Link::Soft && !matches!(step.outcome, Some(StepOutcome::Done(_)));
        }
        self.files.close_all();
    }
}
