//! What the kernel can be asked for, each request with everything it touches.
//!
//! ```text
//!  open      open and close
//!  rw        read and write, one piece of memory
//!  vectored  the same with many pieces
//!  sync      sync and allocate
//!  stat      what a file is
//!  path      rename, unlink, link
//!  transfer  splice and send
//! ```
//!
//! An operation knows two ways to the same end: the entry for a ring, and the plain system calls. Both report the number
//! the call returns, and [`Operation::advance`] makes of it what the caller gets.
//!
//! Invariants:
//! 1. An entry points only into the operation, which is boxed, or into memory that the operation owns.
//! 2. From [`entry`](Operation::entry) until the final completion nobody moves, touches or drops the operation: the slot
//!    table holds it, whatever happens to the future.
//! 3. What a success brings (a descriptor) belongs to the operation as soon as `advance` has seen it.

use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::squeue::{Entry, Flags};
use io_uring::types;
use rustix::event::PollFlags;
use rustix::io::Errno;

use super::buffers;
use super::program::Outcome;
use crate::sys::call;

pub(crate) mod open;
pub(crate) mod path;
pub(crate) mod rw;
pub(crate) mod stat;
pub(crate) mod sync;
pub(crate) mod transfer;
pub(crate) mod vectored;

/// One request to the kernel.
pub(crate) trait Operation: Any + fmt::Debug + Send + Sync {
    /// The entry for a ring, for what is still to be done.
    fn entry(&mut self, files: &Files) -> Entry;

    /// The same by plain system calls, **which may wait**, for at most `limit` bytes where bytes are moved.
    fn perform(&mut self, files: &mut Files, limit: usize) -> io::Result<u32>;

    /// The descriptors that may not be ready, and what for. Files are always ready.
    fn waits(&self) -> Waits<'_> {
        [None, None]
    }

    /// Whether the kernel keeps what is linked behind it from running if it fails or is short.
    ///
    /// For many operations it does not: they report their error and forget to fail the link. So it is on Linux 6.18 with
    /// fsync, fallocate, statx, rename, unlink and link, whatever io_uring_enter(2) says, and their sources have read so
    /// since 5.19. Behind those a submission ends.
    fn stops_links(&self) -> bool {
        false
    }

    /// What it does to the files of the program.
    fn file(&self) -> FileUse {
        FileUse::None
    }

    /// The code of the entry, which needs no places for files.
    fn code(&self) -> u8;

    /// Takes the number that a success returned.
    fn advance(&mut self, result: u32) -> Progress {
        let _ = result;
        Progress::Done
    }

    /// What an error means that for this operation is final, whatever it means for others. `None`: what it usually means.
    fn fail(&mut self, errno: i32) -> Option<Outcome> {
        let _ = errno;
        None
    }

    /// Bytes moved so far.
    fn bytes(&self) -> u64 {
        0
    }

    /// Whether a result of 0, which says that the source has ended, is known to be wrong.
    fn has_not_ended(&self) -> bool {
        false
    }

    /// Bytes that the kernel may copy while its entry is handed over.
    fn bytes_at_once(&self) -> usize {
        0
    }
}

/// What an operation may have to wait for: up to two descriptors that are no files.
pub(crate) type Waits<'a> = [Option<(&'a Target, PollFlags)>; 2];

/// What an operation does to the files of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileUse {
    /// Nothing, or only works on them.
    None,
    /// Opens the `n`th.
    Opens(usize),
    /// Closes the `n`th.
    Closes(usize),
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All was done.
    Done,
    /// A part was done; the rest can be asked for.
    More,
    /// A part was done, and there is no more: the end of a file.
    End,
}

impl Progress {
    /// How far one has come that is to move `len` bytes, after a call that moved `n` of them.
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
    /// One that is open, and stays so for as long as the operation lives.
    Fd(Arc<dyn AsFd + Send + Sync>),
    /// The one that the `n`th open of the same program opens.
    Opened(usize),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fd(fd) => f.debug_tuple("Fd").field(&fd.as_fd().as_raw_fd()).finish(),
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
    /// The descriptor as entries name it, and the flag that says how.
    pub(super) fn in_ring(&self, files: &Files) -> (types::Fd, Flags) {
        match self {
            Self::Fd(fd) => (types::Fd(fd.as_fd().as_raw_fd()), Flags::empty()),
            Self::Opened(n) => (types::Fd(files.slot(*n).cast_signed()), Flags::FIXED_FILE),
        }
    }

    /// Whether a regular file is known to go on behind `offset`. The io_uring of Linux 5.10 first reads without waiting, and
    /// such a read ends in the middle of a file at a page that is still being read ahead.
    pub(super) fn goes_on(&self, offset: u64) -> bool {
        match self {
            Self::Fd(file) => call::goes_on(file.as_ref().as_fd(), offset),
            // Only the ring reaches a file that it has opened.
            Self::Opened(_) => false,
        }
    }

    /// The descriptor for plain calls.
    pub(super) fn as_fd<'a>(&'a self, files: &'a Files) -> io::Result<BorrowedFd<'a>> {
        match self {
            Self::Fd(fd) => Ok(fd.as_ref().as_fd()),
            Self::Opened(n) => files.fd(*n),
        }
    }
}

/// The files that the steps of one program open: places in the table of a ring, or descriptors. And whether the ring
/// knows the registered buffers.
#[derive(Debug, Default)]
pub(crate) struct Files {
    slots: Vec<u32>,
    fds: Vec<Option<OwnedFd>>,
    registered: bool,
}

impl Files {
    /// Gives the program the places of a ring's table that its opens will fill.
    pub(super) fn assign(&mut self, slots: Vec<u32>) {
        self.slots = slots;
    }

    /// Says whether pool memory may be named by index.
    pub(super) fn set_registered(&mut self, registered: bool) {
        self.registered = registered;
    }

    /// The index under which the ring knows the memory that starts there.
    pub(super) fn buffer(&self, start: *const u8) -> Option<u16> {
        self.registered.then(|| buffers::index_of(start)).flatten()
    }

    /// The places that were assigned.
    pub(super) fn assigned(&self) -> &[u32] {
        &self.slots
    }

    /// Takes the places back.
    pub(super) fn take_assigned(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.slots)
    }

    /// The place of the `n`th open.
    pub(super) fn slot(&self, n: usize) -> u32 {
        self.slots[n]
    }

    /// Keeps the descriptor of the `n`th open.
    pub(super) fn keep(&mut self, n: usize, fd: OwnedFd) {
        self.fds.resize_with(self.fds.len().max(n + 1), || None);
        self.fds[n] = Some(fd);
    }

    /// Takes the descriptor of the `n`th open, to close it.
    pub(super) fn take(&mut self, n: usize) -> Option<OwnedFd> {
        self.fds.get_mut(n).and_then(Option::take)
    }

    /// Closes the descriptors that are left.
    pub(super) fn close_all(&mut self) {
        self.fds.clear();
    }

    fn fd(&self, n: usize) -> io::Result<BorrowedFd<'_>> {
        Ok(self.fds.get(n).and_then(Option::as_ref).ok_or(Errno::BADF)?.as_fd())
    }
}

#[cfg(test)]
mod tests;
