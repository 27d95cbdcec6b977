//! Test support: runs a program by plain calls and by a ring of its own.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::ops::StepOutcome;
use crate::ops::program::Program;
use crate::ring::driver::RingDriver;
use crate::ring::slots::Ended;
use crate::sys::uring::{Setup, Uring};

const FILES: u32 = 4;

pub(crate) fn both_ways(make: impl Fn() -> Program) -> Vec<Program> {
    let mut by_calls = make();
    by_calls.run_blocking();
    let mut ended = vec![by_calls];
    ended.extend(by_ring(make));
    let outcomes =
        |program: &Program| (0..program.len()).map(|step| program.outcome(step)).collect::<Vec<StepOutcome>>();
    let all: Vec<_> = ended.iter().map(outcomes).collect();
    assert!(all.iter().all(|one| *one == all[0]), "by calls, by ring: {all:?}");
    ended
}

/// Runs the program on a ring; returns `None` if there is no ring.
fn by_ring(make: impl FnOnce() -> Program) -> Option<Program> {
    let mut uring = match Uring::new(Setup::default()) {
        Ok(uring) => uring,
        Err(refused) => {
            crate::skips::skip("a program on a ring", refused);
            return None;
        }
    };
    uring.register_files(FILES);
    let driver = Arc::new(RingDriver::new(Box::new(uring), FILES, Box::new(|| {})));
    let mut running = match driver.submit(Box::new(make())) {
        Ok(running) => pin!(running),
        Err((mut program, why)) => {
            crate::skips::skip("a program on a ring", why);
            program.run_blocking();
            return Some(*program);
        }
    };
    loop {
        driver.turn();
        match running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ended::Finished(program)) => return Some(*program),
            Poll::Ready(Ended::Fallback(mut program, _)) => {
                program.run_blocking();
                return Some(*program);
            }
            Poll::Ready(Ended::Lost) => panic!("the kernel lost a completion"),
            // Enters the kernel, which lets it run deferred work.
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// Checks every operation: either the kernel or the end of a submission stops the steps after a failure.
#[test]
fn nothing_runs_after_a_failure() {
    use crate::ops::open::{Close, Dir, Open};
    use crate::ops::path::{HardLink, Rename, Unlink};
    use crate::ops::rw::{Nop, Read, Write};
    use crate::ops::stat::Stat;
    use crate::ops::sync::{Allocate, Sync};
    use crate::ops::transfer::{Send, Splice};
    use crate::ops::vectored::{ReadVectored, WriteVectored};
    use crate::ops::{Operation, Target};
    use crate::sys::path::How;
    use bytes::Bytes;
    use rustix::fs::{FallocateFlags, Mode, OFlags, RenameFlags, ResolveFlags};
    use std::fs::File;

    fn fails<T: Operation>(make: impl Fn() -> T) {
        let programs = both_ways(|| {
            let mut program = Program::new();
            // Some operations refer to a file that is never opened.
            program.open_next();
            program.push(make());
            program.push(Nop);
            program.push(Nop);
            program
        });
        for program in programs {
            let outcomes = [0, 1, 2].map(|step| program.outcome(step));
            assert!(
                matches!(outcomes, [StepOutcome::Failed(_), StepOutcome::Skipped, StepOutcome::Skipped]),
                "{program:?}"
            );
        }
    }
    let missing = || (Dir::default(), c"/no/such/file".to_owned());
    let null =
        |write: bool| Target::from(Arc::new(File::options().read(!write).write(write).open("/dev/null").unwrap()));
    let pipe = || Target::from(Arc::new(rustix::pipe::pipe().unwrap().0));
    let path_only = || {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Target::from(Arc::new(rustix::fs::open("/dev/null", flags, Mode::empty()).unwrap()))
    };
    let how = How::new(OFlags::RDONLY, Mode::empty(), ResolveFlags::empty());
    let bytes = || Bytes::from_static(b"bytes");
    fails(|| Open::new(missing().0, missing().1, how));
    fails(|| Close::of_program(0));
    fails(|| Read::new(null(true), 0, 10));
    fails(|| Read::next(null(true), 10));
    fails(|| Write::new(null(false), 0, bytes()));
    fails(|| Write::next(null(false), bytes()));
    fails(|| ReadVectored::new(null(true), 0, &[1, 2]));
    fails(|| WriteVectored::new(null(false), 0, vec![bytes(), bytes()]));
    fails(|| Sync::new(path_only(), false));
    fails(|| Allocate::new(pipe(), FallocateFlags::empty(), 0, 1));
    fails(|| Stat::new(Target::Opened(0)));
    fails(|| Rename::new(missing(), missing(), RenameFlags::empty()));
    fails(|| Unlink::new(missing()));
    fails(|| HardLink::new(missing(), missing()));
    fails(|| Splice::new((null(true), None), (null(false), None), 10));
    fails(|| Send::new(pipe(), bytes()));
}
