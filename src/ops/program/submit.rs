//! A program on a ring: its entries, its completions, and what is left to do.

use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use tokio::sync::OwnedSemaphorePermit;

use super::super::operation::FileUse;
use super::super::outcome::StepOutcome;
use super::super::step::{CANCELED, ProgramStep, RETRIES, StepLink, StepVerdict};
use super::Need;
use super::{Program, ProgramVerdict};

pub(crate) struct Piece {
    pub(crate) entry: Entry,
    pub(crate) step: usize,
    /// Whether the entry is the time limit of the step.
    pub(crate) is_limit: bool,
    /// Whether the next entry belongs to the same chain.
    pub(crate) linked: bool,
}

impl Program {
    pub(crate) fn has_permit(&self) -> bool {
        self.permit.is_some()
    }

    pub(crate) fn take_permit(&mut self) -> Option<OwnedSemaphorePermit> {
        self.permit.take()
    }

    pub(crate) fn need(&self, waits: bool) -> Need {
        Need { waits, completions: self.entries_in_all(), places: self.opens }
    }

    pub(crate) fn enter(&mut self, need: Need, places: Vec<u32>) {
        self.taken = Some(need);
        if !places.is_empty() {
            self.files.assign(places);
        }
    }

    /// Ends the use of the ring. Returns the room that the program held.
    pub(crate) fn leave(&mut self) -> Option<Need> {
        self.taken.take()
    }

    pub(crate) fn code(&self, step: usize) -> u8 {
        self.steps[step].op.code()
    }

    pub(crate) fn codes(&self) -> impl Iterator<Item = u8> {
        self.steps.iter().filter(|step| step.outcome.is_none()).map(|step| step.op.code())
    }

    /// Returns the steps to submit together: up to the first one after which the kernel would wrongly continue.
    fn todo(&self) -> impl Iterator<Item = (usize, &ProgramStep)> {
        let (mut may_go_on, mut is_over) = (true, false);
        let left = self.steps.iter().enumerate().filter(|(_, step)| step.outcome.is_none());
        left.map_while(move |(n, step)| {
            if is_over || (!may_go_on && !step.is_last) {
                return None;
            }
            // A ready descriptor does not mean that the step is done.
            is_over = step.is_waiting();
            may_go_on &= step.link == StepLink::Hard || step.op.stops_links();
            Some((n, step))
        })
    }

    /// Returns the number of [`pieces`](Self::pieces), and of bytes that the kernel may move at submission.
    pub(crate) fn weight(&self) -> (usize, usize) {
        self.todo().fold((0, 0), |(entries, bytes), (_, step)| {
            let here = if step.is_waiting() { 0 } else { step.op.bytes_at_once() };
            (entries + 1 + usize::from(step.limit.is_some()), bytes + here)
        })
    }

    pub(crate) fn entries_in_all(&self) -> usize {
        self.steps.iter().map(|step| 1 + usize::from(step.limit.is_some())).sum()
    }

    /// Builds the entries of the remaining steps. The program must not move until every completion has arrived.
    pub(crate) fn pieces(&mut self) -> Vec<Piece> {
        let todo: Vec<usize> = self.todo().map(|(n, _)| n).collect();
        let mut pieces = Vec::with_capacity(2 * todo.len());
        for (nth, &n) in todo.iter().enumerate() {
            let step = &mut self.steps[n];
            let linked = nth + 1 < todo.len();
            let link = match step.link {
                _ if !linked => Flags::empty(),
                StepLink::Soft => Flags::IO_LINK,
                StepLink::Hard => Flags::IO_HARDLINK,
            };
            let mut entry = step.entry(&self.files);
            if let Some(limit) = &mut step.limit {
                // A time limit belongs to the preceding entry, which must be soft-linked to it.
                entry = entry.flags(if step.link == StepLink::Hard { Flags::IO_HARDLINK } else { Flags::IO_LINK });
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
    pub(crate) fn complete(&mut self, step: usize, is_limit: bool, result: Result<u32, i32>) -> bool {
        self.steps.get_mut(step).is_some_and(|step| step.complete(is_limit, result))
    }

    pub(crate) fn owed(&self) -> usize {
        self.steps.iter().map(|step| usize::from(step.owed)).sum()
    }

    pub(crate) fn owed_steps(&self) -> impl Iterator<Item = usize> {
        self.steps.iter().enumerate().filter(|(_, step)| step.owed > 0).map(|(n, _)| n)
    }

    pub(crate) fn open_places(&self) -> Vec<u32> {
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
    pub(crate) fn give_up(&mut self, errno: i32) {
        let mut left = self.steps.iter_mut().filter(|step| step.outcome.is_none());
        if let Some(first) = left.next() {
            first.outcome = Some(StepOutcome::Failed(errno));
        }
        left.for_each(|step| step.outcome = Some(StepOutcome::Skipped));
    }

    pub(crate) fn settle(&mut self) -> ProgramVerdict {
        // After an incomplete step the kernel cancels the linked steps: for good, or until the step is resumed.
        let mut cut: Option<bool> = None;
        let mut left = false;
        let mut moved = false;
        let mut refused = None;
        let is_spent = self.retries >= RETRIES;
        // Plain calls cannot reach files in the ring's table.
        let is_out_of_reach = self.steps.iter().any(ProgramStep::has_opened);
        for (n, step) in self.steps.iter_mut().enumerate().filter(|(_, step)| step.outcome.is_none()) {
            let bytes = step.op.bytes();
            step.outcome = match step.result.take() {
                None | Some(Err(CANCELED)) if cut == Some(false) => Some(StepOutcome::Skipped),
                None => None,
                Some(Err(CANCELED)) if cut == Some(true) => None,
                Some(result) => match step.judge(result, is_spent) {
                    StepVerdict::Ended(outcome) => Some(outcome),
                    StepVerdict::Refused(e) if is_out_of_reach => Some(StepOutcome::Failed(e)),
                    StepVerdict::Refused(_) => {
                        refused = refused.or(Some(n));
                        None
                    }
                    StepVerdict::Again => None,
                },
            };
            left |= step.outcome.is_none();
            moved |= step.outcome.is_some() || step.op.bytes() > bytes;
            if step.link == StepLink::Soft && cut.is_none() && !matches!(step.outcome, Some(StepOutcome::Done(_))) {
                cut = Some(step.outcome.is_none());
            }
        }
        self.retries = if moved { 0 } else { self.retries + 1 };
        match refused {
            Some(n) => ProgramVerdict::Refused(n),
            None if left => ProgramVerdict::Again,
            None => ProgramVerdict::Finished,
        }
    }
}
