//! Whether work on a file may wait for a peer: anything but a regular file or a directory.

use std::fs;

use super::borrow;
use super::fd::BorrowedFd;
use super::path::{At, How, Name};

pub(crate) fn may_wait(file: BorrowedFd<'_>) -> bool {
    #[cfg(windows)]
    if let BorrowedFd::Socket(_) = file {
        return true;
    }
    !borrow::file(file).metadata().is_ok_and(|found| found.is_file() || found.is_dir())
}

/// Unknown: every look at a path may wait for the disk.
pub(crate) fn path_may_wait(_: At<'_>, _: &Name, _: &How) -> Option<bool> {
    None
}

pub(crate) fn path_may_wait_blocking(dir: At<'_>, path: &Name, _: &How) -> bool {
    // A missing file is created as a regular file or ends the chain.
    dir.is_some() || fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}
