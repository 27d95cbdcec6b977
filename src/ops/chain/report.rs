//! Outcomes of a chain, and the error that names the failed step.

use std::fmt;
use std::io;
use std::path::Path;

use bytes::Bytes;

use super::super::outcome::StepOutcome;
use super::super::program::Program;
use super::super::rw::Read;

/// Execution mode of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChainPath {
    /// On io_uring.
    Ring,
    /// By plain system calls in one job on the blocking pool: the whole chain, or the steps that the ring refused.
    Pool,
}

#[derive(Clone, Debug)]
pub(super) struct StepLabel {
    pub(super) verb: &'static str,
    pub(super) what: Box<str>,
    pub(super) want: u64,
}

impl StepLabel {
    pub(super) fn new(verb: &'static str, what: impl Into<Box<str>>) -> Self {
        Self { verb, what: what.into(), want: 0 }
    }

    pub(super) fn two(verb: &'static str, one: &Path, other: &Path) -> Self {
        Self::new(verb, format!("{} to {}", one.display(), other.display()))
    }

    /// Returns whether fewer bytes than requested may be a success.
    fn is_read(&self) -> bool {
        self.verb == "read"
    }
}

#[derive(Debug)]
pub(crate) struct Steps(pub(super) Vec<StepLabel>);

impl Steps {
    pub(crate) fn report(self, mut program: Program) -> Result<ChainReport, ChainError> {
        let outcomes = (0..self.0.len()).map(|step| program.outcome(step)).collect();
        let reads = self.0.iter().enumerate().filter(|(_, label)| label.is_read());
        let reads = reads.map(|(step, _)| program.take::<Read>(step).into_bytes()).collect();
        let path = if program.ran_by_calls() { ChainPath::Pool } else { ChainPath::Ring };
        ChainReport { outcomes, reads, path }.checked(&self)
    }

    /// Returns the error of a chain that could not be run, or whose outcome is unknown.
    pub(crate) fn failed(self, cause: io::Error) -> ChainError {
        let report = ChainReport::of_none(&self);
        ChainError(Box::new(ChainErrorInner { report, step: None, place: "chain".to_owned(), cause }))
    }
}

/// Outcomes of the steps of a chain, and the bytes that were read.
#[derive(Clone, Debug)]
pub struct ChainReport {
    pub(super) outcomes: Vec<StepOutcome>,
    pub(super) reads: Vec<Bytes>,
    pub(super) path: ChainPath,
}

impl ChainReport {
    /// Returns the outcome of each step, in order.
    pub fn outcomes(&self) -> &[StepOutcome] {
        &self.outcomes
    }

    /// Returns the bytes of each read step, in order. Empty for steps that failed at once or were skipped.
    pub fn reads(&self) -> &[Bytes] {
        &self.reads
    }

    /// Returns the bytes of each read step without cloning their handles.
    pub fn into_reads(self) -> Vec<Bytes> {
        self.reads
    }

    /// Returns how the chain was run.
    pub fn path(&self) -> ChainPath {
        self.path
    }

    pub(super) fn of_none(steps: &Steps) -> Self {
        Self { outcomes: vec![StepOutcome::Skipped; steps.0.len()], reads: Vec::new(), path: ChainPath::Pool }
    }

    /// Returns the step that caused the failure, if any.
    fn blamed(&self, label: &[StepLabel]) -> Option<usize> {
        let is_wrong = |step: usize| match self.outcomes[step] {
            StepOutcome::Done(_) => false,
            StepOutcome::Short(_) if label[step].is_read() => {
                self.outcomes.get(step + 1) == Some(&StepOutcome::Skipped)
            }
            _ => true,
        };
        (0..self.outcomes.len()).find(|&step| is_wrong(step))
    }

    fn checked(self, steps: &Steps) -> Result<Self, ChainError> {
        let Some(step) = self.blamed(&steps.0) else { return Ok(self) };
        let what = &steps.0[step];
        let cause = match self.outcomes[step] {
            StepOutcome::Failed(errno) => io::Error::from_raw_os_error(errno),
            StepOutcome::Done(n) | StepOutcome::Short(n) => {
                let kind = match what.verb {
                    "write" | "send" => io::ErrorKind::WriteZero,
                    _ => io::ErrorKind::UnexpectedEof,
                };
                io::Error::new(kind, format!("ended after {n} of {} bytes", what.want))
            }
            StepOutcome::Skipped => io::Error::other("not begun: the runtime is shutting down"),
        };
        Err(ChainError::at(step, steps, cause, self))
    }
}

/// Error of a chain: the failed step, and its path or descriptor. The cause is the
/// [`source`](std::error::Error::source).
///
/// `?` converts it to an [`io::Error`] of the same kind.
pub struct ChainError(Box<ChainErrorInner>);

struct ChainErrorInner {
    report: ChainReport,
    step: Option<usize>,
    place: String,
    cause: io::Error,
}

impl ChainError {
    pub(super) fn at(step: usize, steps: &Steps, cause: io::Error, report: ChainReport) -> Self {
        let place = match steps.0.get(step) {
            Some(StepLabel { verb, what, .. }) => format!("{verb} {what} (step {} of {})", step + 1, steps.0.len()),
            None => "a chain without steps".to_owned(),
        };
        Self(Box::new(ChainErrorInner { report, step: Some(step), place, cause }))
    }

    /// Returns the index of the failed step in [`ChainReport::outcomes`] (the message counts from 1), or `None` if the
    /// chain could not be run for another reason.
    pub fn step(&self) -> Option<usize> {
        self.0.step
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> io::ErrorKind {
        self.0.cause.kind()
    }

    /// Returns whether a file or directory of the failed step does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }

    /// Returns whether the disk, or the quota of the user, has no space left.
    pub fn is_no_space(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Returns the error number, if the system reported one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.cause.raw_os_error()
    }

    /// Returns the outcomes of all steps.
    pub fn report(&self) -> &ChainReport {
        &self.0.report
    }

    /// Returns the outcomes of all steps, with the bytes read before the failure.
    pub fn into_report(self) -> ChainReport {
        self.0.report
    }
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.place)
    }
}

impl fmt::Debug for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChainErrorInner { report, place, cause, .. } = &*self.0;
        f.debug_struct("ChainError")
            .field("at", place)
            .field("cause", cause)
            .field("outcomes", &report.outcomes)
            .finish()
    }
}

impl std::error::Error for ChainError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0.cause)
    }
}

impl From<ChainError> for io::Error {
    fn from(error: ChainError) -> Self {
        Self::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests;
