//! Unit tests of `report`.

use super::*;
use crate::report::report;
use StepOutcome::*;

fn check(outcomes: &[StepOutcome]) -> Result<ChainReport, ChainError> {
    let label = ["open", "read", "write", "sync"].map(|verb| StepLabel { want: 100, ..StepLabel::new(verb, "a") });
    let report = ChainReport { outcomes: outcomes.to_vec(), reads: Vec::new(), path: ChainPath::Pool };
    report.checked(&Steps(label[..outcomes.len()].to_vec()))
}

#[test]
fn a_failure_is_blamed_on_its_step() {
    let error = check(&[Done(0), Done(100), Failed(28), Skipped]).unwrap_err();
    assert_eq!((error.step(), error.raw_os_error()), (Some(2), Some(28)));
    assert_eq!(report(&error), "write a (step 3 of 4): No space left on device (os error 28)");
    assert_eq!((error.is_no_space(), error.is_not_found()), (true, false));
    assert_eq!(error.report().outcomes()[3], Skipped);
    let error = io::Error::from(error);
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn a_short_read_is_an_error_only_if_steps_were_skipped_for_it() {
    assert!(check(&[Done(0), Short(7)]).is_ok());
    assert!(check(&[Done(0), Short(7), Done(100), Done(0)]).is_ok());
    let error = check(&[Done(0), Short(7), Skipped, Skipped]).unwrap_err();
    assert_eq!(report(&error), "read a (step 2 of 4): ended after 7 of 100 bytes");
    assert_eq!((error.step(), error.kind()), (Some(1), io::ErrorKind::UnexpectedEof));
}

#[test]
fn a_short_write_is_an_error() {
    let error = check(&[Done(0), Done(100), Short(0), Skipped]).unwrap_err();
    assert_eq!((error.step(), error.kind(), error.raw_os_error()), (Some(2), io::ErrorKind::WriteZero, None));
}

#[test]
fn steps_that_never_began_are_an_error() {
    assert_eq!(check(&[Skipped]).unwrap_err().step(), Some(0));
    assert!(check(&[]).is_ok());
}
