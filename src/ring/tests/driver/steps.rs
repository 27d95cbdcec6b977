//! Outcomes of chains are the same for all results of the kernel, and by plain calls.

use std::time::Duration;

use proptest::prelude::*;
use rustix::io::Errno;

use super::*;
use crate::ops::step::StepLink;
use crate::ops::sync::Sync;

/// Runs a program on a fake ring whose entries end as `script` decides.
fn run(program: Program, script: impl FnMut(&Sqe) -> Act + Send + 'static) -> Program {
    let (driver, _) = driver(32, script);
    let mut running = submit(&driver, program);
    driver.turn();
    finished(&mut running)
}

/// A script that applies `act` to the `n`th entry, once.
fn once(n: usize, act: Act) -> impl FnMut(&Sqe) -> Act + Send {
    let mut asked = 0;
    move |_| {
        asked += 1;
        if asked == n + 1 { act } else { Act::Do }
    }
}

fn three(file: &Arc<File>) -> Program {
    chain((0..3).map(|n| write(file, n * 100, pattern(300)[n as usize * 100..][..100].to_vec())))
}

#[test]
fn a_failure_skips_what_is_linked_behind_it() {
    for errno in [Errno::NOSPC, Errno::IO, Errno::BADF, Errno::FBIG, Errno::DQUOT, Errno::PERM] {
        for n in 0..3 {
            let file = file();
            let done = run(three(&file), once(n, Act::Fail(errno)));
            let mut expected = vec![StepOutcome::Done(100); n];
            expected.push(StepOutcome::Failed(errno.raw_os_error()));
            expected.resize(3, StepOutcome::Skipped);
            assert_eq!(outcomes(&done), expected, "{errno}");
            assert_eq!(contents(&file), pattern(300)[..n * 100]);
        }
    }
}

#[test]
fn steps_after_a_failed_sync_do_not_run() {
    let build = |file: &Arc<File>, link| {
        let mut program = chain([write(file, 0, pattern(10))]);
        program.push(Sync::new(target(file), false));
        program.set_link(link);
        program.push(write(file, 10, pattern(10)));
        program
    };
    let failed = StepOutcome::Failed(Errno::IO.raw_os_error());
    for (link, behind, len) in [(StepLink::Soft, StepOutcome::Skipped, 10), (StepLink::Hard, StepOutcome::Done(10), 20)]
    {
        let file = file();
        let done = run(build(&file, link), once(1, Act::Fail(Errno::IO)));
        assert_eq!(outcomes(&done), [StepOutcome::Done(10), failed, behind]);
        assert_eq!(contents(&file).len(), len);
    }
    let file = file();
    let done = run(build(&file, StepLink::Soft), |_| Act::Do);
    assert_eq!(outcomes(&done), [StepOutcome::Done(10), StepOutcome::Done(0), StepOutcome::Done(10)]);
}

#[test]
fn a_hard_link_goes_on_behind_a_failure() {
    let file = file();
    let mut program = Program::new();
    program.push(write(&file, 0, pattern(10)));
    program.set_link(StepLink::Hard);
    program.push(write(&file, 100, pattern(10)));
    program.push(write(&file, 200, pattern(10)));
    let done = run(program, once(0, Act::Fail(Errno::IO)));
    let failed = StepOutcome::Failed(Errno::IO.raw_os_error());
    assert_eq!(outcomes(&done), [failed, StepOutcome::Done(10), StepOutcome::Done(10)]);
}

#[test]
fn a_short_step_is_resumed_from_the_first_byte_that_is_missing() {
    for n in 0..3 {
        for moved in [1, 50, 99] {
            let file = file();
            let done = run(three(&file), once(n, Act::Short(moved)));
            assert_eq!(outcomes(&done), [StepOutcome::Done(100); 3]);
            assert_eq!(contents(&file), pattern(300), "step {n} cut at {moved}");
        }
    }
}

#[test]
fn a_short_step_with_a_hard_link_is_resumed_alone() {
    let file = file();
    let mut program = Program::new();
    program.push(write(&file, 0, pattern(10)));
    program.set_link(StepLink::Hard);
    program.push(write(&file, 10, [9; 5].to_vec()));
    let mut writes = 0;
    let done = run(program, move |sqe| {
        writes += usize::from(sqe.len == 5);
        assert!(writes <= 1, "the second step ran twice");
        if sqe.len == 10 { Act::Short(4) } else { Act::Do }
    });
    assert_eq!(outcomes(&done), [StepOutcome::Done(10), StepOutcome::Done(5)]);
    assert_eq!(contents(&file), [&pattern(10)[..], &[9; 5]].concat());
}

