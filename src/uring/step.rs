//! One step of a program: attempted until it is done, on a ring or by plain calls.

use std::io;
use std::time::{Duration, Instant};

use io_uring::squeue::Entry;
use io_uring::{opcode, types};
use rustix::io::Errno;

use super::op::{FileUse, Files, Operation, Progress, StepOutcome};
use crate::sys::transfer;

/// Maximum number of consecutive attempts without progress.
pub(super) const RETRIES: u32 = 64;
/// Maximum time limit, so that no sum of times overflows.
const LIMIT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Interval at which a waiting blocking job checks whether it was abandoned.
const PATIENCE: Duration = Duration::from_millis(100);
pub(super) const CANCELED: i32 = Errno::CANCELED.raw_os_error();
/// `ERESTARTSYS`, the kernel's internal code of an interrupted call, which `IORING_OP_SPLICE` returns.
const RESTART: i32 = 512;
/// Errors after which a step may be tried again.
const AGAIN: [i32; 4] = [CANCELED, Errno::INTR.raw_os_error(), Errno::AGAIN.raw_os_error(), RESTART];
const EXPIRED: [i32; 2] = [Errno::TIME.raw_os_error(), Errno::ALREADY.raw_os_error()];
/// Errors that may mean that only the ring lacks the operation.
const REFUSED: [i32; 3] = [Errno::NOSYS.raw_os_error(), Errno::INVAL.raw_os_error(), Errno::OPNOTSUPP.raw_os_error()];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// The step was completed in full.
    Soft,
    /// The step has ended, with any outcome.
    Hard,
}

pub(super) enum Judgement {
    Ended(StepOutcome),
    Again,
    /// The ring lacks the operation, or its arguments are wrong.
    Refused(i32),
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) op: Box<dyn Operation>,
    pub(super) link: Link,
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
    left: Box<types::Timespec>,
}

impl Limit {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit: limit.min(LIMIT_MAX), since: None, left: Box::default() }
    }

    /// Returns the remaining time of a step that begins now at the latest.
    fn left(&mut self) -> Duration {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.limit.saturating_sub(since.elapsed())
    }

    /// Returns the time limit of an attempt on a ring; `begins` tells whether it starts at submission.
    pub(super) fn for_kernel(&mut self, begins: bool) -> *const types::Timespec {
        *self.left = if begins { self.left() } else { self.limit }.into();
        &raw const *self.left
    }
}

