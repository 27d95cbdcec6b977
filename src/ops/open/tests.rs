//! Unit tests of `open`.

use std::fs::File;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::super::StepOutcome;
use super::super::program::Program;
use super::super::submit::Submit;
use super::*;

#[test]
fn a_job_leaves_no_open_files() {
    let mut program = Program::new();
    let how = How::new(OFlags::RDONLY, Mode::empty(), ResolveFlags::empty());
    let n = program.open_next();
    program.push(Open::for_program(Dir::default(), c"/dev/null".to_owned(), how, n));
    program.run_blocking();
    assert_eq!(program.outcome(0), StepOutcome::Done(0));
    assert!(program.files().take(n).is_none());
}

#[test]
fn a_failed_close_is_not_repeated() {
    for (errno, outcome) in [
        (Errno::INTR, Some(StepOutcome::Done(0))),
        (Errno::IO, Some(StepOutcome::Failed(Errno::IO.raw_os_error()))),
        (Errno::CANCELED, None),
    ] {
        let mut close = Close::fd(File::open("/dev/null").unwrap().into());
        assert_eq!(close.fail(errno.raw_os_error()), outcome);
        let Closing::Fd(fd) = &close.0 else { unreachable!() };
        assert_eq!(fd.is_some(), outcome.is_none());
    }
}
