//! Unit tests of `submit`.

use super::super::super::open::Close;
use super::super::super::rw::{Read, Write};
use super::super::super::target::Target;
use super::super::Limit;
use super::*;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

fn file() -> Target {
    Arc::new(std::fs::File::open("/dev/null").unwrap()).into()
}

fn write() -> ProgramStep {
    ProgramStep::new(Box::new(Write::next(file(), Bytes::from_static(b"0123456789"))))
}

fn errno(errno: Errno) -> Result<u32, i32> {
    Err(errno.raw_os_error())
}

#[track_caller]
fn ended(judgement: StepVerdict, outcome: StepOutcome) {
    assert!(matches!(judgement, StepVerdict::Ended(ended) if ended == outcome));
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
    assert!(matches!(step.judge(errno(Errno::AGAIN), false), StepVerdict::Again));
    assert!(step.is_waiting());
    // After an interrupt it polls again, for the same event.
    assert!(matches!(step.judge(errno(Errno::INTR), false), StepVerdict::Again));
    assert!(step.is_waiting());
    assert!(matches!(step.judge(Ok(4), false), StepVerdict::Again), "a poll result is not a number of bytes");
    assert!(!step.is_waiting());
    ended(step.judge(Ok(10), false), StepOutcome::Done(10));
    let mut step = ProgramStep::new(Box::new(Read::new(file(), 0, 10)));
    assert!(matches!(step.judge(errno(Errno::AGAIN), false), StepVerdict::Again));
    assert!(!step.is_waiting());
    ended(step.judge(errno(Errno::AGAIN), true), StepOutcome::Failed(Errno::AGAIN.raw_os_error()));
}

#[test]
fn a_read_that_ends_before_its_file_is_repeated_and_then_left_to_a_plain_call() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, [7; 100]).unwrap();
    let open = || Target::from(Arc::new(std::fs::File::open(&file).unwrap()));
    let mut step = ProgramStep::new(Box::new(Read::new(open(), 40, 100)));
    assert!(matches!(step.judge(Ok(0), false), StepVerdict::Again));
    assert!(matches!(step.judge(Ok(0), true), StepVerdict::Refused(_)));
    let mut step = ProgramStep::new(Box::new(Read::new(open(), 100, 100)));
    ended(step.judge(Ok(0), false), StepOutcome::Short(0));
}

#[test]
fn what_must_not_be_repeated_is_not() {
    let close = || ProgramStep::new(Box::new(Close::fd(std::fs::File::open("/dev/null").unwrap().into())));
    for (errno, outcome) in [
        (Errno::INTR, StepOutcome::Done(0)),
        (Errno::INVAL, StepOutcome::Failed(Errno::INVAL.raw_os_error())),
        (Errno::AGAIN, StepOutcome::Failed(Errno::AGAIN.raw_os_error())),
    ] {
        ended(close().judge(Err(errno.raw_os_error()), false), outcome);
    }
    assert!(matches!(close().judge(errno(Errno::CANCELED), false), StepVerdict::Again));
    assert!(matches!(write().judge(errno(Errno::INVAL), false), StepVerdict::Refused(_)));
}

#[test]
fn an_abandoned_job_does_nothing_more() {
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let mut step = ProgramStep::new(Box::new(Read::next(Arc::new(reader).into(), 1)));
    let mut asked = 0;
    let outcome = step.perform(&mut Files::default(), || {
        asked += 1;
        asked > 1
    });
    assert_eq!((outcome, asked), (StepOutcome::Skipped, 2));
}
