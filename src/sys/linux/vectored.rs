//! Typed vectored calls on files, and calls on their length. **All of them may wait for the disk**; none returns
//! `EINTR`.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

use rustix::fs::FallocateFlags;
use rustix::io::retry_on_intr;

/// Maximum number of slices per call, `IOV_MAX`.
pub(crate) const PIECES_MAX: usize = 1024;

/// Reads into `pieces` in order from `offset`, [preadv(2)](https://man7.org/linux/man-pages/man2/preadv.2.html).
pub(crate) fn read_pieces(file: BorrowedFd<'_>, pieces: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::preadv(file, &mut *pieces, offset))?)
}

/// Writes `pieces` in order at `offset`, [pwritev(2)](https://man7.org/linux/man-pages/man2/pwritev.2.html).
pub(crate) fn write_pieces(file: BorrowedFd<'_>, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::pwritev(file, pieces, offset))?)
}

/// Allocates, punches or zeroes a range of a file,
/// [fallocate(2)](https://man7.org/linux/man-pages/man2/fallocate.2.html).
pub(crate) fn allocate(file: BorrowedFd<'_>, mode: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fallocate(file, mode, offset, len))?)
}

/// Truncates the file, or extends it with zeros,
/// [ftruncate(2)](https://man7.org/linux/man-pages/man2/ftruncate.2.html).
pub(crate) fn set_len(file: BorrowedFd<'_>, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::ftruncate(file, len))?)
}
