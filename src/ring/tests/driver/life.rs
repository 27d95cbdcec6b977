//! Ownership: memory and files stay until the kernel has released them, and no longer.

use std::os::fd::IntoRawFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::*;
use crate::counters::Snapshot;
use crate::ops::Operation;
use crate::ops::open::{Close, Dir, Open};
use crate::sys::path::How;

fn alive() -> Arc<AtomicUsize> {
    Arc::default()
}

#[test]
fn results_reach_their_own_operations_in_any_order() {
    let (driver, handle) = driver(64, |_| Act::Do);
    handle.reverse();
    let file = file();
    file.write_all_at(&pattern(64), 0).unwrap();
    let mut running: Vec<_> = (0..40).map(|n| submit(&driver, Program::of(read(&file, n, 1)))).collect();
    assert!(poll(&mut running[3]).is_none());
    driver.turn();
    for (n, running) in running.iter_mut().enumerate() {
        let bytes = finished(running).take::<Read>(0).into_bytes();
        assert_eq!(bytes[..], pattern(64)[n..=n]);
    }
    assert_eq!((handle.enters(), driver.in_flight()), (1, 0));
}

#[test]
fn unowed_completions_change_nothing() {
    let (driver, handle) = driver(8, |_| Act::Hold);
    let before = Snapshot::now();
    let mut first = submit(&driver, Program::of(write(&file(), 0, pattern(10))));
    driver.turn();
    // The first step of the first use of the first slot.
    let (key, step_that_is_not, wild) = (0, 5, 0x1234 << 32);
    handle.complete(step_that_is_not, Ok(10));
    handle.complete(wild, Ok(10));
    driver.turn();
    assert!(poll(&mut first).is_none());
    handle.complete(key, Ok(10));
    handle.complete(key, Ok(3));
    driver.turn();
    assert_eq!(outcomes(&finished(&mut first)), [StepOutcome::Done(10)]);
    // It may get the number of the descriptor that the first program has closed.
    let other = file();
    let mut second = submit(&driver, Program::of(write(&file(), 0, pattern(10))));
    driver.turn();
    handle.complete(key, Ok(10));
    driver.turn();
    assert!(poll(&mut second).is_none());
    assert!(Snapshot::now().since(&before).ring_strays >= 4);
    handle.set_script(|_| Act::Do);
    handle.proceed();
    driver.turn();
    finished(&mut second);
    assert_eq!(contents(&other), [0; 0], "the kernel has carried out an entry that had ended");
}

#[test]
fn a_completion_that_comes_twice_does_not_stand_for_another() {
    let alive = alive();
    let (driver, handle) = driver(8, |_| Act::Hold);
    let steps = (0..2).map(|n| write(&file(), n, counted(10, &alive)));
    let mut running = submit(&driver, chain(steps));
    driver.turn();
    // Two completions of the first step; the second step is still in flight.
    handle.complete(0, Ok(10));
    handle.complete(0, Ok(10));
    driver.turn();
    assert!(poll(&mut running).is_none());
    assert_eq!((alive.load(Ordering::SeqCst), driver.in_flight()), (2, 1));
    handle.complete(1, Ok(10));
    driver.turn();
    assert_eq!(outcomes(&finished(&mut running)), [StepOutcome::Done(10); 2]);
}

#[test]
fn a_dropped_future_leaves_its_memory_to_the_kernel() {
    let alive = alive();
    let (driver, handle) = driver(8, |_| Act::Hold);
    handle.ignore_cancels();
    let mut running = submit(&driver, Program::of(write(&file(), 0, counted(10, &alive))));
    assert!(poll(&mut running).is_none());
    driver.turn();
    drop(running);
    assert!(driver.has_work(), "a cancel");
    driver.turn();
    assert_eq!(alive.load(Ordering::SeqCst), 1, "the kernel still uses it");
    handle.set_script(|_| Act::Do);
    handle.proceed();
    driver.turn();
    assert_eq!((alive.load(Ordering::SeqCst), driver.in_flight()), (0, 0));
}

#[test]
fn a_dropped_future_is_cancelled_and_no_cancel_is_lost() {
    let alive = alive();
    // More operations than entries, and more cancels than their room.
    let (driver, handle) = driver(4, |_| Act::Hold);
    let running: Vec<_> =
        (0..16).map(|n| submit(&driver, Program::of(write(&file(), n, counted(8, &alive))))).collect();
    driver.turn();
    assert_eq!(handle.in_flight(), 10, "the rest of 16 completions is for cancels and for programs that may wait");
    drop(running);
    assert!(driver.has_work(), "cancels have room of their own");
    driver.turn();
    assert!(!driver.has_work());
    assert_eq!((alive.load(Ordering::SeqCst), driver.in_flight(), handle.in_flight()), (0, 0, 0));
}

