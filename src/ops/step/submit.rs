//! A step on a ring: its entries, and the meaning of their results.

use io_uring::squeue::Entry;
use io_uring::{opcode, types};

use super::super::operation::FileUse;
use super::super::outcome::{Progress, StepOutcome};
use super::super::target::Files;
use super::{CANCELED, Limit, ProgramStep, StepVerdict};
use crate::sys::errno::Errno;

/// `ERESTARTSYS`, the kernel's internal code of an interrupted call, which `IORING_OP_SPLICE` returns.
const RESTART: i32 = 512;
/// Errors after which a step may be tried again.
const AGAIN: [i32; 4] = [CANCELED, Errno::INTR.raw_os_error(), Errno::AGAIN.raw_os_error(), RESTART];
const EXPIRED: [i32; 2] = [Errno::TIME.raw_os_error(), Errno::ALREADY.raw_os_error()];
/// Errors that may mean that only the ring lacks the operation.
const REFUSED: [i32; 3] = [Errno::NOSYS.raw_os_error(), Errno::INVAL.raw_os_error(), Errno::OPNOTSUPP.raw_os_error()];

impl Limit {
    /// Returns the time limit of an attempt on a ring; `begins` tells whether it starts at submission.
    pub(in super::super) fn for_kernel(&mut self, begins: bool) -> *const types::Timespec {
        *self.left = if begins { self.left() } else { self.limit }.into();
        &raw const *self.left
    }
}

impl ProgramStep {
    /// Returns whether this step opened a file, which may be closed by now.
    pub(in super::super) fn has_opened(&self) -> bool {
        let is_done = matches!(self.outcome, Some(StepOutcome::Done(_))) || matches!(self.result, Some(Ok(_)));
        is_done && matches!(self.op.file(), FileUse::Opens(_))
    }

    /// Returns the entry of the next attempt, without its time limit. Completions of both become owed.
    pub(in super::super) fn entry(&mut self, files: &Files) -> Entry {
        self.owed = 1 + u8::from(self.limit.is_some());
        self.timed_out = false;
        if !self.is_waiting() {
            return self.op.entry(files);
        }
        // The descriptors are polled alternately.
        let mut waits = self.op.waits().into_iter().flatten().cycle();
        let (target, events) = waits.nth(self.waits / 2).expect("internal: no descriptor to wait for");
        let (fd, flags) = target.in_ring(files);
        // A cast, because rustix's backends disagree about the sign of the bits.
        opcode::PollAdd::new(fd, events.bits() as u32).build().flags(flags)
    }

    /// Handles a completion. Returns whether it was owed.
    pub(in super::super) fn complete(&mut self, is_limit: bool, result: Result<u32, i32>) -> bool {
        if self.owed == 0 || !is_limit && self.result.is_some() {
            return false;
        }
        if is_limit {
            // The limit expired: the step was cancelled, or is running and was sent a signal.
            self.timed_out = result.is_err_and(|e| EXPIRED.contains(&e));
        } else {
            self.result = Some(result);
        }
        self.owed -= 1;
        true
    }

    pub(in super::super) fn judge(&mut self, result: Result<u32, i32>, is_spent: bool) -> StepVerdict {
        let timed_out = StepOutcome::Failed(Errno::TIMEDOUT.raw_os_error());
        let outcome = match result {
            Ok(_) if self.is_waiting() => {
                self.waits += 1;
                return StepVerdict::Again;
            }
            Ok(n) => match self.op.advance(n) {
                Progress::Done => StepOutcome::Done(self.op.bytes()),
                Progress::End if self.op.has_not_ended() && !is_spent => return StepVerdict::Again,
                Progress::End if self.op.has_not_ended() => return StepVerdict::Refused(Errno::IO.raw_os_error()),
                Progress::End => StepOutcome::Short(self.op.bytes()),
                Progress::More if self.timed_out => timed_out,
                Progress::More => return StepVerdict::Again,
            },
            Err(e) => match self.op.fail(e) {
                Some(outcome) => outcome,
                None if REFUSED.contains(&e) => return StepVerdict::Refused(e),
                None if AGAIN.contains(&e) && self.timed_out => timed_out,
                None if AGAIN.contains(&e) && !is_spent => {
                    let can_wait = e == Errno::AGAIN.raw_os_error() && !self.is_waiting();
                    self.waits += usize::from(can_wait && self.op.waits().iter().any(Option::is_some));
                    return StepVerdict::Again;
                }
                None => StepOutcome::Failed(e),
            },
        };
        StepVerdict::Ended(outcome)
    }
}

#[cfg(test)]
mod tests;
