//! A program: operations in order, linked, run by a ring or by one blocking job with the same outcomes.
//!
//! Whoever runs it reports the raw result of each step; [`Program::settle`] makes outcomes of them and says whether
//! something is left to be done. A step that moved a part of its bytes is resumed from the first byte that is missing,
//! together with the steps behind it that were not run because of that.

use std::any::Any;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};
use rustix::io::Errno;

use super::op::{FileUse, Files, Operation, Progress};

/// How often in a row a step may be asked for again without having moved.
const RETRIES: u32 = 64;

/// What became of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// All of it was done; bytes moved, 0 for steps that move none.
    Done(u64),
    /// That many bytes were moved and there are no more: the source ended, or the target took none.
    Short(u64),
    /// It failed with this error number, [errno(3)](https://man7.org/linux/man-pages/man3/errno.3.html). `ETIMEDOUT` if
    /// it was given a time limit.
    Failed(i32),
    /// It was not begun, because a step before it was not done in full.
    Skipped,
}

/// What the next step needs of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// That all of it was done.
    Soft,
    /// Only that it has ended.
    Hard,
}

/// What is to be done with a program whose completions are all there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every step has its outcome.
    Finished,
    /// Steps are left: submit them.
    Again,
    /// The ring refuses this step; a plain call may do it.
    Refused(usize),
}

#[derive(Debug)]
struct Step {
    op: Box<dyn Operation>,
    /// Between this step and the next.
    link: Link,
    limit: Option<(Duration, Box<types::Timespec>)>,
    /// Completions the kernel still owes: of the step, and of its time limit.
    owed: u8,
    result: Option<Result<u32, i32>>,
    timed_out: bool,
    outcome: Option<Outcome>,
}

/// Operations in order, and how far they have come.
pub(crate) struct Program {
    steps: Vec<Step>,
    files: Files,
    /// Files that its steps open.
    opens: usize,
    retries: u32,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.steps.iter().map(|step| (&step.op, step.outcome))).finish()
    }
}

/// One entry of a program for the submission queue.
pub(super) struct Piece {
    pub(super) entry: Entry,
    pub(super) step: usize,
    /// It is the time limit of the step.
    pub(super) is_limit: bool,
    /// The entry behind it belongs to the same chain.
    pub(super) linked: bool,
}

impl Program {
    pub(crate) fn new() -> Self {
        Self { steps: Vec::new(), files: Files::default(), opens: 0, retries: 0 }
    }

    /// A program of one step.
    pub(crate) fn of(op: impl Operation) -> Self {
        let mut program = Self::new();
        program.push(op);
        program
    }

    /// Appends a step, soft-linked.
    pub(crate) fn push(&mut self, op: impl Operation) {
        let op: Box<dyn Operation> = Box::new(op);
        let link = Link::Soft;
        self.steps.push(Step { op, link, limit: None, owed: 0, result: None, timed_out: false, outcome: None });
    }

    /// Announces that the next step opens a file; gives its number for [`super::op::Target::Opened`].
    pub(crate) fn open_next(&mut self) -> usize {
        self.opens += 1;
        self.opens - 1
    }

    /// Changes the link behind the last step.
    pub(crate) fn set_link(&mut self, link: Link) {
        if let Some(step) = self.steps.last_mut() {
            step.link = link;
        }
    }

    /// Limits the time of the last step.
    pub(crate) fn set_limit(&mut self, limit: Duration) {
        if let Some(step) = self.steps.last_mut() {
            step.limit = Some((limit, Box::new(limit.into())));
        }
    }

    /// Steps, done or not.
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Files that its steps open.
    pub(super) fn opens(&self) -> usize {
        self.opens
    }

    pub(super) fn files(&mut self) -> &mut Files {
        &mut self.files
    }

    /// What became of a step.
    pub(crate) fn outcome(&self, step: usize) -> Outcome {
        self.steps[step].outcome.unwrap_or(Outcome::Skipped)
    }

