//! Kernel operations, each with all memory and descriptors it uses.
//!
//! ```text
//!  open      open and close
//!  rw        read and write, one piece of memory
//!  vectored  read and write, many pieces
//!  sync      sync, allocate and set length
//!  stat      metadata of a file
//!  submit    the entries of all of them, for a ring
//!  path      rename, unlink, link
//!  transfer  splice and send
//! ```
//!
//! An operation has two equivalent implementations: an entry for a ring, and plain system calls. Both report the number
//! the call returns, and [`Operation::advance`] turns it into progress.
//!
//! Invariants:
//! 1. An entry points only into the operation, which is boxed, or into memory that the operation owns.
//! 2. From [`entry`](Operation::entry) until the final completion the operation is not moved, touched or dropped: the
//!    slot table holds it, even if the future is dropped.
//! 3. A descriptor returned by a success belongs to the operation once `advance` has seen it.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, BorrowedFd, OwnedFd};
use crate::sys::flags::PollFlags;

pub(crate) mod open;
pub(crate) mod path;
pub(crate) mod rw;
pub(crate) mod stat;
#[cfg_attr(not(uring), path = "no_submit.rs")]
pub(crate) mod submit;
pub(crate) mod sync;
pub(crate) mod transfer;
pub(crate) mod vectored;

/// An operation by plain calls. [`Submit`](submit::Submit) is the same operation as an entry for a ring.
pub(crate) trait Operation: submit::Submit + Any + fmt::Debug + Send + Sync {
    /// Does the rest of the work by plain system calls, **which may wait**; moves at most `limit` bytes.
    fn perform(&mut self, files: &mut Files, limit: usize) -> io::Result<u32>;

    /// Returns descriptors that may not be ready, with the events to wait for. Files are always ready.
    fn waits(&self) -> Waits<'_> {
        [None, None]
    }

    fn file(&self) -> FileUse {
        FileUse::None
    }

    fn advance(&mut self, result: u32) -> Progress {
        let _ = result;
        Progress::Done
    }

    fn bytes(&self) -> u64 {
        0
    }
}

/// Outcome of one step of a [chain](crate::fs::chain::Chain).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepOutcome {
    /// Completed in full, with the number of bytes moved: 0 for steps that move none.
    Done(u64),
    /// This many bytes were moved and no more follow: the source ended, or the target accepted none.
    Short(u64),
    /// Failed with this error number, [errno(3)](https://man7.org/linux/man-pages/man3/errno.3.html). `ETIMEDOUT` if
    /// the step's time limit expired.
    Failed(i32),
    /// Not begun, because an earlier step was incomplete.
    Skipped,
}

/// Descriptors that an operation may have to wait for: up to two that are not files.
pub(crate) type Waits<'a> = [Option<(&'a Target, PollFlags)>; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileUse {
    None,
    Opens(usize),
    Closes(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// A part is done, and the rest can be requested.
    More,
    /// A part is done, and no more follows: the end of a file.
    End,
}

impl Progress {
    /// Returns the progress of an operation of `len` bytes after a call that moved `n` of them.
    pub(super) fn of(done: usize, len: usize, n: u32) -> Self {
        match n {
            _ if done >= len => Self::Done,
            0 => Self::End,
            _ => Self::More,
        }
    }
}

/// The file an operation works on.
#[derive(Clone)]
pub(crate) enum Target {
    /// An open file, which stays open while the operation lives.
    Fd(Arc<dyn AsFd + Send + Sync>),
    /// The file that the `n`th open of the same program opens.
    Opened(usize),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fd(fd) => f.debug_tuple("Fd").field(&fd.as_fd()).finish(),
            Self::Opened(n) => f.debug_tuple("Opened").field(n).finish(),
        }
    }
}

impl<T: AsFd + Send + Sync + 'static> From<Arc<T>> for Target {
    fn from(file: Arc<T>) -> Self {
        Self::Fd(file)
    }
}

impl Target {
    pub(super) fn as_fd<'a>(&'a self, files: &'a Files) -> io::Result<BorrowedFd<'a>> {
        match self {
            Self::Fd(fd) => Ok(fd.as_ref().as_fd()),
            Self::Opened(n) => files.fd(*n),
        }
    }
}

/// Files that a program opens, as places in the table of a ring or as descriptors, and whether buffers are registered.
#[derive(Debug, Default)]
pub(crate) struct Files {
    slots: Vec<u32>,
    fds: Vec<Option<OwnedFd>>,
    registered: bool,
}

impl Files {
    pub(super) fn store(&mut self, n: usize, fd: OwnedFd) {
        self.fds.resize_with(self.fds.len().max(n + 1), || None);
        self.fds[n] = Some(fd);
    }

    pub(super) fn take(&mut self, n: usize) -> Option<OwnedFd> {
        self.fds.get_mut(n).and_then(Option::take)
    }

    pub(super) fn close_all(&mut self) {
        self.fds.clear();
    }

    fn fd(&self, n: usize) -> io::Result<BorrowedFd<'_>> {
        Ok(self.fds.get(n).and_then(Option::as_ref).ok_or(Errno::BADF)?.as_fd())
    }
}

#[cfg(all(test, uring))]
mod tests;
