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

use tokio::sync::OwnedSemaphorePermit;

use super::operation::Operation;
use super::outcome::StepOutcome;
use super::peer_waits::PeerWaits;
use super::step::{Limit, ProgramStep, StepLink};
use super::target::Files;

#[cfg(uring)]
mod submit;

/// Action for a program whose completions have all arrived.
#[cfg(uring)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramVerdict {
    Finished,
    Again,
    /// The ring refuses this step; a plain call may do it.
    Refused(usize),
}

/// Maximum room of a ring that a program takes.
#[cfg(uring)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) waits: bool,
    pub(crate) completions: usize,
    pub(crate) places: usize,
}

/// Operations in order, with their progress.
pub(crate) struct Program {
    steps: Vec<ProgramStep>,
    files: Files,
    opens: usize,
    retries: u32,
    by_calls: bool,
    abandoned: Option<Arc<AtomicBool>>,
    pub(crate) peer_waits: PeerWaits,
    /// Permission to wait for a peer on a ring.
    permit: Option<OwnedSemaphorePermit>,
    #[cfg(uring)]
    taken: Option<Need>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.steps.iter().map(|step| (&step.op, step.outcome))).finish()
    }
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
            #[cfg(uring)]
            taken: None,
        }
    }

    pub(crate) fn of(op: impl Operation) -> Self {
        let mut program = Self::new();
        program.push(op);
        program
    }

    pub(crate) fn push(&mut self, op: impl Operation) {
        self.steps.push(ProgramStep::new(Box::new(op)));
    }

    /// Appends a step that may run even if the previous step failed. Its outcome is ignored.
    pub(crate) fn push_last(&mut self, op: impl Operation) {
        let mut step = ProgramStep::new(Box::new(op));
        step.is_last = true;
        self.steps.push(step);
    }

    /// Announces that the next step opens a file. Returns its number for [`super::Target::Opened`].
    pub(crate) fn open_next(&mut self) -> usize {
        self.opens += 1;
        self.opens - 1
    }

    pub(crate) fn set_link(&mut self, link: StepLink) {
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

    pub(crate) fn files(&mut self) -> &mut Files {
        &mut self.files
    }

    pub(crate) fn outcome(&self, step: usize) -> StepOutcome {
        self.steps[step].outcome.unwrap_or(StepOutcome::Skipped)
    }

    /// Returns the bytes that a step has moved.
    pub(crate) fn moved(&self, step: usize) -> u64 {
        self.steps[step].op.bytes()
    }

    pub(crate) fn take<T: Operation>(&mut self, step: usize) -> T {
        let op = std::mem::replace(&mut self.steps[step].op, Box::new(super::rw::Nop));
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
            cut |= step.link == StepLink::Soft && !matches!(step.outcome, Some(StepOutcome::Done(_)));
        }
        self.files.close_all();
    }
}
