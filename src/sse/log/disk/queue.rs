//! Appends on their way to the segment: a bounded queue in the order of the calls.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::record::{HEAD, ID_LEN};

/// Approximate size of what an append needs beside its text.
const OVERHEAD: usize = 64;

/// An event that is not committed yet.
#[derive(Debug)]
pub(super) struct Append {
    /// Number of this append, from 1 on.
    number: u64,
    /// The encoded event, without its id at first.
    pub(super) text: Vec<u8>,
    /// Length of the text without the id.
    pub(super) fields: usize,
}

impl Append {
    /// Maximum length of its record.
    pub(super) fn record_max(&self) -> u64 {
        (HEAD + self.fields + "id: \n\n".len() + ID_LEN) as u64
    }

    fn bytes(&self) -> usize {
        self.fields + OVERHEAD
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Full,
    /// The last hub has left, so the event would not be appended.
    Closed,
}

/// A queue bounded by appends and by bytes. Taken appends count until they are committed or given up.
#[derive(Debug)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    changed: Notify,
    done: watch::Sender<u64>,
    appends_max: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Append>,
    /// Count and size of `waiting` and of taken appends.
    appends: usize,
    bytes: usize,
    last: u64,
    hubs: usize,
    /// Whether the last hub has left. Before the first one enters, appends wait for it.
    closed: bool,
}

impl Queue {
    pub(super) fn new(appends_max: usize, bytes_max: usize) -> Self {
        Self { inner: Mutex::default(), changed: Notify::new(), done: watch::Sender::new(0), appends_max, bytes_max }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enter(&self) {
        let mut inner = self.inner();
        inner.hubs += 1;
        inner.closed = false;
    }

    /// Unregisters a hub, unless it is the last and appends are queued. Returns whether it did.
    pub(super) fn leave_done(&self) -> bool {
        let mut inner = self.inner();
        let done = inner.hubs > 1 || inner.appends == 0;
        if done {
            inner.hubs -= 1;
            inner.closed = inner.hubs == 0;
        }
        done
    }

    /// Unregisters a hub. Returns what waits if it was the last.
    pub(super) fn leave(&self) -> Vec<Append> {
        let mut inner = self.inner();
        inner.hubs -= 1;
        inner.closed = inner.hubs == 0;
        if inner.closed { inner.waiting.drain(..).collect() } else { Vec::new() }
    }

    /// Queues an encoded event. An empty queue accepts one of any size.
    pub(super) fn push(&self, text: Vec<u8>) -> Result<(), Refused> {
        let mut inner = self.inner();
        if inner.closed {
            return Err(Refused::Closed);
        }
        let mut append = Append { number: 0, fields: text.len(), text };
        let bytes = append.bytes();
        if inner.appends >= self.appends_max || (inner.bytes + bytes > self.bytes_max && inner.appends > 0) {
            return Err(Refused::Full);
        }
        inner.appends += 1;
        inner.bytes += bytes;
        inner.last += 1;
        append.number = inner.last;
        inner.waiting.push_back(append);
        drop(inner);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits until an append is waiting. Cancel safe.
    pub(super) async fn ready(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.inner().waiting.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Takes the oldest appends whose records have at most `bytes` bytes.
    pub(super) fn take(&self, bytes: u64) -> Vec<Append> {
        let mut inner = self.inner();
        let mut left = bytes;
        let fits = |append: &&Append| match left.checked_sub(append.record_max()) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        };
        let many = inner.waiting.iter().take_while(fits).count();
        inner.waiting.drain(..many).collect()
    }

    /// Returns the maximum length of the oldest record that waits.
    pub(super) fn first_record(&self) -> Option<u64> {
        self.inner().waiting.front().map(Append::record_max)
    }

    pub(super) fn take_all(&self) -> Vec<Append> {
        self.inner().waiting.drain(..).collect()
    }

    /// Puts taken appends back, to be taken again.
    pub(super) fn put_back(&self, appends: Vec<Append>) {
        let mut inner = self.inner();
        appends.into_iter().rev().for_each(|append| inner.waiting.push_front(append));
    }

    /// Removes taken appends from the count: they are in the log, or given up.
    pub(super) fn settle(&self, appends: &[Append]) {
        let Some(last) = appends.last().map(|append| append.number) else { return };
        {
            let mut inner = self.inner();
            inner.appends -= appends.len();
            inner.bytes -= appends.iter().map(Append::bytes).sum::<usize>();
        }
        self.done.send_if_modified(|done| std::mem::replace(done, last.max(*done)) < last);
    }

    pub(super) fn len(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.appends, inner.bytes)
    }

    /// Waits until all appends of now are in the log or given up. Cancel safe.
    pub(super) async fn flushed(&self) {
        let last = self.inner().last;
        // The sender is in `self`, so this does not fail.
        let _ = self.done.subscribe().wait_for(|&done| done >= last).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(appends: &[Append]) -> Vec<u64> {
        appends.iter().map(|append| append.number).collect()
    }

    #[test]
    fn what_is_taken_counts_until_it_is_settled() {
        let queue = Queue::new(2, 1 << 20);
        assert_eq!((queue.push(vec![0; 10]), queue.push(vec![0; 20])), (Ok(()), Ok(())));
        assert_eq!(queue.push(vec![]), Err(Refused::Full));
        let taken = queue.take(u64::MAX);
        assert_eq!((numbers(&taken), queue.push(vec![])), (vec![1, 2], Err(Refused::Full)));
        assert_eq!(queue.len(), (2, 30 + 2 * OVERHEAD));
        queue.put_back(taken);
        let taken = queue.take(u64::MAX);
        assert_eq!(numbers(&taken), [1, 2]);
        queue.settle(&taken);
        assert_eq!((queue.len(), queue.push(vec![])), ((0, 0), Ok(())));
        assert_eq!(numbers(&queue.take_all()), [3], "a refused append uses no number");
    }

    #[test]
    fn bytes_are_bounded_but_one_append_always_fits() {
        let queue = Queue::new(100, 1000);
        assert_eq!(queue.push(vec![0; 5000]), Ok(()));
        assert_eq!(queue.push(vec![0]), Err(Refused::Full));
        assert!(queue.take(5000).is_empty(), "its record is longer");
        let longest = queue.first_record().unwrap();
        assert_eq!(numbers(&queue.take(longest)), [1]);
    }

    #[test]
    fn the_last_who_leaves_closes_and_the_next_who_comes_opens() {
        let queue = Queue::new(10, 1 << 20);
        assert_eq!(queue.push(vec![0]), Ok(()), "the append waits for the first hub");
        (0..2).for_each(|_| queue.enter());
        assert!(queue.leave_done(), "the other hub commits it");
        assert!(!queue.leave_done(), "no other hub would commit it");
        let taken = queue.take(u64::MAX);
        assert!(!queue.leave_done(), "the append is not committed");
        queue.settle(&taken);
        assert!(queue.leave_done());
        assert_eq!(queue.push(vec![0]), Err(Refused::Closed));
        (0..2).for_each(|_| queue.enter());
        assert_eq!(queue.push(vec![0]), Ok(()));
        assert_eq!((queue.leave().len(), queue.leave().len()), (0, 1), "the second hub is the last");
    }
}
