//! Reads from the page cache on the thread of the caller.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::buf::pool::Lease;
use crate::sys::call;
use crate::sys::call::Wait;
use crate::sys::fd::BorrowedFd;
use crate::sys::page_cache;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    Whole,
    /// The file ends before the last requested byte. The lease has all bytes up to the end.
    End,
    Part,
}

/// Decides whether a random read of a file looks into the page cache before it goes to the ring. A look that finds
/// nothing costs four times as much as one of 32 reads by the ring, because the kernel sends a separate disk request
/// for the page before it returns `EAGAIN`. Exact counts do not matter, so races are harmless.
#[derive(Debug, Default)]
pub(super) struct Looks(AtomicU8);

impl Looks {
    /// Number of failed looks in a row after which reads skip the look.
    const MISSES: u8 = 4;
    /// Number of reads without a look after which a read looks again.
    const PAUSE: u8 = 127;

    /// Returns whether the next read looks.
    pub(super) fn next(&self) -> bool {
        let n = self.0.load(Ordering::Relaxed);
        if n < Self::MISSES {
            return true;
        }
        let is_over = n == Self::MISSES + Self::PAUSE;
        self.0.store(if is_over { Self::MISSES } else { n + 1 }, Ordering::Relaxed);
        is_over
    }

    pub(super) fn tell(&self, found: bool) {
        let n = self.0.load(Ordering::Relaxed);
        match found {
            true if n > 0 => self.0.store(0, Ordering::Relaxed),
            false if n < Self::MISSES => self.0.store(n + 1, Ordering::Relaxed),
            _ => {}
        }
    }
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

/// Does the same as [`fill`], but does not leave pages in the page cache that read-ahead has loaded. Fails with
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
    match lease.read_exactly_with(|spare| page_cache::read_nowait(file, &mut spare[..len], offset)) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        read => read.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_a_cold_file_look_now_and_then_and_those_of_a_warm_one_always() {
        let looks = Looks::default();
        let read = |found| {
            let next = looks.next();
            if next {
                looks.tell(found);
            }
            next
        };
        assert_eq!((0..100).filter(|_| read(true)).count(), 100);
        assert_eq!((0..4).filter(|_| read(false)).count(), 4);
        // One of 128.
        assert_eq!((0..1280).filter(|_| read(false)).count(), 10);
        assert_eq!((0..128).filter(|_| read(true)).count(), 1);
        assert_eq!((0..100).filter(|_| read(true)).count(), 100, "one hit is enough");
    }
}
