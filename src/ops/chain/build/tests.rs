//! Unit tests of `build`.

use super::*;

fn mistake(chain: Chain) -> String {
    let error = chain.ready().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.report().outcomes().iter().all(|outcome| *outcome == super::super::super::StepOutcome::Skipped));
    crate::report::report(&error)
}

#[test]
fn mistakes_are_errors_that_name_the_step() {
    let read = OpenOptions::new().read(true);
    for (chain, expected) in [
        (Chain::new().unlink("a").open("b\0", read), "open b\0 (step 2 of 2): the path contains a NUL byte"),
        (
            Chain::new().open("a", OpenOptions::new()),
            "open a (step 1 of 1): set at least one of read, write and append",
        ),
        (Chain::new().sync(), "sync (no file) (step 1 of 1): there is no file to work on; call `open` or `on` first"),
        (Chain::new().open("a", read).close().read(1), "read (no file) (step 3 of 3): there is no file"),
        (Chain::new().open("a", read).close().close(), "close (no file) (step 3 of 3): there is no file"),
        (Chain::new().timeout(Duration::ZERO).unlink("a"), "unlink a (step 1 of 1): this is about the step before"),
        (Chain::new().hardlink(), "a chain without steps: this is about the step before"),
        (Chain::new().rename("a", "\0"), "rename a to \0 (step 1 of 1): the path contains a NUL byte"),
    ] {
        let error = mistake(chain);
        assert!(error.starts_with(expected), "{error}");
    }
    let stdin = Arc::new(std::io::stdin());
    assert!(mistake(Chain::new().on(stdin).close()).contains("closes only files that it opened"));
}

#[test]
fn the_number_of_steps_is_limited() {
    let of = |steps| (0..steps).fold(Chain::new(), |chain, _| chain.nop());
    assert!(of(Chain::STEPS_MAX).ready().is_ok());
    let error = mistake(of(Chain::STEPS_MAX + 2));
    assert_eq!(error, "nop nothing (step 129 of 130): a chain has at most 128 steps");
}

#[test]
fn open_files_are_closed_at_the_end() {
    let read = OpenOptions::new().read(true);
    let chain = Chain::new().open("a", read).open("b", read).close().open("c", read).sync();
    let (program, steps) = chain.ready().unwrap();
    assert_eq!((program.len(), steps.0.len()), (7, 5));
}
