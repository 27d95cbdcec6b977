//! For tests: a program run by plain calls, and by a ring of its own.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::buffers;
use super::driver::Driver;
use super::program::{Outcome, Program};
use super::slots::Ended;
use crate::kernel::uring::{Setup, Uring};

/// Files that a program can have open.
const FILES: u32 = 4;

/// Runs what `make` gives by plain calls and, where this machine has one, by a ring. Both must end alike.
pub(super) fn both_ways(make: impl Fn() -> Program) -> Vec<Program> {
    let mut by_calls = make();
    by_calls.run_blocking();
    let mut ended = vec![by_calls];
    ended.extend(by_ring(make(), false));
    let outcomes = |program: &Program| (0..program.len()).map(|step| program.outcome(step)).collect::<Vec<Outcome>>();
    let all: Vec<_> = ended.iter().map(outcomes).collect();
    assert!(all.iter().all(|one| *one == all[0]), "by calls, by ring: {all:?}");
    ended
}

/// Runs a program by a ring that knows the memory of the pool if `registered`; `None` where there is no ring.
pub(super) fn by_ring(program: Program, registered: bool) -> Option<Program> {
    let mut uring = match Uring::new(Setup::default()) {
        Ok(uring) => uring,
        Err(refused) => {
            eprintln!("skipped on a ring: {refused}");
            return None;
        }
    };
    uring.register_files(FILES);
    if registered {
        buffers::register(&mut uring).unwrap();
    }
    let driver = Arc::new(Driver::new(Box::new(uring), FILES, registered, Box::new(|| {})));
    let mut running = pin!(driver.submit(Box::new(program)).map_err(|(_, why)| why).unwrap());
    loop {
        driver.turn();
        match running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ended::Finished(program)) => return Some(*program),
            Poll::Ready(Ended::Fallback(mut program, _)) => {
                program.run_blocking();
                return Some(*program);
            }
            Poll::Ready(Ended::Lost) => panic!("the kernel lost a completion"),
            // A call into the kernel, which lets it finish what it has put off.
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
