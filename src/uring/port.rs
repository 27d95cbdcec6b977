//! The kernel as the driver sees it: push, enter, reap. The real one is a ring; tests have a scripted one.

#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

use io_uring::squeue::Entry;

use crate::sys::uring::{Completion, Provided, Uring};

/// Whoever carries out submissions.
pub(crate) trait Port: Send {
    /// Entries that can be pushed now.
    fn room(&mut self) -> usize;

    /// Completions that can wait to be reaped: the bound on what may be in flight.
    fn completions(&self) -> usize;

    /// Whether an operation is known.
    fn supports(&self, opcode: u8) -> bool;

    /// Whether this process made it; a forked child must call nothing else.
    fn is_ours(&self) -> bool {
        true
    }

    /// Queues an entry; there must be room. `linked` says that the next one belongs to the same chain.
    ///
    /// # Safety
    ///
    /// What the entry points to must stay valid, unmoved and untouched until its final completion was reaped.
    unsafe fn push(&mut self, entry: &Entry, linked: bool);

    /// Submits the first `submit` queued entries and waits for `want` completions, at most `timeout`. Returns how many
    /// entries were taken.
    fn enter(&mut self, submit: usize, want: usize, timeout: Option<Duration>) -> io::Result<usize>;

    /// Takes the completions that are there; returns whether an [`enter`](Self::enter) would bring more.
    fn reap(&mut self, into: &mut Vec<Completion>) -> bool;

    /// Closes a file in the table.
    fn close_file(&mut self, place: u32);

    /// Registers buffers for receives to choose from, as group 0.
    ///
    /// # Safety
    ///
    /// They must live for as long as a receive may be in flight.
    unsafe fn provide(&mut self, buffers: &Provided) -> io::Result<()>;

    /// Whether one receive can fill several of them.
    fn has_bundles(&self) -> bool;

    /// Completions that were lost for good.
    fn dropped(&mut self) -> u32;

    /// Cancels all that is in flight; the completions are still to be reaped.
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

    unsafe fn provide(&mut self, buffers: &Provided) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.provide(buffers) }
    }

    fn has_bundles(&self) -> bool {
        self.has_bundles()
    }

    fn dropped(&mut self) -> u32 {
        self.dropped()
    }

    fn cancel_all(&mut self, timeout: Duration) -> io::Result<()> {
        self.cancel_all(timeout)
    }
}
