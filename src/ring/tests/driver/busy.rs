//! A kernel that lacks room, memory or operations: callers must not notice.

use rustix::io::Errno;

use super::*;
use crate::counters::Snapshot;

fn drive(driver: &Arc<RingDriver>, running: &mut Running) -> Ended {
    for _ in 0..100_000 {
        if let Some(ended) = poll(running) {
            return ended;
        }
        driver.turn();
    }
    panic!("the program does not end: {driver:?}");
}

#[test]
fn more_operations_than_entries_are_all_done() {
    let (driver, handle) = driver(8, |_| Act::Do);
    let file = file();
    let mut running: Vec<_> =
        (0..1000u64).map(|n| submit(&driver, Program::of(write(&file, n, [n as u8].to_vec())))).collect();
    while driver.turn() {}
    running.iter_mut().for_each(|running| drop(finished(running)));
    assert_eq!(contents(&file), (0..1000).map(|n| n as u8).collect::<Vec<_>>());
    assert_eq!((handle.enters(), handle.submitted()), (125, 1000));
}

#[test]
fn entries_in_flight_never_exceed_the_completion_queue() {
    // The fake asserts that the queue does not overflow when all entries end at once.
    let (driver, handle) = driver(8, |_| Act::Hold);
    let file = file();
    let mut running: Vec<_> = (0..100).map(|n| submit(&driver, Program::of(write(&file, n, [1].to_vec())))).collect();
    driver.turn();
    // Of 32 completions, an eighth is for cancels, and a quarter for programs that may wait for a peer.
    assert_eq!((handle.in_flight(), driver.in_flight()), (20, 20));
    assert!(!driver.has_work(), "the flusher would spin");
    for running in &mut running[20..] {
        assert!(
            matches!(poll(running), Some(Ended::Fallback(_, None))),
            "programs without room run by plain calls at once"
        );
    }
    handle.set_script(|_| Act::Do);
    handle.proceed();
    driver.turn();
    running[..20].iter_mut().for_each(|running| drop(finished(running)));
}

#[test]
fn a_chain_is_handed_over_in_one_piece() {
    // Five steps do not fit after six; the fake would notice a chain that ends with the submission.
    let (driver, handle) = driver(8, |_| Act::Do);
    let file = file();
    let singles: Vec<_> = (0..6).map(|n| submit(&driver, Program::of(write(&file, n, [1].to_vec())))).collect();
    let mut five = submit(&driver, chain((0..5).map(|n| write(&file, n, [2].to_vec()))));
    driver.turn();
    assert_eq!(outcomes(&finished(&mut five)), [StepOutcome::Done(1); 5]);
    assert_eq!((handle.enters(), handle.submitted()), (2, 11));
    drop(singles);
    let long = chain((0..9).map(|n| write(&file, n, [2].to_vec())));
    let (_, why) = driver.submit(Box::new(long)).unwrap_err();
    assert!(why.contains("8 entries"), "{why}");
}

#[test]
fn a_chain_that_was_cut_is_not_continued() {
    let (driver, handle) = driver(8, |_| Act::Do);
    let file = file();
    handle.take_at_most(2);
    let mut cut = submit(&driver, chain((0..4).map(|n| write(&file, n, [7].to_vec()))));
    let mut behind = submit(&driver, Program::of(write(&file, 9, [9].to_vec())));
    driver.turn();
    assert!(driver.closed().unwrap().contains("part of a chain"));
    assert_eq!(handle.submitted(), 2, "the rest lost its link and must not run");
    for running in [&mut cut, &mut behind] {
        let Ended::Fallback(mut program, None) = drive(&driver, running) else { panic!("no fallback") };
        program.run_blocking();
        assert!(outcomes(&program).iter().all(|outcome| *outcome == StepOutcome::Done(1)));
    }
    assert_eq!(contents(&file), [7, 7, 7, 7, 0, 0, 0, 0, 0, 9]);
}

