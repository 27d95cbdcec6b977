//! Typed system calls on open files that move many pieces, or none: vectored reads and writes, syncing, allocating.
//! **All of them wait for the disk** where they have to, and none returns `EINTR`.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

use rustix::fs::FallocateFlags;
use rustix::io::retry_on_intr;

/// Most pieces one call takes, `IOV_MAX`.
pub(crate) const PIECES_MAX: usize = 1024;

/// Reads into `pieces` in order from `offset`, [preadv(2)](https://man7.org/linux/man-pages/man2/preadv.2.html).
pub(crate) fn read_pieces(file: BorrowedFd<'_>, pieces: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::preadv(file, &mut *pieces, offset))?)
}

/// Writes `pieces` in order at `offset`, [pwritev(2)](https://man7.org/linux/man-pages/man2/pwritev.2.html).
pub(crate) fn write_pieces(file: BorrowedFd<'_>, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::pwritev(file, pieces, offset))?)
}

/// Has what was written reach the disk, [fsync(2)](https://man7.org/linux/man-pages/man2/fsync.2.html), or
/// `fdatasync(2)` for the data and what is needed to find it.
pub(crate) fn sync(file: BorrowedFd<'_>, data_only: bool) -> io::Result<()> {
    Ok(retry_on_intr(|| if data_only { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) })?)
}

/// Works on the room that a file has, [fallocate(2)](https://man7.org/linux/man-pages/man2/fallocate.2.html).
pub(crate) fn allocate(file: BorrowedFd<'_>, mode: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fallocate(file, mode, offset, len))?)
}
