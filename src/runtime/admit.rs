//! Placement of programs that may wait for a peer, perhaps forever.
//!
//! ```text
//!  room on the ring of this thread        ──▶ ring
//!  else, if a check finds only files      ──▶ like other programs
//!  else, a free job for such programs     ──▶ blocking pool
//!  else it waits for one of the two; other programs do not wait behind it
//! ```
//!
//! The ring and the pool each have a bounded share for such programs, so these cannot fill them. A waiting program
//! holds only its own memory.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::{AcquireError, OwnedSemaphorePermit};

use super::Turn;
use super::blocking::BlockingTask;
use crate::ops::peer_waits::MayWait;
use crate::ops::program::Program;
use crate::ring::driver::RingDriver;

pub(super) enum ProgramPlace {
    Any,
    Ring(OwnedSemaphorePermit),
    Pool(OwnedSemaphorePermit),
}

/// Finds a place for a program that may wait. `driver` is `None` if it cannot run on a ring. Dropping the future gives
/// up its position in the queue.
pub(super) async fn admit(turn: &Turn, driver: Option<&Arc<RingDriver>>, program: &mut Program) -> ProgramPlace {
    let by_thread = program.peer_waits.may_hold_a_thread();
    if by_thread && program.peer_waits.check() == MayWait::No {
        return ProgramPlace::Any;
    }
    let room = driver.filter(|_| !by_thread).and_then(|driver| driver.waiting_room(program));
    let jobs = turn.waiting_jobs();
    if let Some((ring, units)) = &room
        && let Ok(permit) = Arc::clone(ring).try_acquire_many_owned(*units)
    {
        return ProgramPlace::Ring(permit);
    }
    // Without a ring, a check costs more than a free job. The same applies to a check that has to wait.
    if (room.is_none() || program.peer_waits.check() == MayWait::Unknown)
        && let Ok(permit) = Arc::clone(jobs).try_acquire_owned()
    {
        return ProgramPlace::Pool(permit);
    }
    if program.peer_waits.check() == MayWait::Unknown {
        look_by_job(turn, program).await;
    }
    if !program.peer_waits.may_wait() {
        return ProgramPlace::Any;
    }
    let mut ring = pin!(room.map(|(ring, units)| ring.acquire_many_owned(units)));
    let mut job = pin!(Arc::clone(jobs).acquire_owned());
    poll_fn(|cx| {
        if let Some(ring) = ring.as_mut().as_pin_mut()
            && let Poll::Ready(permit) = ring.poll(cx)
        {
            return Poll::Ready(ProgramPlace::Ring(granted(permit)));
        }
        job.as_mut().poll(cx).map(|permit| ProgramPlace::Pool(granted(permit)))
    })
    .await
}

/// Checks the program in a job. Few run at a time, because a file system may not answer.
async fn look_by_job(turn: &Turn, program: &mut Program) {
    let permit = granted(Arc::clone(turn.look_jobs()).acquire_owned().await);
    let mut peer_waits = std::mem::take(&mut program.peer_waits);
    let looked = BlockingTask::start(move || {
        peer_waits.check_blocking();
        drop(permit);
        Ok(peer_waits)
    });
    if let Ok(job) = looked
        && let Ok(peer_waits) = job.await
    {
        program.peer_waits = peer_waits;
    }
}

/// Waits for a job for a program that may wait and did not run, or did not finish, on a ring.
pub(super) fn job(turn: &Turn) -> Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send + Sync>> {
    let jobs = Arc::clone(turn.waiting_jobs());
    Box::pin(async move { granted(jobs.acquire_owned().await) })
}

fn granted(permit: Result<OwnedSemaphorePermit, AcquireError>) -> OwnedSemaphorePermit {
    permit.expect("internal: the semaphores are never closed")
}
