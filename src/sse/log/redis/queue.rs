//! Appends on their way to Redis: a bounded queue in the order of the calls.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::entry::Fields;

/// What leaves at a time, at most; a single append may be larger.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 1 << 20;

/// An append that Redis has not confirmed yet.
#[derive(Debug)]
pub(super) struct Append {
    /// Which of this writer's appends it is, from 1 on.
    pub(super) number: u64,
    pub(super) fields: Fields,
}

/// Why nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Full,
    /// The last hub has left, and nobody would append it.
    Closed,
}

/// Bounded by appends and by bytes; what is being sent counts until it is confirmed.
#[derive(Debug)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    /// Something was queued.
    changed: Notify,
    /// The number of the last append that was confirmed or given up.
    done: watch::Sender<u64>,
    appends_max: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Append>,
    /// Of `waiting` and of what was taken.
    appends: usize,
    bytes: usize,
    /// The number of the last append.
    last: u64,
    /// Hubs that append what is queued.
    hubs: usize,
    /// The last of them has left. Before the first one has come, appends wait for it.
    closed: bool,
}

impl Inner {
    fn leave(&mut self) {
        self.hubs -= 1;
        self.closed = self.hubs == 0;
    }
}

impl Queue {
    pub(super) fn new(appends_max: usize, bytes_max: usize) -> Self {
        Self { inner: Mutex::default(), changed: Notify::new(), done: watch::Sender::new(0), appends_max, bytes_max }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A hub has come.
    pub(super) fn enter(&self) {
        let mut inner = self.inner();
        inner.hubs += 1;
        inner.closed = false;
    }

    /// A hub leaves, unless it is the last and something is queued.
    pub(super) fn leave_done(&self) -> bool {
        let mut inner = self.inner();
        let done = inner.hubs > 1 || inner.appends == 0;
        if done {
            inner.leave();
        }
        done
    }

    /// A hub leaves, whatever is queued; says whether it was the last.
    pub(super) fn leave(&self) -> bool {
        let mut inner = self.inner();
        inner.leave();
        inner.closed
    }

    /// Queues an append behind all others. A queue that is empty takes one of any size.
    pub(super) fn push(&self, fields: Fields) -> Result<(), Refused> {
        let mut inner = self.inner();
        if inner.closed {
            return Err(Refused::Closed);
        }
        let bytes = fields.bytes();
        if inner.appends >= self.appends_max || (inner.bytes + bytes > self.bytes_max && inner.appends > 0) {
            return Err(Refused::Full);
        }
        inner.appends += 1;
        inner.bytes += bytes;
        inner.last += 1;
        let number = inner.last;
        inner.waiting.push_back(Append { number, fields });
        drop(inner);
        self.changed.notify_one();
        Ok(())
    }

    /// Takes the oldest appends, as many as leave together; waits for one.
    ///
    /// Cancelled, it has taken nothing.
    pub(super) async fn take(&self) -> VecDeque<Append> {
        loop {
            let changed = self.changed.notified();
            {
                let mut inner = self.inner();
                let mut bytes = 0;
                let mut fits = |append: &Append| {
                    bytes += append.fields.bytes();
                    bytes <= BATCH_BYTES
                };
                let many = inner.waiting.iter().take(BATCH).take_while(|append| fits(append)).count();
                if !inner.waiting.is_empty() {
                    return inner.waiting.drain(..many.max(1)).collect();
                }
            }
            changed.await;
        }
    }

    /// Takes all there are, if nobody is there who would append them.
    pub(super) fn take_left(&self) -> Option<VecDeque<Append>> {
        let mut inner = self.inner();
        inner.closed.then(|| std::mem::take(&mut inner.waiting))
    }

    /// Forgets appends that were taken: they are in the log, or never will be.
    pub(super) fn settle(&self, appends: impl Iterator<Item = Append>) {
        let mut last = 0;
        {
            let mut inner = self.inner();
            for append in appends {
                inner.appends -= 1;
                inner.bytes -= append.fields.bytes();
                last = append.number;
            }
        }
        self.done.send_if_modified(|done| std::mem::replace(done, last.max(*done)) < last);
    }

    /// How many appends are not confirmed, and their bytes.
    pub(super) fn len(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.appends, inner.bytes)
    }

