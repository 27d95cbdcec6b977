//! Pipes that bytes are spliced through, kept for the next copy.
//!
//! Invariants:
//! 1. A pipe is used by one copy at a time, which owns it.
//! 2. It returns to the others only if it is empty, so that no byte of one copy ever comes out in another; else it is
//!    closed, with what is in it.
//! 3. There are never more than [`MOST`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::buf::Lease;
use crate::counters::{Counter, count};
use crate::sys::transfer;

/// Pipes of the process, in use or idle: 64 MiB at most, which is what `pipe-user-pages-soft` leaves to a user by default.
const MOST: usize = 64;
/// Of these, idle.
const IDLE: usize = 16;
/// What a pipe is to hold, in bytes, the best first: the first is `pipe-max-size` by default. The last is what pipes have.
const SIZES: [usize; 2] = [1 << 20, 256 << 10];

static POOL: Mutex<Vec<Pipe>> = Mutex::new(Vec::new());
static MADE: AtomicUsize = AtomicUsize::new(0);

/// Both ends of a pipe, and how much is in it. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Pipe {
    // Taken when it is dropped.
    ends: Option<Ends>,
    pending: usize,
}

#[derive(Debug)]
struct Ends {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
}

fn pool() -> MutexGuard<'static, Vec<Pipe>> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An empty pipe. `None`: there is none to be had, because too many copies have one or because of the error that making
/// one has met, such as `EMFILE`; those who keep theirs wait for somebody, so there is no use in waiting for them.
pub(super) fn take() -> Option<Pipe> {
    if let Some(pipe) = pool().pop() {
        return Some(pipe);
    }
    // Relaxed: the count guards no memory.
    let counted = MADE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |made| (made < MOST).then_some(made + 1));
    counted.ok()?;
    match Ends::new() {
        Ok(ends) => {
            count(Counter::PipesMade, 1);
            Some(Pipe { ends: Some(ends), pending: 0 })
        }
        Err(_) => {
            MADE.fetch_sub(1, Ordering::Relaxed);
            None
        }
    }
}

impl Ends {
    fn new() -> io::Result<Self> {
        let (read, write) = transfer::pipe()?;
        let _ = SIZES.iter().find(|&&size| transfer::set_pipe_size(write.as_fd(), size).is_ok());
        let capacity = transfer::pipe_size(write.as_fd())?;
        Ok(Self { read, write, capacity })
    }
}

impl Pipe {
    fn ends(&self) -> &Ends {
        self.ends.as_ref().expect("internal: a pipe that was dropped")
    }

    /// Bytes it holds if they come in whole pages.
    pub(super) fn capacity(&self) -> usize {
        self.ends().capacity
    }

    /// Bytes in it.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Moves up to `len` bytes into the pipe, from a position if `from` is a file.
    pub(super) fn fill(&mut self, from: BorrowedFd<'_>, at: Option<u64>, len: usize) -> io::Result<usize> {
        let n = transfer::splice((from, at), (self.ends().write.as_fd(), None), len)?;
        self.pending += n;
        Ok(n)
    }

    /// Moves what is in it on, to a position if `to` is a file.
    pub(super) fn empty(&mut self, to: BorrowedFd<'_>, at: Option<u64>) -> io::Result<usize> {
        let n = transfer::splice((self.ends().read.as_fd(), None), (to, at), self.pending)?;
        self.pending -= n;
        Ok(n)
    }

    /// Reads the first bytes in it, at most `len` and what fits.
    pub(super) fn read(&mut self, lease: &mut Lease, len: usize) -> io::Result<usize> {
        let len = len.min(lease.spare_len());
        let n = lease
            .read_exactly_with(|spare| transfer::read_next_blocking(self.ends().read.as_fd(), &mut spare[..len]))?;
        self.pending -= n;
        Ok(n)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let Some(ends) = self.ends.take() else { return };
        if self.pending == 0 {
            let mut pool = pool();
            if pool.len() < IDLE {
                pool.push(Self { ends: Some(ends), pending: 0 });
                return;
            }
        }
        count(Counter::PipesClosed, 1);
        // Closed before it is counted out, so that there are never more than `MOST`.
        drop(ends);
        MADE.fetch_sub(1, Ordering::Relaxed);
    }
}