impl Step {
    pub(super) fn new(op: Box<dyn Operation>) -> Self {
        Self {
            op,
            link: Link::Soft,
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

    /// Returns whether this step opened a file, which may be closed by now.
    pub(super) fn has_opened(&self) -> bool {
        let is_done = matches!(self.outcome, Some(StepOutcome::Done(_))) || matches!(self.result, Some(Ok(_)));
        is_done && matches!(self.op.file(), FileUse::Opens(_))
    }

    /// Returns the entry of the next attempt, without its time limit. Completions of both become owed.
    pub(super) fn entry(&mut self, files: &Files) -> Entry {
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
    pub(super) fn complete(&mut self, is_limit: bool, result: Result<u32, i32>) -> bool {
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

    pub(super) fn judge(&mut self, result: Result<u32, i32>, is_spent: bool) -> Judgement {
        let timed_out = StepOutcome::Failed(Errno::TIMEDOUT.raw_os_error());
        let outcome = match result {
            Ok(_) if self.is_waiting() => {
                self.waits += 1;
                return Judgement::Again;
            }
            Ok(n) => match self.op.advance(n) {
                Progress::Done => StepOutcome::Done(self.op.bytes()),
                Progress::End if self.op.has_not_ended() && !is_spent => return Judgement::Again,
                Progress::End if self.op.has_not_ended() => return Judgement::Refused(Errno::IO.raw_os_error()),
                Progress::End => StepOutcome::Short(self.op.bytes()),
                Progress::More if self.timed_out => timed_out,
                Progress::More => return Judgement::Again,
            },
            Err(e) => match self.op.fail(e) {
                Some(outcome) => outcome,
                None if REFUSED.contains(&e) => return Judgement::Refused(e),
                None if AGAIN.contains(&e) && self.timed_out => timed_out,
                None if AGAIN.contains(&e) && !is_spent => {
                    let can_wait = e == Errno::AGAIN.raw_os_error() && !self.is_waiting();
                    self.waits += usize::from(can_wait && self.op.waits().iter().any(Option::is_some));
                    return Judgement::Again;
                }
                None => StepOutcome::Failed(e),
            },
        };
        Judgement::Ended(outcome)
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
                Err(e) => return StepOutcome::Failed(e.raw_os_error().unwrap_or(Errno::IO.raw_os_error())),
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

#[cfg(test)]
mod tests {
    use super::super::op::Target;
    use super::super::op::open::Close;
    use super::super::op::rw::{Read, Write};
    use super::*;
    use bytes::Bytes;
    use std::sync::Arc;

    fn file() -> Target {
        Arc::new(std::fs::File::open("/dev/null").unwrap()).into()
    }

    fn write() -> Step {
        Step::new(Box::new(Write::next(file(), Bytes::from_static(b"0123456789"))))
    }

    fn errno(errno: Errno) -> Result<u32, i32> {
        Err(errno.raw_os_error())
    }

    #[track_caller]
    fn ended(judgement: Judgement, outcome: StepOutcome) {
        assert!(matches!(judgement, Judgement::Ended(ended) if ended == outcome));
    }

    #[test]
    fn an_expired_limit_is_a_timeout() {
        let timed_out = StepOutcome::Failed(Errno::TIMEDOUT.raw_os_error());
        for limit in [Errno::TIME, Errno::ALREADY] {
            for result in [errno(Errno::CANCELED), errno(Errno::INTR), Err(RESTART), Ok(3)] {
                let mut step = write();
                step.limit = Some(Limit::new(Duration::MAX));
                let _ = step.entry(&Files::default());
                assert!(step.complete(true, errno(limit)) && step.complete(false, result));
                assert!(!step.complete(false, result), "no completion is owed");
                ended(step.judge(result, false), timed_out);
            }
            let mut step = write();
            step.limit = Some(Limit::new(Duration::ZERO));
            let _ = step.entry(&Files::default());
            assert!(step.complete(true, errno(limit)));
            ended(step.judge(Ok(10), false), StepOutcome::Done(10));
        }
    }

    #[test]
    fn a_descriptor_that_is_not_ready_is_waited_for_and_then_tried_again() {
        let mut step = write();
        assert!(matches!(step.judge(errno(Errno::AGAIN), false), Judgement::Again));
        assert!(step.is_waiting());
        // After an interrupt it polls again, for the same event.
        assert!(matches!(step.judge(errno(Errno::INTR), false), Judgement::Again));
        assert!(step.is_waiting());
        assert!(matches!(step.judge(Ok(4), false), Judgement::Again), "a poll result is not a number of bytes");
        assert!(!step.is_waiting());
        ended(step.judge(Ok(10), false), StepOutcome::Done(10));
        let mut step = Step::new(Box::new(Read::new(file(), 0, 10)));
        assert!(matches!(step.judge(errno(Errno::AGAIN), false), Judgement::Again));
        assert!(!step.is_waiting());
        ended(step.judge(errno(Errno::AGAIN), true), StepOutcome::Failed(Errno::AGAIN.raw_os_error()));
    }

    #[test]
    fn a_read_that_ends_before_its_file_is_repeated_and_then_left_to_a_plain_call() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, [7; 100]).unwrap();
        let open = || Target::from(Arc::new(std::fs::File::open(&file).unwrap()));
        let mut step = Step::new(Box::new(Read::new(open(), 40, 100)));
        assert!(matches!(step.judge(Ok(0), false), Judgement::Again));
        assert!(matches!(step.judge(Ok(0), true), Judgement::Refused(_)));
        let mut step = Step::new(Box::new(Read::new(open(), 100, 100)));
        ended(step.judge(Ok(0), false), StepOutcome::Short(0));
    }

    #[test]
    fn what_must_not_be_repeated_is_not() {
        let close = || Step::new(Box::new(Close::fd(std::fs::File::open("/dev/null").unwrap().into())));
        for (errno, outcome) in [
            (Errno::INTR, StepOutcome::Done(0)),
            (Errno::INVAL, StepOutcome::Failed(Errno::INVAL.raw_os_error())),
            (Errno::AGAIN, StepOutcome::Failed(Errno::AGAIN.raw_os_error())),
        ] {
            ended(close().judge(Err(errno.raw_os_error()), false), outcome);
        }
        assert!(matches!(close().judge(errno(Errno::CANCELED), false), Judgement::Again));
        assert!(matches!(write().judge(errno(Errno::INVAL), false), Judgement::Refused(_)));
    }

    #[test]
    fn an_abandoned_job_does_nothing_more() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let mut step = Step::new(Box::new(Read::next(Arc::new(reader).into(), 1)));
        let mut asked = 0;
        let outcome = step.perform(&mut Files::default(), || {
            asked += 1;
            asked > 1
        });
        assert_eq!((outcome, asked), (StepOutcome::Skipped, 2));
    }
}
