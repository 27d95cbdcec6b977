//! Runs programs on the ring or in a blocking job. Programs that may wait for a peer are [admitted](super::admit) first.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::admit::{self, ProgramPlace, admit};
use super::blocking::BlockingTask;
use super::{Io, Turn};
use crate::counters::{Counter, count};
use crate::ops::StepOutcome;
use crate::ops::program::Program;
use crate::ring::slots::Ended;

/// Preference for a single program. The first two matter in the mode [`Io::Auto`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    /// Runs on the ring.
    Ring,
    /// Runs on the blocking pool, unless other programs of this thread are running.
    Pool,
    /// Runs on the blocking pool in every mode, because it may wait for a server or another process. On the ring it
    /// would wait on the thread that enters the ring, if the kernel takes the file for one that never waits: it does
    /// for `O_NONBLOCK`, and if poll(2) finds the file readable.
    OffRing,
}

pub(crate) fn has_ring() -> bool {
    Turn::try_current().is_ok_and(|turn| turn.driver().is_some())
}

/// Returns whether cached data is read at once, without a program.
pub(crate) fn looks_now() -> bool {
    Turn::try_current().is_ok_and(|turn| turn.io() != Io::Uring)
}

/// Runs a program to its end. Fails without a runtime, or if the kernel lost a completion.
///
/// Dropping the future cancels steps that have not begun; steps in progress may still complete.
pub(crate) async fn run(mut program: Box<Program>, alone: Alone) -> io::Result<Box<Program>> {
    let turn = Turn::try_current()?;
    let mut refused = None;
    let running = turn.begin();
    let by_ring = match turn.io() {
        _ if alone == Alone::OffRing => false,
        Io::Auto => alone == Alone::Ring || running.together,
        Io::Uring => true,
        Io::Epoll => false,
    };
    let mut driver = if by_ring { turn.driver() } else { None };
    let mut permit = None;
    if program.peer_waits.may_wait() {
        // Boxed to keep the futures of other programs small.
        match Box::pin(admit(&turn, driver.as_ref(), &mut program)).await {
            ProgramPlace::Any => {}
            ProgramPlace::Ring(permit) => program.permit(permit),
            ProgramPlace::Pool(job) => (driver, permit) = (None, Some(job)),
        }
    }
    if let Some(driver) = &driver {
        match driver.submit(program) {
            Ok(future) => match future.await {
                Ended::Finished(program) => return Ok(program),
                Ended::Fallback(rest, step) => {
                    refused = step.map(|step| (step, rest.moved(step)));
                    program = rest;
                }
                Ended::Lost => return Err(io::Error::other("the kernel lost the completion of an operation")),
            },
            Err((rest, _)) => program = rest,
        }
    }
    if program.peer_waits.may_wait() && permit.is_none() {
        permit = Some(admit::job(&turn).await);
    }
    count(Counter::PoolPrograms, 1);
    // A running job cannot be cancelled, so a flag stops it.
    let abandoned = Abandoned::default();
    program.abandon_by(Arc::clone(&abandoned.0));
    let program = BlockingTask::start(move || {
        program.run_blocking();
        drop(permit);
        Ok(program)
    })?;
    let program = program.await?;
    if let (Some(driver), Some((step, moved))) = (driver, refused) {
        // If the plain call succeeds, the ring does not support the operation. Otherwise the arguments were invalid, or the
        // file is shorter than it says, such as those of sysfs.
        let goes_on = match program.outcome(step) {
            StepOutcome::Done(_) => true,
            StepOutcome::Short(bytes) => bytes > moved,
            _ => false,
        };
        if goes_on {
            driver.demote(&program, step);
        }
    }
    Ok(program)
}

/// Sets the flag when dropped.
#[derive(Debug, Default)]
struct Abandoned(Arc<AtomicBool>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
