//! One step of a program: attempted until it is done, on a ring or by plain calls.

use std::io;
use std::time::{Duration, Instant};

use super::operation::Operation;
use super::outcome::{Progress, StepOutcome};
use super::target::Files;
use crate::sys::errno::Errno;
use crate::sys::transfer;

#[cfg(uring)]
mod submit;

/// Maximum number of consecutive attempts without progress.
pub(super) const RETRIES: u32 = 64;
/// Maximum time limit, so that no sum of times overflows.
const LIMIT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Interval at which a waiting blocking job checks whether it was abandoned.
const PATIENCE: Duration = Duration::from_millis(100);
#[cfg(uring)]
pub(super) const CANCELED: i32 = Errno::CANCELED.raw_os_error();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepLink {
    /// The step was completed in full.
    Soft,
    /// The step has ended, with any outcome.
    Hard,
}

/// The meaning of the result of an attempt on a ring.
#[cfg(uring)]
pub(super) enum StepVerdict {
    Ended(StepOutcome),
    Again,
    /// The ring lacks the operation, or its arguments are wrong.
    Refused(i32),
}

#[derive(Debug)]
pub(super) struct ProgramStep {
    pub(super) op: Box<dyn Operation>,
    pub(super) link: StepLink,
    pub(super) limit: Option<Limit>,
    /// Whether the step runs after any outcome of the previous one. Only such steps follow it.
    pub(super) is_last: bool,
    /// Outstanding completions: of the step, and of its time limit.
    pub(super) owed: u8,
    pub(super) result: Option<Result<u32, i32>>,
    timed_out: bool,
    /// Counts begun and ended waits for a descriptor; odd during a wait.
    waits: usize,
    pub(super) outcome: Option<StepOutcome>,
}

#[derive(Debug)]
pub(super) struct Limit {
    limit: Duration,
    /// Start time of the step. On a ring it is unknown until the step is the first one.
    since: Option<Instant>,
    /// The remaining time, as read by the kernel.
    #[cfg(uring)]
    left: Box<io_uring::types::Timespec>,
}

impl Limit {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit: limit.min(LIMIT_MAX),
            since: None,
            #[cfg(uring)]
            left: Box::default(),
        }
    }

    /// Returns the remaining time of a step that begins now at the latest.
    fn left(&mut self) -> Duration {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.limit.saturating_sub(since.elapsed())
    }
}

impl ProgramStep {
    pub(super) fn new(op: Box<dyn Operation>) -> Self {
        Self {
            op,
            link: StepLink::Soft,
            limit: None,
            is_last: false,
            owed: 0,
            result: None,
            timed_out: false,
            waits: 0,
            outcome: None,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waits % 2 == 1
    }

    pub(super) fn perform(&mut self, files: &mut Files, mut is_abandoned: impl FnMut() -> bool) -> StepOutcome {
        let mut retries = 0;
        loop {
            let left = self.limit.as_mut().map_or(PATIENCE, Limit::left);
            let result = match left {
                Duration::ZERO => Err(Errno::TIMEDOUT.into()),
                _ if is_abandoned() => return StepOutcome::Skipped,
                left => match self.wait(files, left.min(PATIENCE)) {
                    Ok(true) => self.op.perform(files, usize::MAX),
                    Ok(false) => continue,
                    Err(e) => Err(e),
                },
            };
            match result.map(|n| self.op.advance(n)) {
                Ok(Progress::Done) => return StepOutcome::Done(self.op.bytes()),
                Ok(Progress::End) => return StepOutcome::Short(self.op.bytes()),
                Ok(Progress::More) => retries = 0,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && retries < RETRIES => retries += 1,
                Err(e) => return StepOutcome::Failed(Errno::from_io_error(&e).unwrap_or(Errno::IO).raw_os_error()),
            }
        }
    }

    /// Waits until the operation can proceed, at most for `limit`.
    fn wait(&self, files: &Files, limit: Duration) -> io::Result<bool> {
        for (target, events) in self.op.waits().into_iter().flatten() {
            if !transfer::wait_blocking(target.as_fd(files)?, events, limit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