#[test]
fn the_end_of_the_file_is_short_for_good() {
    let build = |file: &Arc<File>| {
        let mut program = Program::of(read(file, 0, 100));
        program.push(write(file, 0, pattern(5)));
        program
    };
    let file = file();
    file.write_all_at(&pattern(30), 0).unwrap();
    let by_ring = run(build(&file), |_| Act::Do);
    let mut by_calls = build(&file);
    by_calls.run_blocking();
    for mut done in [by_ring, by_calls] {
        assert_eq!(outcomes(&done), [StepOutcome::Short(30), StepOutcome::Skipped]);
        assert_eq!(done.take::<Read>(0).into_bytes()[..], pattern(30));
    }
}

#[test]
fn a_step_that_never_moves_fails_in_the_end() {
    for errno in [Errno::AGAIN, Errno::INTR, Errno::CANCELED] {
        let file = file();
        let done = run(three(&file), move |_| Act::Fail(errno));
        assert_eq!(outcomes(&done)[0], StepOutcome::Failed(errno.raw_os_error()));
        assert_eq!(outcomes(&done)[1..], [StepOutcome::Skipped; 2]);
    }
}

#[test]
fn a_time_limit_that_expires_is_a_failure_of_its_step() {
    for (link, behind) in [(StepLink::Soft, StepOutcome::Skipped), (StepLink::Hard, StepOutcome::Done(10))] {
        let file = file();
        let mut program = Program::new();
        program.push(write(&file, 0, pattern(10)));
        program.push(write(&file, 10, pattern(10)));
        program.set_limit(Duration::from_secs(1));
        program.set_link(link);
        program.push(write(&file, 20, pattern(10)));
        let done = run(program, once(1, Act::TimeOut));
        let timed_out = StepOutcome::Failed(Errno::TIMEDOUT.raw_os_error());
        assert_eq!(outcomes(&done), [StepOutcome::Done(10), timed_out, behind]);
    }
}

#[test]
fn a_time_limit_that_does_not_expire_changes_nothing() {
    let file = file();
    let mut program = three(&file);
    program.set_limit(Duration::from_secs(1));
    let done = run(program, once(2, Act::Short(7)));
    assert_eq!(outcomes(&done), [StepOutcome::Done(100); 3]);
    assert_eq!(contents(&file), pattern(300));
}

#[test]
fn an_expired_limit_fails_by_plain_calls_too() {
    let file = file();
    let mut program = three(&file);
    program.set_limit(Duration::ZERO);
    program.run_blocking();
    let timed_out = StepOutcome::Failed(Errno::TIMEDOUT.raw_os_error());
    assert_eq!(outcomes(&program), [StepOutcome::Done(100), StepOutcome::Done(100), timed_out]);
}

/// Results of an entry that no caller may notice.
fn hardship() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => Just(Act::Do),
        4 => (1u32..200).prop_map(Act::Short),
        1 => Just(Act::Fail(Errno::INTR)),
        1 => Just(Act::Fail(Errno::AGAIN)),
        2 => Just(Act::Hold),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 300 }))]

    #[test]
    fn every_byte_is_written_and_read_once(
        script in proptest::collection::vec(hardship(), 1..60),
        sizes in proptest::collection::vec(1usize..400, 1..6),
        reversed: bool,
    ) {
        let file = file();
        let mut script = script.into_iter();
        let (driver, handle) = driver(16, move |_| script.next().unwrap_or(Act::Do));
        if reversed {
            handle.reverse();
        }
        let bytes = pattern(sizes.iter().sum());
        let mut at = 0;
        let writes: Vec<_> = sizes.iter().map(|size| {
            let range = at..at + size;
            at += size;
            write(&file, range.start as u64, bytes[range].to_vec())
        }).collect();
        let mut program = chain(writes);
        program.push(read(&file, 0, bytes.len()));
        let mut running = submit(&driver, program);
        let mut ended = None;
        for _ in 0..1000 {
            driver.turn();
            ended = poll(&mut running);
            if ended.is_some() {
                break;
            }
            handle.proceed();
        }
        let Some(Ended::Finished(mut program)) = ended else { panic!("not finished: {ended:?}") };
        let mut expected: Vec<_> = sizes.iter().map(|&size| StepOutcome::Done(size as u64)).collect();
        expected.push(StepOutcome::Done(bytes.len() as u64));
        prop_assert_eq!(outcomes(&program), expected);
        let last = program.len() - 1;
        prop_assert!(program.take::<Read>(last).into_bytes()[..] == bytes[..]);
        prop_assert_eq!(driver.in_flight(), 0);
    }
}