#[test]
fn a_busy_kernel_is_retried_unnoticed() {
    for errno in [Errno::AGAIN, Errno::BUSY, Errno::INTR] {
        for every in 1..=20 {
            let (driver, handle) = driver(8, |_| Act::Do);
            let file = file();
            for n in 0..200u64 {
                if n % every == 0 {
                    handle.fail_enters([errno]);
                }
                let mut running = submit(&driver, Program::of(write(&file, n, [n as u8].to_vec())));
                assert!(matches!(drive(&driver, &mut running), Ended::Finished(_)), "{errno}, every {every}");
            }
            assert!(driver.closed().is_none());
            assert_eq!(contents(&file), (0..200).map(|n| n as u8).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_kernel_without_memory_gives_way_to_plain_calls() {
    for errno in [Errno::NOMEM, Errno::PERM, Errno::NOSYS, Errno::ACCESS, Errno::INVAL, Errno::BADF] {
        let (driver, handle) = driver(8, |_| Act::Do);
        let file = file();
        let before = Snapshot::now();
        handle.fail_enters([errno; 2000]);
        let mut running: Vec<_> =
            (0..20u64).map(|n| submit(&driver, Program::of(write(&file, n, [n as u8].to_vec())))).collect();
        for running in &mut running {
            let Ended::Fallback(mut program, None) = drive(&driver, running) else { panic!("no fallback") };
            program.run_blocking();
        }
        assert_eq!(contents(&file), (0..20).collect::<Vec<u8>>(), "{errno}");
        assert!(driver.closed().unwrap().contains("io_uring_enter"), "the reason is lost");
        assert_eq!((handle.submitted(), driver.in_flight()), (0, 0));
        assert!(Snapshot::now().since(&before).rings_closed >= 1);
        let (_, why) = driver.submit(Box::new(Program::of(read(&file, 0, 1)))).unwrap_err();
        assert!(why.contains("io_uring_enter"), "{why}");
    }
}

#[test]
fn entries_in_flight_end_after_the_ring_is_closed() {
    let (driver, handle) = driver(8, |_| Act::Hold);
    let file = file();
    let mut held = submit(&driver, Program::of(write(&file, 0, pattern(50))));
    driver.turn();
    handle.fail_enters([Errno::PERM]);
    let mut late = submit(&driver, Program::of(write(&file, 0, pattern(50))));
    driver.turn();
    assert!(matches!(poll(&mut late), Some(Ended::Fallback(..))));
    assert!(poll(&mut held).is_none());
    handle.set_script(|_| Act::Do);
    handle.proceed();
    driver.turn();
    assert_eq!(outcomes(&finished(&mut held)), [StepOutcome::Done(50)]);
}

#[test]
fn an_operation_the_ring_lacks_goes_by_plain_calls_and_the_others_stay() {
    let write_code = io_uring::opcode::Write::CODE;
    let (driver, _) = driver(8, move |sqe| if sqe.opcode == write_code { Act::Fail(Errno::INVAL) } else { Act::Do });
    let file = file();
    let mut running = submit(&driver, Program::of(write(&file, 0, pattern(50))));
    let Ended::Fallback(mut program, Some(0)) = drive(&driver, &mut running) else { panic!("no fallback") };
    program.run_blocking();
    assert_eq!(outcomes(&program), [StepOutcome::Done(50)]);
    driver.demote(&program, 0);
    assert!(driver.submit(program).is_ok(), "the refused step is done");
    assert!(driver.submit(Box::new(Program::of(write(&file, 0, pattern(1))))).is_err());
    let mut other = submit(&driver, Program::of(read(&file, 0, 50)));
    assert!(matches!(drive(&driver, &mut other), Ended::Finished(_)));
}

#[test]
fn an_operation_the_kernel_does_not_know_is_never_submitted() {
    let (port, handle) = fake(8, |_| Act::Do);
    handle.without(io_uring::opcode::Read::CODE);
    let driver = Arc::new(RingDriver::new(port, 8, Box::new(|| {})));
    assert!(driver.submit(Box::new(Program::of(read(&file(), 0, 1)))).is_err());
    assert!(driver.submit(Box::new(Program::of(write(&file(), 0, pattern(1))))).is_ok());
}
