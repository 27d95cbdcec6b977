//! The driver against the scripted kernel, both as the bytes of a fuzzer choose, and against plain calls.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use super::contents::counted;
use super::fake::{Act, fake};
use crate::ops::StepOutcome;
use crate::ops::program::Program;
use crate::ops::rw::{Nop, Read, Write};
use crate::ops::step::StepLink;
use crate::ops::sync::Sync;
use crate::ring::driver::{RingDriver, Running};
use crate::ring::room::Room;
use crate::ring::slots::Ended;
use crate::sync::lock;

const FILES: u32 = 8;
/// Length of each file at the start.
const LEN: usize = 1300;
/// Maximum length of a read or a write.
const STEP: usize = 200;

/// Choices of the fuzzer. Zeros follow the last one.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.next()) % n
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Write,
    Read,
    Sync,
    Nop,
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    kind: Kind,
    offset: u64,
    len: usize,
    is_hard: bool,
}

fn plan(choices: &mut Choices<'_>) -> Vec<Planned> {
    let steps = choices.below(6) + 1;
    // The rest of a short step with a hard link follows the steps behind it, so they must have other bytes.
    let may_be_hard = choices.below(2) == 1;
    let mut step = |number| Planned {
        kind: [Kind::Write, Kind::Read, Kind::Sync, Kind::Nop][choices.below(4)],
        offset: if may_be_hard { number as u64 * STEP as u64 } else { u64::from(choices.next()) * 8 },
        len: choices.below(STEP) + 1,
        is_hard: may_be_hard && choices.below(4) == 0,
    };
    (0..steps).map(|number| step(number)).collect()
}

fn file() -> Arc<File> {
    let file = File::from(rustix::fs::memfd_create(c"fuzz", MemfdFlags::CLOEXEC).expect("a file"));
    file.write_all_at(&vec![b'.'; LEN], 0).expect("room");
    Arc::new(file)
}

fn program(plan: &[Planned], file: &Arc<File>, alive: &Arc<AtomicUsize>) -> Program {
    let mut program = Program::new();
    for step in plan {
        let target = || Arc::clone(file).into();
        match step.kind {
            Kind::Write => program.push(Write::new(target(), step.offset, counted(step.len, alive))),
            Kind::Read => program.push(Read::new(target(), step.offset, step.len)),
            Kind::Sync => program.push(Sync::new(target(), false)),
            Kind::Nop => program.push(Nop),
        }
        if step.is_hard {
            program.set_link(StepLink::Hard);
        }
    }
    program
}

/// The result of a program: the outcomes, the bytes that were read, and the contents of the file.
type Done = (Vec<StepOutcome>, Vec<Bytes>, Vec<u8>);

fn done(mut program: Program, plan: &[Planned], file: &File) -> Done {
    let outcomes: Vec<_> = (0..plan.len()).map(|step| program.outcome(step)).collect();
    let reads = (0..plan.len()).filter(|&step| matches!(plan[step].kind, Kind::Read));
    let reads = reads.map(|step| match outcomes[step] {
        StepOutcome::Done(_) | StepOutcome::Short(_) => program.take::<Read>(step).into_bytes(),
        _ => Bytes::new(),
    });
    let reads = reads.collect();
    let mut contents = vec![0; file.metadata().expect("metadata").len() as usize];
    file.read_exact_at(&mut contents, 0).expect("the contents");
    (outcomes, reads, contents)
}

/// The program of a running future, its plan and its file.
struct Submitted {
    running: Running,
    plan: Vec<Planned>,
    file: Arc<File>,
}

/// Polls a program. Returns whether it has ended, after the comparison with plain calls if nothing has `failed`.
fn ended(submitted: &mut Submitted, failed: bool) -> bool {
    let program = match Pin::new(&mut submitted.running).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => return false,
        Poll::Ready(Ended::Finished(program)) => program,
        Poll::Ready(Ended::Fallback(mut program, _)) => {
            program.run_blocking();
            program
        }
        Poll::Ready(Ended::Lost) => panic!("a completion is lost"),
    };
    let (plan, by_ring) = (&submitted.plan, done(*program, &submitted.plan, &submitted.file));
    for (step, outcomes) in plan.iter().zip(by_ring.0.windows(2)) {
        if !step.is_hard && !matches!(outcomes[0], StepOutcome::Done(_)) {
            assert_eq!(outcomes[1], StepOutcome::Skipped, "{plan:?}: {:?}", by_ring.0);
        }
    }
    if !failed {
        let (alive, file) = (Arc::default(), file());
        let mut by_calls = self::program(plan, &file, &alive);
        by_calls.run_blocking();
        assert_eq!(by_ring, done(by_calls, plan, &file), "{plan:?}");
    }
    true
}

