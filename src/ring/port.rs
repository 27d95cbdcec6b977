//! The kernel as seen by the driver: push, enter, reap. Implemented by a ring, and by a scripted kernel for
//! tests.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use io_uring::squeue::Entry;

use crate::counters::{Counter, count};
use crate::sys::uring::{Completion, Uring};

pub(crate) trait Port: Send {
    fn room(&mut self) -> usize;

    /// Returns the size of the completion queue, which limits the entries in flight.
    fn completions(&self) -> usize;

    fn supports(&self, opcode: u8) -> bool;

    /// Returns whether this process created the ring; a forked child must call nothing else.
    fn is_ours(&self) -> bool {
        true
    }

    /// Queues an entry; there must be room. `linked` means that the next entry belongs to the same chain.
    ///
    /// # Safety
    ///
    /// Memory that the entry points to must stay valid, unmoved and untouched until its final completion is reaped.
    unsafe fn push(&mut self, entry: &Entry, linked: bool);

    /// Submits the first `submit` entries and waits for `want` completions, at most for `timeout`. Returns the number
    /// accepted.
    fn enter(&mut self, submit: usize, want: usize, timeout: Option<Duration>) -> io::Result<usize>;

    /// Moves available completions to `into`. Returns whether an [`enter`](Self::enter) would fetch more.
    fn reap(&mut self, into: &mut Vec<Completion>) -> bool;

    fn close_file(&mut self, place: u32);

    fn dropped(&mut self) -> u32;

    /// Cancels everything in flight; the completions must still be reaped.
    fn cancel_all(&mut self, timeout: Duration) -> io::Result<()>;
}

impl Port for Uring {
    fn room(&mut self) -> usize {
        self.room()
    }

    fn completions(&self) -> usize {
        self.completions() as usize
    }

    fn supports(&self, opcode: u8) -> bool {
        self.supports(opcode)
    }

    fn is_ours(&self) -> bool {
        self.is_ours()
    }

    unsafe fn push(&mut self, entry: &Entry, _: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.push(entry) }
    }

    fn enter(&mut self, submit: usize, want: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.enter(submit, want, timeout)
    }

    fn reap(&mut self, into: &mut Vec<Completion>) -> bool {
        self.reap(into)
    }

    fn close_file(&mut self, place: u32) {
        self.close_file(place);
    }

    fn dropped(&mut self) -> u32 {
        self.dropped()
    }

    fn cancel_all(&mut self, timeout: Duration) -> io::Result<()> {
        self.cancel_all(timeout)
    }
}

/// A ring, with the state that its driver keeps about it.
pub(super) struct Ring {
    pub(super) port: Box<dyn Port>,
    /// Entries that are pushed and not submitted: their keys, and whether the next entry belongs to the same chain.
    pub(super) pushed: VecDeque<(u64, bool)>,
    /// Whether the kernel holds back completions until it is entered.
    pub(super) held_back: bool,
    /// Number of consecutive enters that accepted and reaped nothing.
    pub(super) stalls: u32,
    pub(super) done: Vec<Completion>,
}

impl Ring {
    pub(super) fn new(port: Box<dyn Port>) -> Self {
        Self { port, pushed: VecDeque::new(), held_back: false, stalls: 0, done: Vec::new() }
    }

    /// # Safety
    ///
    /// As [`Port::push`].
    pub(super) unsafe fn push(&mut self, entry: &Entry, user_data: u64, linked: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.port.push(&entry.clone().user_data(user_data), linked) };
        self.pushed.push_back((user_data, linked));
    }
}

/// Leaks a value that the kernel may still use, and counts it.
pub(super) fn leak<T>(value: T) {
    count(Counter::RingLeaks, 1);
    #[expect(clippy::disallowed_methods, reason = "freeing it would be worse, and it is counted")]
    std::mem::forget(value);
}