#[test]
fn a_dropped_chain_is_cancelled_at_whatever_step_it_is() {
    let alive = alive();
    let (driver, handle) = driver(8, |_| Act::Hold);
    let running = submit(&driver, chain((0..3).map(|n| write(&file(), n, counted(8, &alive)))));
    driver.turn();
    handle.fail_cancel(Errno::ALREADY);
    drop(running);
    driver.turn();
    assert!(!driver.has_work(), "the driver can only wait");
    let mut first = true;
    handle.set_script(move |_| if std::mem::take(&mut first) { Act::Do } else { Act::Hold });
    handle.proceed();
    // When the first step has ended, the second one has not begun, so the cancel does not find it.
    handle.fail_cancel(Errno::NOENT);
    driver.turn();
    assert_eq!(alive.load(Ordering::SeqCst), 3);
    handle.elapse();
    driver.turn();
    assert_eq!((alive.load(Ordering::SeqCst), driver.in_flight()), (0, 0));
}

#[test]
fn unsubmitted_programs_are_never_submitted() {
    let alive = alive();
    let (driver, handle) = driver(8, |_| Act::Do);
    let file = file();
    let mut running = submit(&driver, Program::of(write(&file, 0, counted(10, &alive))));
    assert!(poll(&mut running).is_none());
    drop(running);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    driver.turn();
    assert_eq!((handle.submitted(), contents(&file).len()), (0, 0));
}

#[test]
fn a_future_dropped_after_the_end_frees_all() {
    let alive = alive();
    let (driver, _) = driver(8, |_| Act::Do);
    let running = submit(&driver, Program::of(write(&file(), 0, counted(10, &alive))));
    driver.turn();
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    drop(running);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn a_forgotten_future_leaks_its_own_and_no_more() {
    let alive = alive();
    let (driver, _) = driver(8, |_| Act::Do);
    let file = file();
    #[expect(clippy::disallowed_methods, reason = "this is what is tested")]
    std::mem::forget(submit(&driver, Program::of(write(&file, 0, counted(10, &alive)))));
    driver.turn();
    assert_eq!(contents(&file), pattern(10));
    assert_eq!((alive.load(Ordering::SeqCst), driver.in_flight()), (1, 0));
    finished(&mut {
        let running = submit(&driver, Program::of(write(&file, 10, pattern(5))));
        driver.turn();
        running
    });
}

#[test]
fn shutting_down_cancels_and_waits() {
    let alive = alive();
    let (driver, _) = driver(64, |_| Act::Hold);
    let mut kept: Vec<_> =
        (0..20).map(|_| submit(&driver, Program::of(write(&file(), 0, counted(9, &alive))))).collect();
    driver.turn();
    let mut late = submit(&driver, Program::of(write(&file(), 0, counted(9, &alive))));
    kept.truncate(10);
    assert_eq!(driver.shutdown(Duration::from_secs(5)), 0);
    // Cancelled; a caller that still waits runs them by plain calls.
    for running in kept.iter_mut().chain([&mut late]) {
        assert!(matches!(poll(running), Some(Ended::Fallback(_, None))));
    }
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert!(driver.submit(Box::new(Program::of(write(&file(), 0, pattern(1))))).is_err());
    assert!(!driver.turn());
}

#[test]
fn a_chain_between_two_steps_when_all_is_cancelled_is_cancelled_again() {
    let (driver, handle) = driver(8, |_| Act::Hold);
    let running = submit(&driver, chain((0..2).map(|n| write(&file(), n, pattern(1)))));
    driver.turn();
    handle.fail_cancel(Errno::NOENT);
    assert_eq!(driver.shutdown(Duration::from_secs(5)), 0, "programs leaked");
    drop(running);
}

#[test]
fn unreleased_memory_is_leaked_and_counted() {
    let alive = alive();
    let (driver, handle) = driver(64, |_| Act::Hold);
    handle.ignore_cancels();
    let before = Snapshot::now();
    let mut running: Vec<_> =
        (0..5).map(|_| submit(&driver, Program::of(write(&file(), 0, counted(9, &alive))))).collect();
    driver.turn();
    drop(running.split_off(3));
    assert_eq!(driver.shutdown(Duration::from_millis(20)), 5);
    for running in &mut running {
        assert!(matches!(poll(running), Some(Ended::Lost)));
    }
    drop((running, driver));
    assert_eq!(alive.load(Ordering::SeqCst), 5, "closing a ring does not stop the kernel");
    assert!(Snapshot::now().since(&before).ring_leaks >= 5);
}

#[test]
fn completions_the_kernel_dropped_end_their_operations() {
    let alive = alive();
    let (driver, handle) = driver(8, |_| Act::Hold);
    let mut held = submit(&driver, Program::of(write(&file(), 0, counted(9, &alive))));
    driver.turn();
    handle.drop_completions();
    let mut next = submit(&driver, Program::of(write(&file(), 0, counted(9, &alive))));
    driver.turn();
    assert!(matches!(poll(&mut held), Some(Ended::Lost)));
    assert!(matches!(poll(&mut next), Some(Ended::Lost)), "it was in flight too");
    assert!(driver.closed().unwrap().contains("dropped"));
    assert_eq!(alive.load(Ordering::SeqCst), 2);
}

#[test]
fn an_interrupted_kernel_is_asked_again() {
    let (driver, handle) = driver(8, |_| Act::Do);
    handle.fail_enters([Errno::INTR, Errno::INTR]);
    let mut running = submit(&driver, Program::of(write(&file(), 0, pattern(9))));
    while poll(&mut running).is_none() {
        driver.turn();
    }
    assert!(driver.closed().is_none());
}

#[test]
fn a_forked_child_is_told_and_touches_nothing() {
    let alive = alive();
    let (driver, handle) = driver(8, |_| Act::Hold);
    let mut held = submit(&driver, Program::of(write(&file(), 0, counted(9, &alive))));
    driver.turn();
    handle.fork();
    let mut queued = submit(&driver, Program::of(write(&file(), 0, counted(9, &alive))));
    driver.turn();
    assert!(matches!(poll(&mut held), Some(Ended::Lost)));
    assert!(matches!(poll(&mut queued), Some(Ended::Fallback(..))));
    assert!(driver.closed().unwrap().contains("forked"));
    assert_eq!(driver.shutdown(Duration::from_secs(1)), 0);
    assert_eq!(alive.load(Ordering::SeqCst), 1, "the parent's kernel may still use it");
}

fn descriptors(path: &std::path::Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|link| link == path)).count()
}