    /// Takes the operation of a step out of a program that has ended.
    pub(crate) fn take<T: Operation>(&mut self, step: usize) -> T {
        let op = std::mem::replace(&mut self.steps[step].op, Box::new(super::op::rw::Nop));
        let op: Box<dyn Any> = op;
        *op.downcast().expect("internal: an operation of another type")
    }

    /// The result of a program of one step: its operation, and the bytes it moved or its error. A short step is no error
    /// here.
    pub(crate) fn into_single<T: Operation>(mut self) -> (T, io::Result<u64>) {
        let result = match self.outcome(0) {
            Outcome::Done(n) | Outcome::Short(n) => Ok(n),
            Outcome::Failed(errno) => Err(io::Error::from_raw_os_error(errno)),
            Outcome::Skipped => Err(io::Error::other("the runtime is shutting down")),
        };
        (self.take(0), result)
    }

    /// The code of a step's operation.
    pub(crate) fn code(&self, step: usize) -> u8 {
        self.steps[step].op.code()
    }

    /// Operations that are still to be done.
    pub(super) fn codes(&self) -> impl Iterator<Item = u8> {
        self.steps.iter().filter(|step| step.outcome.is_none()).map(|step| step.op.code())
    }

    /// Entries that [`pieces`](Self::pieces) would give.
    pub(super) fn entries(&self) -> usize {
        let todo = self.steps.iter().filter(|step| step.outcome.is_none());
        todo.map(|step| 1 + usize::from(step.limit.is_some())).sum()
    }

    /// The entries for what is still to be done. From here until every completion has come, the program must not move.
    pub(super) fn pieces(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(self.entries());
        let last = self.steps.iter().rposition(|step| step.outcome.is_none());
        for (n, step) in self.steps.iter_mut().enumerate().filter(|(_, step)| step.outcome.is_none()) {
            let linked = Some(n) != last;
            let link = match step.link {
                _ if !linked => Flags::empty(),
                Link::Soft => Flags::IO_LINK,
                Link::Hard => Flags::IO_HARDLINK,
            };
            step.owed = 1;
            step.timed_out = false;
            let mut entry = step.op.entry(&self.files);
            if let Some((_, limit)) = &step.limit {
                step.owed = 2;
                // A time limit belongs to the entry it is soft-linked behind.
                entry = entry.flags(if step.link == Link::Hard { Flags::IO_HARDLINK } else { Flags::IO_LINK });
                pieces.push(Piece { entry, step: n, is_limit: false, linked: true });
                entry = opcode::LinkTimeout::new(&raw const **limit).build();
            }
            pieces.push(Piece { entry: entry.flags(link), step: n, is_limit: step.limit.is_some(), linked });
        }
        pieces
    }

    /// Takes a completion. Returns whether it was one that was owed.
    pub(super) fn complete(&mut self, step: usize, is_limit: bool, result: Result<u32, i32>) -> bool {
        let Some(step) = self.steps.get_mut(step).filter(|step| step.owed > 0) else { return false };
        if is_limit {
            step.timed_out = result == Err(Errno::TIME.raw_os_error());
        } else if step.result.replace(result).is_some() {
            return false;
        }
        step.owed -= 1;
        true
    }

    /// Completions the kernel still owes.
    pub(super) fn owed(&self) -> usize {
        self.steps.iter().map(|step| usize::from(step.owed)).sum()
    }

    /// Steps the kernel still owes a completion.
    pub(super) fn owed_steps(&self) -> impl Iterator<Item = usize> {
        self.steps.iter().enumerate().filter(|(_, step)| step.owed > 0).map(|(n, _)| n)
    }

    /// Places of files that were opened and not closed.
    pub(super) fn open_places(&self) -> Vec<u32> {
        let mut open: Vec<u32> = Vec::new();
        let places = self.files.assigned();
        for step in self.steps.iter().filter(|step| matches!(step.outcome, Some(Outcome::Done(_)))) {
            match step.op.file() {
                FileUse::Opens(n) => open.extend(places.get(n)),
                FileUse::Closes(n) => open.retain(|place| Some(place) != places.get(n)),
                FileUse::None => {}
            }
        }
        open
    }

