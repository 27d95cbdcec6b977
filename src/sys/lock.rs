//! Locks of open files, [flock(2)](https://man7.org/linux/man-pages/man2/flock.2.html).
//!
//! A lock belongs to the open file, not to a descriptor of it. A child process started by another thread has duplicates
//! of all descriptors until it executes its program. So closing a descriptor may not release the lock. [`Locked`]
//! therefore unlocks the file before it closes it.
//!
//! The portable build has the same module.

use std::io;

#[cfg(unix)]
use rustix::fs::FlockOperation;
#[cfg(unix)]
use rustix::io::{Errno, retry_on_intr};

use super::fd::{AsFd, BorrowedFd, OwnedFd};

/// An open file with its lock. Dropping it unlocks the file, and closes it.
#[derive(Debug)]
pub(crate) struct Locked(OwnedFd);

impl Locked {
    /// Locks the file. Returns `None` if it is locked elsewhere.
    pub(crate) fn try_new(file: OwnedFd) -> io::Result<Option<Self>> {
        Ok(try_lock(file.as_fd())?.then_some(Self(file)))
    }

    /// As [`Locked::try_new`], but a file that cannot be locked, as on file systems without locks, is used without a
    /// lock.
    #[cfg(feature = "fs")]
    pub(crate) fn where_possible(file: OwnedFd) -> Option<Self> {
        try_lock(file.as_fd()).unwrap_or(true).then_some(Self(file))
    }
}

impl AsFd for Locked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // The only possible error is that the file has no lock.
        let _ = unlock(self.as_fd());
    }
}

/// Locks the open file. The kernel ends the lock when the last descriptor of the open file is closed. Returns `false`
/// if the file is locked elsewhere.
pub(crate) fn try_lock(file: BorrowedFd<'_>) -> io::Result<bool> {
    #[cfg(unix)]
    return match retry_on_intr(|| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(e) => Err(e.into()),
    };
    // A lock would keep others from reading.
    #[cfg(windows)]
    return {
        let _ = file;
        Err(super::unsupported("files are not locked"))
    };
}

pub(crate) fn unlock(file: BorrowedFd<'_>) -> io::Result<()> {
    #[cfg(unix)]
    retry_on_intr(|| rustix::fs::flock(file, FlockOperation::Unlock))?;
    #[cfg(windows)]
    let _ = file;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Two open files of one name.
    fn two() -> (OwnedFd, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        (std::fs::File::create(&path).unwrap().into(), std::fs::File::open(&path).unwrap().into())
    }

    #[test]
    fn a_lock_is_exclusive_and_ends_on_unlock_and_on_close() {
        let (one, other) = two();
        assert!(try_lock(one.as_fd()).unwrap());
        assert!(!try_lock(other.as_fd()).unwrap());
        unlock(one.as_fd()).unwrap();
        assert!(try_lock(other.as_fd()).unwrap());
        drop(other);
        assert!(try_lock(one.as_fd()).unwrap());
    }

    #[test]
    fn a_lock_ends_while_a_duplicate_of_the_descriptor_is_open() {
        let (one, other) = two();
        let duplicate = one.try_clone().unwrap();
        let locked = Locked::try_new(one).unwrap().unwrap();
        assert!(!try_lock(other.as_fd()).unwrap());
        drop(locked);
        assert!(try_lock(other.as_fd()).unwrap(), "the duplicate holds the lock");
        drop(duplicate);
    }
}
