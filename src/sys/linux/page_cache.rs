//! Reading from the page cache only, and what is in it.

use std::io::{self, IoSliceMut};

use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use super::call::{cached_pages, ends_by};
use super::caps::Capabilities;
use super::fd::BorrowedFd;

/// Reads bytes that are in the page cache, [preadv2(2)](https://man7.org/linux/man-pages/man2/preadv2.2.html) with
/// `RWF_NOWAIT`. `WouldBlock` means that the read needs the disk, or that this kernel cannot tell. `Ok(0)` means that
/// the file ends at or before `offset`.
pub(crate) fn read_nowait(file: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    if !Capabilities::get().read_nowait().is_yes() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let read = retry_on_intr(|| rustix::io::preadv2(file, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT));
    match read {
        // Linux 5.10 also returns 0 in the middle of a file, at a page with pending read-ahead.
        Ok(0) if !ends_by(file, offset) => Err(io::ErrorKind::WouldBlock.into()),
        // The kernel supports the flag, but the file system may not.
        Err(Errno::OPNOTSUPP) => Err(io::ErrorKind::WouldBlock.into()),
        other => Ok(other?),
    }
}

/// Returns whether every page of a range of `file` is in the page cache (cachestat(2), Linux 6.5). Returns `false` if
/// the kernel does not report it: it refuses files that the caller neither owns nor may write.
pub(crate) fn is_resident(file: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    Capabilities::get().cachestat().is_yes()
        && cached_pages(file, offset, len).is_ok_and(|pages| {
            let page = rustix::param::page_size() as u64;
            pages >= (offset + len).div_ceil(page) - offset / page
        })
}

#[cfg(test)]
mod tests;
