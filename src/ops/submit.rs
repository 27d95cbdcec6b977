//! Operations as entries for a ring.

use std::os::fd::{AsFd, AsRawFd};

use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};

use super::outcome::StepOutcome;
use super::target::{Files, Target};
use crate::sys::call;

/// An operation as an entry for a ring.
pub(crate) trait Submit {
    fn entry(&mut self, files: &Files) -> Entry;

    fn code(&self) -> u8;

    /// Returns whether the kernel cancels the linked entries if this operation fails or is short.
    ///
    /// On Linux 6.18 fsync, fallocate, statx, rename, unlink and link report their error without failing the link,
    /// contrary to io_uring_enter(2); the sources have been so since 5.19. A submission ends after such an operation.
    fn stops_links(&self) -> bool {
        use opcode::{Fallocate, Fsync, Ftruncate, LinkAt, RenameAt, Statx, UnlinkAt};
        let goes_on =
            [Fallocate::CODE, Fsync::CODE, Ftruncate::CODE, LinkAt::CODE, RenameAt::CODE, Statx::CODE, UnlinkAt::CODE];
        !goes_on.contains(&self.code())
    }

    /// Returns the final outcome of an error that has a special meaning for this operation, else `None`.
    fn fail(&mut self, errno: i32) -> Option<StepOutcome> {
        let _ = errno;
        None
    }

    /// Returns whether a result of 0, which means the end of the source, is known to be wrong.
    fn has_not_ended(&self) -> bool {
        false
    }

    /// Returns the number of bytes that the kernel may copy during submission.
    fn bytes_at_once(&self) -> usize {
        0
    }
}

impl Target {
    /// Returns the descriptor for entries, and the flag for its kind.
    pub(crate) fn in_ring(&self, files: &Files) -> (types::Fd, Flags) {
        match self {
            Self::Fd(fd) => (types::Fd(fd.as_fd().as_raw_fd()), Flags::empty()),
            Self::Opened(n) => (types::Fd(files.slot(*n).cast_signed()), Flags::FIXED_FILE),
        }
    }

    /// Returns whether a regular file is known to extend beyond `offset`. The io_uring of Linux 5.10 first reads
    /// without waiting, and such a read ends early at a page with pending read-ahead.
    pub(crate) fn goes_on(&self, offset: u64) -> bool {
        match self {
            Self::Fd(file) => call::goes_on(file.as_ref().as_fd(), offset),
            // Only the ring can access a file that it has opened.
            Self::Opened(_) => false,
        }
    }
}

impl Files {
    pub(crate) fn assign(&mut self, slots: Vec<u32>) {
        self.slots = slots;
    }

    pub(crate) fn assigned(&self) -> &[u32] {
        &self.slots
    }

    pub(crate) fn take_assigned(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.slots)
    }

    pub(crate) fn slot(&self, n: usize) -> u32 {
        self.slots[n]
    }
}
