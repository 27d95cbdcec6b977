//! Reads from the page cache on the thread of the caller.

use std::io;

use crate::buf::pool::Lease;
use crate::sys::call;
use crate::sys::call::Wait;
use crate::sys::fd::BorrowedFd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    Whole,
    /// The file ends before the last requested byte. The lease has all bytes up to the end.
    End,
    Part,
}

/// Reads up to `len` bytes of `file` from `offset` into the empty `lease`, as far as they are in the page cache.
pub(crate) fn fill(lease: &mut Lease, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Filled> {
    while lease.len() < len {
        match read(lease, file, offset + lease.len() as u64, len - lease.len())? {
            Some(0) => return Ok(Filled::End),
            Some(_) => {}
            None => return Ok(Filled::Part),
        }
    }
    Ok(Filled::Whole)
}

/// Does the same as [`fill`], and leaves no page in the page cache that a read-ahead has brought there. Fails with
/// `EOPNOTSUPP` if the kernel or the file system does not support it.
pub(crate) fn fill_uncached(lease: &mut Lease, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Filled> {
    while lease.len() < len {
        let (at, want) = (offset + lease.len() as u64, len - lease.len());
        match lease.read_exactly_with(|spare| call::read_uncached(file, &mut spare[..want], at, Wait::Never)) {
            Ok(0) => return Ok(Filled::End),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Filled::Part),
            Err(e) => return Err(e),
        }
    }
    Ok(Filled::Whole)
}

/// Appends up to `len` bytes of `file` from `offset` to `lease` with one call. `None` if the first of them is not in
/// the page cache, 0 at the end of the file.
pub(super) fn read(lease: &mut Lease, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Option<usize>> {
    match lease.read_exactly_with(|spare| call::read_nowait(file, &mut spare[..len], offset)) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        read => read.map(Some),
    }
}
