//! Appends on their way to a log: a bounded queue in the order of the calls, and the hubs that empty it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::sse::SendError;

/// Time for which a closed hub tries to empty the queue.
const GRACE: Duration = Duration::from_secs(5);

/// Approximate size of an item, for the bound of the queue.
pub trait Size {
    /// Returns the approximate size in bytes.
    fn bytes(&self) -> usize;
}

/// An append that the log has not confirmed yet.
#[allow(clippy::exhaustive_structs, reason = "internal")]
#[derive(Debug)]
pub struct Append<T> {
    /// Number of this append, from 1 on.
    pub number: u64,
    /// The appended item.
    pub item: T,
}

/// Why an append was not queued.
#[allow(clippy::exhaustive_enums, reason = "internal")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue is full.
    Full,
    /// The last hub has left, so the event would not be appended.
    Closed,
}

impl From<Refused> for SendError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::Full,
            Refused::Closed => Self::Closed,
        }
    }
}

/// A queue bounded by appends and by bytes. Taken appends count until they are in the log or given up.
#[derive(Debug)]
pub struct Queue<T> {
    inner: Mutex<QueueInner<T>>,
    changed: Notify,
    done: watch::Sender<u64>,
    appends_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct QueueInner<T> {
    waiting: VecDeque<Append<T>>,
    /// Count and size of `waiting` and of taken appends.
    appends: usize,
    bytes: usize,
    last: u64,
    hubs: usize,
    /// Whether the last hub has left. Before the first one enters, appends wait for it.
    closed: bool,
}

impl<T> QueueInner<T> {
    fn leave(&mut self) {
        self.hubs -= 1;
        self.closed = self.hubs == 0;
    }
}

impl<T: Size> Queue<T> {
    /// Creates a queue for at most `appends_max` appends and `bytes_max` bytes.
    pub fn new(appends_max: usize, bytes_max: usize) -> Self {
        let inner = QueueInner { waiting: VecDeque::new(), appends: 0, bytes: 0, last: 0, hubs: 0, closed: false };
        Self { inner: Mutex::new(inner), changed: Notify::new(), done: watch::Sender::new(0), appends_max, bytes_max }
    }

    fn inner(&self) -> MutexGuard<'_, QueueInner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a hub.
    pub fn enter(&self) {
        let mut inner = self.inner();
        inner.hubs += 1;
        inner.closed = false;
    }

    /// Unregisters a hub, unless it is the last one and appends are queued. Returns whether it was unregistered.
    pub fn leave_done(&self) -> bool {
        let mut inner = self.inner();
        let done = inner.hubs > 1 || inner.appends == 0;
        if done {
            inner.leave();
        }
        done
    }

    /// Unregisters a hub. Returns whether it was the last.
    pub fn leave(&self) -> bool {
        let mut inner = self.inner();
        inner.leave();
        inner.closed
    }

    /// Queues an append. An empty queue accepts one of any size.
    pub fn push(&self, item: T) -> Result<(), Refused> {
        let mut inner = self.inner();
        if inner.closed {
            return Err(Refused::Closed);
        }
        let bytes = item.bytes();
        if inner.appends >= self.appends_max || (inner.bytes + bytes > self.bytes_max && inner.appends > 0) {
            return Err(Refused::Full);
        }
        inner.appends += 1;
        inner.bytes += bytes;
        inner.last += 1;
        let number = inner.last;
        inner.waiting.push_back(Append { number, item });
        drop(inner);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits until an append is waiting. Cancel safe.
    pub async fn ready(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.inner().waiting.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Passes the oldest waiting append to `of`, and returns the result.
    pub fn first<R>(&self, of: impl FnOnce(&T) -> R) -> Option<R> {
        self.inner().waiting.front().map(|append| of(&append.item))
    }

    /// Takes the oldest appends as long as they fit.
    pub fn take(&self, mut fits: impl FnMut(&T) -> bool) -> Vec<Append<T>> {
        let mut inner = self.inner();
        let many = inner.waiting.iter().take_while(|append| fits(&append.item)).count();
        inner.waiting.drain(..many).collect()
    }

    /// Takes all waiting appends if the last hub has left.
    pub fn take_left(&self) -> Option<Vec<Append<T>>> {
        let mut inner = self.inner();
        inner.closed.then(|| inner.waiting.drain(..).collect())
    }

    /// Puts taken appends back, to be taken again.
    pub fn put_back(&self, appends: Vec<Append<T>>) {
        let mut inner = self.inner();
        appends.into_iter().rev().for_each(|append| inner.waiting.push_front(append));
    }

    /// Removes taken appends from the count: they are in the log, or given up.
    pub fn settle(&self, appends: impl IntoIterator<Item = Append<T>>) {
        let mut last = 0;
        {
            let mut inner = self.inner();
            for append in appends {
                inner.appends -= 1;
                inner.bytes -= append.item.bytes();
                last = append.number;
            }
        }
        self.done.send_if_modified(|done| std::mem::replace(done, last.max(*done)) < last);
    }

    /// Returns the number and the size of the appends that count.
    pub fn len(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.appends, inner.bytes)
    }

    /// Waits until all appends so far are in the log or given up. Cancel safe.
    pub async fn flushed(&self) {
        let last = self.inner().last;
        // The sender is in `self`, so this does not fail.
        let _ = self.done.subscribe().wait_for(|&done| done >= last).await;
    }
}

/// A log with a queue that its hubs empty.
pub trait Queued {
    /// The appended item.
    type Item: Size;

    /// Returns the queue.
    fn queue(&self) -> &Queue<Self::Item>;

    /// Gives up waiting items, unless a hub has entered since the last one has left.
    fn give_up_left(&self);
}

#[allow(missing_debug_implementations, reason = "internal")]
/// A hub that empties the queue of its log until it is dropped, which also happens when its runtime ends.
pub struct Running<L: Queued> {
    log: Arc<L>,
    left: bool,
}

impl<L: Queued> Running<L> {
    /// Registers a hub of `log`.
    pub fn new(log: &Arc<L>) -> Self {
        log.queue().enter();
        Self { log: Arc::clone(log), left: false }
    }

    /// Runs `write`, which empties the queue and never returns. Ends when the hub is `closed` and the queue is empty,
    /// or when the time for emptying it is over.
    pub async fn serve<W: Future<Output = ()>>(mut self, closed: impl Future<Output = ()>, write: impl Fn() -> W) {
        either(closed, write()).await;
        let rest = async {
            while !self.left {
                either(self.log.queue().flushed(), write()).await;
                // A sender that found the hub open may append late.
                self.left = self.log.queue().leave_done();
            }
        };
        let _ = timeout(GRACE, rest).await;
    }
}

impl<L: Queued> Drop for Running<L> {
    fn drop(&mut self) {
        if !self.left && self.log.queue().leave() {
            self.log.give_up_left();
        }
    }
}

/// Runs both until one is ready.
pub async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx).is_ready() || other.as_mut().poll(cx).is_ready() {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

#[cfg(test)]
mod tests;
