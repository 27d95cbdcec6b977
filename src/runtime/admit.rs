//! Where a program goes that may wait for a peer, perhaps for ever.
//!
//! ```text
//!  room for it on the ring of this thread ──▶ ring
//!  else a look at what it works on: files ──▶ as any other program
//!  else a free job for such programs      ──▶ blocking pool
//!  else it waits for one of the two, behind programs of its kind and nothing behind it
//! ```
//!
//! The ring and the pool each have a bounded share for such programs, so that they fill neither. One that waits for room
//! holds nothing but its own memory.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::{AcquireError, OwnedSemaphorePermit};

use super::Turn;
use super::blocking::BlockingTask;
use crate::uring::doubt::Look;
use crate::uring::driver::Driver;
use crate::uring::program::Program;

/// Where a program goes.
pub(super) enum Place {
    /// It waits for no peer.
    Any,
    /// To the ring, with the permit.
    Ring(OwnedSemaphorePermit),
    /// To the blocking pool, with the permit.
    Pool(OwnedSemaphorePermit),
}

/// Finds a place for a program that may wait. `driver` is there if it can go by ring.
///
/// Dropping the future gives the place in the line to the next.
pub(super) async fn admit(turn: &Turn, driver: Option<&Arc<Driver>>, program: &mut Program) -> Place {
    let by_thread = program.doubts.may_hold_a_thread();
    if by_thread && program.doubts.look() == Look::Swift {
        return Place::Any;
    }
    let room = driver.filter(|_| !by_thread).and_then(|driver| driver.waiting_room(program));
    let jobs = turn.waiting_jobs();
    if let Some((ring, units)) = &room
        && let Ok(permit) = Arc::clone(ring).try_acquire_many_owned(*units)
    {
        return Place::Ring(permit);
    }
    // Without a ring a look costs more than a job that is free, and so does a look that has to wait.
    if (room.is_none() || program.doubts.look() == Look::Unsure)
        && let Ok(permit) = Arc::clone(jobs).try_acquire_owned()
    {
        return Place::Pool(permit);
    }
    if program.doubts.look() == Look::Unsure {
        look_by_job(turn, program).await;
    }
    if !program.doubts.may_wait() {
        return Place::Any;
    }
    let mut ring = pin!(room.map(|(ring, units)| ring.acquire_many_owned(units)));
    let mut job = pin!(Arc::clone(jobs).acquire_owned());
    poll_fn(|cx| {
        if let Some(ring) = ring.as_mut().as_pin_mut()
            && let Poll::Ready(permit) = ring.poll(cx)
        {
            return Poll::Ready(Place::Ring(granted(permit)));
        }
        job.as_mut().poll(cx).map(|permit| Place::Pool(granted(permit)))
    })
    .await
}

/// Has a job look. There are few of these at a time, since a file system may not answer.
async fn look_by_job(turn: &Turn, program: &mut Program) {
    let permit = granted(Arc::clone(turn.look_jobs()).acquire_owned().await);
    let mut doubts = std::mem::take(&mut program.doubts);
    let looked = BlockingTask::start(move || {
        doubts.look_blocking();
        drop(permit);
        Ok(doubts)
    });
    if let Ok(job) = looked
        && let Ok(doubts) = job.await
    {
        program.doubts = doubts;
    }
}

/// A job for a program that may wait and was not taken, or not done, by a ring.
pub(super) fn job(turn: &Turn) -> Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send + Sync>> {
    let jobs = Arc::clone(turn.waiting_jobs());
    Box::pin(async move { granted(jobs.acquire_owned().await) })
}

fn granted(permit: Result<OwnedSemaphorePermit, AcquireError>) -> OwnedSemaphorePermit {
    permit.expect("internal: the semaphores are never closed")
}
