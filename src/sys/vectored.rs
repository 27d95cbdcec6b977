//! Typed system calls on open files: many pieces at once, and how long a file is. **All of them wait for the disk** where
//! they have to, and none returns `EINTR`.

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

/// Works on the room that a file has, [fallocate(2)](https://man7.org/linux/man-pages/man2/fallocate.2.html).
pub(crate) fn allocate(file: BorrowedFd<'_>, mode: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fallocate(file, mode, offset, len))?)
}

/// Cuts the file, or makes it longer with zeros, [ftruncate(2)](https://man7.org/linux/man-pages/man2/ftruncate.2.html).
pub(crate) fn set_len(file: BorrowedFd<'_>, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::ftruncate(file, len))?)
}
