//! Whether work on a file may wait for a peer, perhaps forever: a pipe, a socket, a terminal, an event counter, or any
//! file of a file system that a process or another machine serves.
//!
//! Nothing here waits. If the answer cannot be determined without waiting, the file counts as one that may wait.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Mode, ResolveFlags};
use rustix::io::Errno;

use super::path::{self, How};
use super::{call, mounts};

/// Returns whether work on an open file may wait for a peer.
pub(crate) fn may_wait(file: BorrowedFd<'_>) -> bool {
    match call::known(file) {
        Ok((FileType::RegularFile | FileType::Directory, _)) => mounts::may_wait(file),
        Ok((FileType::BlockDevice, _)) => false,
        _ => true,
    }
}

/// Returns whether opening `path` with `how`, or work on the opened file, may wait for a peer. Checks only names in the
/// kernel's memory; `None` if that is not sufficient.
pub(crate) fn path_may_wait(dir: BorrowedFd<'_>, path: &CStr, how: &How) -> Option<bool> {
    let (flags, resolve) = how.to_look_at();
    match rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve | ResolveFlags::CACHED) {
        Ok(found) => Some(may_wait(found.as_fd())),
        // Not in memory; no such flag before Linux 5.12; no such call before 5.6, or in a sandbox.
        Err(Errno::AGAIN | Errno::INVAL | Errno::NOSYS | Errno::PERM) => None,
        // A missing file is created as a regular file or ends the chain. A file that cannot be opened ends the chain.
        Err(_) => Some(false),
    }
}

/// As [`path_may_wait`], but **waits for the disk** if names are not in memory.
pub(crate) fn path_may_wait_blocking(dir: BorrowedFd<'_>, path: &CStr, how: &How) -> bool {
    let (flags, resolve) = how.to_look_at();
    let look = How::new(flags, Mode::empty(), resolve);
    path::open_blocking(dir, path, &look).is_ok_and(|found| may_wait(found.as_fd()))
}

#[cfg(test)]
mod tests;