    /// Waits until all that are queued by now are settled.
    pub(super) async fn flushed(&self) {
        let last = self.inner().last;
        // The sender is in self.
        let _ = self.done.subscribe().wait_for(|&done| done >= last).await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::sse::Event;

    fn fields(bytes: usize) -> Fields {
        Fields::new(&Event::new().data("x".repeat(bytes)))
    }

    fn taken(queue: &Queue) -> Poll<VecDeque<Append>> {
        pin!(queue.take()).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn take(queue: &Queue) -> Poll<Vec<u64>> {
        taken(queue).map(|appends| appends.into_iter().map(|append| append.number).collect())
    }

    #[test]
    fn what_is_taken_counts_until_it_is_settled() {
        let queue = Queue::new(2, 1 << 20);
        assert_eq!((queue.push(fields(1)), queue.push(fields(2))), (Ok(()), Ok(())));
        assert_eq!(queue.push(fields(1)), Err(Refused::Full));
        let Poll::Ready(appends) = taken(&queue) else { panic!("two are there") };
        assert_eq!(queue.push(fields(1)), Err(Refused::Full));
        assert_eq!(queue.len(), (2, fields(1).bytes() + fields(2).bytes()));
        queue.settle(appends.into_iter());
        assert_eq!((queue.len(), queue.push(fields(1))), ((0, 0), Ok(())));
        assert_eq!(take(&queue), Poll::Ready(vec![3]), "a number that was refused is not used up");
    }

    #[test]
    fn bytes_are_bounded_but_one_append_always_fits() {
        let queue = Queue::new(100, 1000);
        assert_eq!(queue.push(fields(5000)), Ok(()));
        assert_eq!(queue.push(fields(1)), Err(Refused::Full));
        assert_eq!(take(&queue), Poll::Ready(vec![1]));
    }

    #[test]
    fn batches_are_bounded_and_in_order() {
        let queue = Queue::new(1000, 1 << 30);
        for _ in 0..BATCH + 1 {
            queue.push(fields(1)).unwrap();
        }
        for bytes in [BATCH_BYTES, 1, 1] {
            queue.push(fields(bytes)).unwrap();
        }
        let last = BATCH as u64 + 1;
        assert_eq!(take(&queue), Poll::Ready((1..last).collect()));
        assert_eq!(take(&queue), Poll::Ready(vec![last]), "what follows is too large to go along");
        assert_eq!(take(&queue), Poll::Ready(vec![last + 1]), "but goes alone");
        assert_eq!(take(&queue), Poll::Ready(vec![last + 2, last + 3]));
        assert_eq!(take(&queue), Poll::Pending);
    }

    #[test]
    fn the_last_who_leaves_closes_and_the_next_who_comes_opens() {
        let queue = Queue::new(10, 1 << 20);
        assert_eq!(queue.push(fields(1)), Ok(()), "it waits for the first hub");
        (0..2).for_each(|_| queue.enter());
        assert!(queue.take_left().is_none());
        assert!(queue.leave_done(), "the other one appends it");
        assert!(!queue.leave_done() && queue.take_left().is_none(), "nobody else would");
        let Poll::Ready(appends) = taken(&queue) else { panic!("it is there") };
        assert!(!queue.leave_done(), "it is not confirmed");
        queue.settle(appends.into_iter());
        assert!(queue.leave_done());
        assert_eq!(queue.push(fields(1)), Err(Refused::Closed));
        queue.enter();
        assert_eq!(queue.push(fields(1)), Ok(()));
        queue.enter();
        assert_eq!((queue.leave(), queue.leave()), (false, true), "one of them is the last");
        assert_eq!(queue.take_left().map(|left| left.len()), Some(1));
    }
}