/// Runs programs on a scripted kernel, both as `data` chooses. They end as by plain calls, unless the kernel fails; and
/// at the end nothing is in use.
///
/// # Panics
///
/// If they do not.
pub fn ring(data: &[u8]) {
    let mut choices = Choices(data);
    let capacity = [8, 32][choices.below(2)];
    let may_fail = choices.below(2) == 1;
    let acts: Arc<Mutex<VecDeque<Act>>> = Arc::default();
    let script = Arc::clone(&acts);
    let (port, kernel) = fake(capacity, move |_| lock(&script).pop_front().unwrap_or(Act::Do));
    let driver = Arc::new(RingDriver::new(port, FILES, Box::new(|| {})));
    let alive: Arc<AtomicUsize> = Arc::default();
    let mut running: Vec<Submitted> = Vec::new();
    while !choices.0.is_empty() {
        match choices.below(12) {
            0..=2 => {
                let (plan, file) = (plan(&mut choices), file());
                match driver.submit(Box::new(program(&plan, &file, &alive))) {
                    Ok(new) => running.push(Submitted { running: new, plan, file }),
                    // A ring that is closed.
                    Err(_) => assert!(may_fail || driver.closed().is_some(), "{plan:?} is refused"),
                }
            }
            3 => drop(driver.turn()),
            4 => kernel.proceed(),
            5 => {
                let act = match choices.below(if may_fail { 5 } else { 4 }) {
                    0 => Act::Do,
                    1 | 2 => Act::Short(u32::from(choices.next()) + 1),
                    3 => Act::Hold,
                    _ => Act::Fail([Errno::IO, Errno::NOSPC, Errno::INTR, Errno::AGAIN][choices.below(4)]),
                };
                lock(&acts).push_back(act);
            }
            6 => kernel.reverse(),
            7 => kernel.fail_enters([[Errno::AGAIN, Errno::BUSY, Errno::INTR][choices.below(3)]]),
            8 => kernel.elapse(),
            9 if !running.is_empty() => {
                let at = choices.below(running.len());
                if ended(&mut running[at], may_fail) {
                    drop(running.swap_remove(at));
                }
            }
            // The future of a program is dropped: it is cancelled, or ends.
            10 if !running.is_empty() => drop(running.swap_remove(choices.below(running.len()))),
            11 if may_fail => match choices.below(4) {
                0 => kernel.fail_enters([Errno::NOMEM]),
                1 => kernel.take_at_most(choices.below(4) + 1),
                _ => kernel.fail_cancel([Errno::NOENT, Errno::ALREADY][choices.below(2)]),
            },
            _ => {}
        }
    }
    // The kernel does everything from here on.
    lock(&acts).clear();
    kernel.take_at_most(usize::MAX);
    for _ in 0..1000 {
        kernel.proceed();
        kernel.elapse();
        driver.turn();
        running.retain_mut(|submitted| !ended(submitted, may_fail));
        if running.is_empty() && driver.in_flight() == 0 && !driver.has_work() {
            break;
        }
    }
    assert!(running.is_empty(), "{} programs do not end: {driver:?}", running.len());
    assert_eq!((driver.in_flight(), kernel.in_flight()), (0, 0), "{driver:?}");
    assert_eq!(alive.load(Ordering::Relaxed), 0, "memory is left");
    let queue = lock(&driver.queue);
    assert_eq!(queue.slots.used(), 0);
    if queue.closed.is_none() {
        assert_eq!(queue.room, Room::new(capacity * 4, FILES as usize));
        let mut places = queue.files.clone();
        places.sort_unstable();
        assert_eq!(places, (0..FILES).collect::<Vec<_>>());
    }
}
