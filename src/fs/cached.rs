//! Reads from the page cache on the thread of the caller.

use std::io;
use std::os::fd::BorrowedFd;

use crate::buf::pool::Lease;
use crate::sys::call;

/// How far [`fill`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// All bytes that were asked for are in the lease.
    Whole,
    /// The file ends before the last byte that was asked for. The lease has all that comes before its end.
    End,
    /// The page cache does not have the next byte.
    Part,
}

/// Reads up to `len` bytes of `file` from `offset` into the empty `lease`, as far as the page cache has them.
pub(crate) fn fill(lease: &mut Lease, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Filled> {
    while lease.len() < len {
        let (at, want) = (offset + lease.len() as u64, len - lease.len());
        match lease.read_exactly_with(|spare| call::read_nowait(file, &mut spare[..want], at)) {
            Ok(0) => return Ok(Filled::End),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Filled::Part),
            Err(e) => return Err(e),
        }
    }
    Ok(Filled::Whole)
}
