//! Pool of pipes for `splice`.
//!
//! Invariants:
//! 1. A pipe is owned by one copy at a time.
//! 2. Only an empty pipe returns to the pool, so no byte of one copy appears in another; otherwise it is closed with
//!    its contents.
//! 3. There are never more than [`MOST`] pipes.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::buf::Lease;
use crate::counters::{Counter, count};
use crate::sys::fd::{AsFd, BorrowedFd, OwnedFd};
use crate::sys::transfer;

/// Maximum number of pipes of the process: 64 MiB in total, the default `pipe-user-pages-soft` of a user.
const MOST: usize = 64;
const IDLE: usize = 16;
/// Pipe sizes to try, in bytes; the first is the default `pipe-max-size`. If both fail the pipe keeps its default size.
const SIZES: [usize; 2] = [1 << 20, 256 << 10];

static POOL: Mutex<Vec<Pipe>> = Mutex::new(Vec::new());
static MADE: AtomicUsize = AtomicUsize::new(0);

/// Both ends of a pipe, and the number of bytes in it. Dropping it returns it to the pool.
#[derive(Debug)]
pub(super) struct Pipe {
    // `None` only during drop.
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

/// Takes an empty pipe. `None` if all are in use or a new one fails, for example with `EMFILE`. Does not wait for a
/// pipe, because copies that hold one wait for peers.
pub(super) fn take() -> Option<Pipe> {
    if let Some(pipe) = pool().pop() {
        return Some(pipe);
    }
    // Relaxed: the count protects no memory.
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
        self.ends.as_ref().expect("internal: the pipe was dropped")
    }

    /// Returns the number of bytes it holds if they come in whole pages.
    pub(super) fn capacity(&self) -> usize {
        self.ends().capacity
    }

    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    pub(super) fn fill(&mut self, from: BorrowedFd<'_>, at: Option<u64>, len: usize) -> io::Result<usize> {
        let n = transfer::splice((from, at), (self.ends().write.as_fd(), None), len)?;
        self.pending += n;
        Ok(n)
    }

    pub(super) fn empty(&mut self, to: BorrowedFd<'_>, at: Option<u64>) -> io::Result<usize> {
        let n = transfer::splice((self.ends().read.as_fd(), None), (to, at), self.pending)?;
        self.pending -= n;
        Ok(n)
    }

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
        // Closed before the count is decremented, so that there are never more than `MOST`.
        drop(ends);
        MADE.fetch_sub(1, Ordering::Relaxed);
    }
}