    /// Ends every step that is left with an error.
    pub(super) fn give_up(&mut self, errno: i32) {
        let mut left = self.steps.iter_mut().filter(|step| step.outcome.is_none());
        if let Some(first) = left.next() {
            first.outcome = Some(Outcome::Failed(errno));
        }
        left.for_each(|step| step.outcome = Some(Outcome::Skipped));
    }

    /// Makes outcomes of the results.
    pub(super) fn settle(&mut self) -> Verdict {
        // Behind a step that was not done in full the kernel cancels what is linked: for good, or until that is resumed.
        let mut cut: Option<bool> = None;
        let mut left = false;
        let mut moved = false;
        let mut refused = None;
        for n in 0..self.steps.len() {
            let step = &mut self.steps[n];
            let Some(result) = step.result.take() else { continue };
            let outcome = match result {
                Err(e) if let Some(outcome) = step.op.fail(e) => Some(outcome),
                Err(e)
                    if is(e, Errno::CANCELED)
                        && let Some(resumed) = cut =>
                {
                    (!resumed).then_some(Outcome::Skipped)
                }
                Err(e) if is(e, Errno::CANCELED) && step.timed_out => {
                    Some(Outcome::Failed(Errno::TIMEDOUT.raw_os_error()))
                }
                Err(e) if [Errno::CANCELED, Errno::INTR, Errno::AGAIN].iter().any(|errno| is(e, *errno)) => {
                    (self.retries >= RETRIES).then_some(Outcome::Failed(e))
                }
                Err(e) if [Errno::NOSYS, Errno::INVAL, Errno::OPNOTSUPP].iter().any(|errno| is(e, *errno)) => {
                    // What a chain has opened lives in the table of the ring, out of reach of plain calls.
                    let is_out_of_reach = self.opens > 0;
                    refused = refused.or((!is_out_of_reach).then_some(n));
                    is_out_of_reach.then_some(Outcome::Failed(e))
                }
                Err(e) => Some(Outcome::Failed(e)),
                Ok(got) => {
                    moved |= got > 0;
                    match step.op.advance(got) {
                        Progress::Done => Some(Outcome::Done(step.op.bytes())),
                        Progress::End => Some(Outcome::Short(step.op.bytes())),
                        Progress::More => None,
                    }
                }
            };
            step.outcome = outcome;
            left |= outcome.is_none();
            if step.link == Link::Soft && cut.is_none() && !matches!(outcome, Some(Outcome::Done(_))) {
                cut = Some(outcome.is_none());
            }
        }
        self.retries = if moved { 0 } else { self.retries + 1 };
        match refused {
            Some(n) => Verdict::Refused(n),
            None if left => Verdict::Again,
            None => Verdict::Finished,
        }
    }

    /// Runs what is still to be done by plain calls, **waiting for each**.
    pub(crate) fn run_blocking(&mut self) {
        let mut cut = false;
        for step in self.steps.iter_mut() {
            if step.outcome.is_none() {
                step.outcome = Some(if cut { Outcome::Skipped } else { perform(step, &mut self.files) });
            }
            cut |= step.link == Link::Soft && !matches!(step.outcome, Some(Outcome::Done(_)));
        }
    }
}

fn is(number: i32, errno: Errno) -> bool {
    number == errno.raw_os_error()
}

/// Runs one step to its end.
fn perform(step: &mut Step, files: &mut Files) -> Outcome {
    let deadline = step.limit.as_ref().map(|(limit, _)| Instant::now() + *limit);
    loop {
        let result = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => Err(Errno::TIMEDOUT.into()),
            left => step.op.wait(files, left).and_then(|()| step.op.perform(files, usize::MAX)),
        };
        match result.map(|n| step.op.advance(n)) {
            Ok(Progress::Done) => return Outcome::Done(step.op.bytes()),
            Ok(Progress::End) => return Outcome::Short(step.op.bytes()),
            Ok(Progress::More) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Outcome::Failed(e.raw_os_error().unwrap_or(Errno::IO.raw_os_error())),
        }
    }
}