fn how() -> How {
    How::new(OFlags::RDONLY, Mode::empty(), ResolveFlags::empty())
}

fn with_file(alive: &Arc<AtomicUsize>) -> Program {
    let mut program = Program::new();
    let n = program.open_next();
    program.push(Open::for_program(Dir::default(), c"file".into(), how(), n));
    program.push(Write::new(Target::Opened(n), 0, counted(9, alive)));
    program.push(Close::of_program(n));
    program
}

#[test]
fn files_that_a_chain_leaves_open_are_closed_and_their_places_used_again() {
    let alive = alive();
    let fails =
        |write: Act| move |sqe: &Sqe| if sqe.opcode == io_uring::opcode::Write::CODE { write } else { Act::Give(0) };
    let (driver, handle) = driver(32, fails(Act::Give(9)));
    // The ring has 8 places; the last step closes the file.
    let mut all: Vec<_> = (0..20).map(|_| submit(&driver, with_file(&alive))).collect();
    driver.turn();
    all.iter_mut().for_each(|running| assert_eq!(outcomes(&finished(running))[2], StepOutcome::Done(0)));
    assert!(handle.closed_files().is_empty());
    handle.set_script(fails(Act::Fail(Errno::NOSPC)));
    let mut all: Vec<_> = (0..20).map(|_| submit(&driver, with_file(&alive))).collect();
    driver.turn();
    driver.turn();
    all.iter_mut().for_each(|running| assert_eq!(outcomes(&finished(running))[2], StepOutcome::Skipped));
    assert_eq!(handle.closed_files().len(), 20);
    handle.set_script(fails(Act::Hold));
    drop(submit(&driver, with_file(&alive)));
    let running = submit(&driver, with_file(&alive));
    driver.turn();
    drop(running);
    driver.turn();
    driver.turn();
    assert_eq!(handle.closed_files().len(), 21);
    assert_eq!((alive.load(Ordering::SeqCst), driver.in_flight()), (0, 0));
}

#[test]
fn an_abandoned_descriptor_is_closed() {
    for dropped_after in [0, 1, 2] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = std::ffi::CString::new(file.path().to_str().unwrap()).unwrap();
        let (driver, handle) = driver(8, |_| Act::Hold);
        let before = descriptors(file.path());
        let mut running = Some(submit(&driver, Program::of(Open::new(Dir::default(), path.clone(), how()))));
        for step in 0..=2 {
            if step == dropped_after {
                drop(running.take());
            }
            if step == 1 {
                // The kernel opens the file before it sees the cancel.
                handle.ignore_cancels();
                let path = path.clone();
                handle.set_script(move |_| {
                    let mut twin = Open::new(Dir::default(), path.clone(), how());
                    twin.perform(&mut Default::default(), usize::MAX).unwrap();
                    Act::Give(twin.into_fd().unwrap().into_raw_fd().cast_unsigned())
                });
                handle.proceed();
            }
            driver.turn();
        }
        assert_eq!((descriptors(file.path()), driver.in_flight()), (before, 0), "dropped after {dropped_after}");
    }
}
