//! Reading and writing one piece of memory: at an offset, or at the file position.

use std::io;

use bytes::Bytes;

use super::{Files, Operation, Progress, Target, Waits};
use crate::buf::pool::{self, Lease};
use crate::sys::call::Wait;
use crate::sys::flags::PollFlags;
use crate::sys::transfer::PIPE_BUF;
use crate::sys::{call, transfer};

#[cfg(uring)]
pub(super) mod submit;

/// Maximum number of bytes per read or write: the kernel's own limit is 2 GiB less a page.
const CALL_MAX: usize = 1 << 30;
pub(super) fn piece(len: usize, done: usize, limit: usize) -> usize {
    (len - done).min(CALL_MAX).min(limit)
}

#[derive(Debug)]
pub(crate) struct Nop;

impl Operation for Nop {
    fn perform(&mut self, _: &mut Files, _: usize) -> io::Result<u32> {
        Ok(0)
    }
}

#[derive(Debug)]
pub(crate) struct Read {
    file: Target,
    /// `None` reads at the file position and advances it, as pipes and sockets require.
    offset: Option<u64>,
    len: usize,
    lease: Lease,
    /// Whether the pages leave the page cache afterwards. Only for reads at an offset.
    uncached: bool,
}

impl Read {
    pub(crate) fn new(file: Target, offset: u64, len: usize) -> Self {
        Self::resume(file, offset, len, pool::lease(len))
    }

    /// As [`new`](Self::new), with the first bytes already in `lease`, which has room for `len` bytes.
    pub(crate) fn resume(file: Target, offset: u64, len: usize, lease: Lease) -> Self {
        Self { file, offset: Some(offset), len, lease, uncached: false }
    }

    pub(crate) fn next(file: Target, len: usize) -> Self {
        Self { file, offset: None, len, lease: pool::lease(len), uncached: false }
    }

    /// Reads with [`RWF_DONTCACHE`], which the file must support.
    pub(crate) fn uncached(mut self) -> Self {
        self.uncached = true;
        self
    }

    fn at(&self) -> Option<u64> {
        self.offset.map(|offset| offset + self.lease.len() as u64)
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.lease.freeze()
    }
}

impl Operation for Read {
    fn perform(&mut self, files: &mut Files, limit: usize) -> io::Result<u32> {
        let file = self.file.as_fd(files)?;
        let (at, want) = (self.at(), piece(self.len, self.lease.len(), limit));
        let spare = &mut self.lease.spare()[..want];
        let n = match at {
            Some(at) if self.uncached => call::read_uncached(file, spare, at, Wait::ForDisk),
            Some(at) => call::read_blocking(file, spare, at),
            None => transfer::read_next_blocking(file, spare),
        };
        Ok(n? as u32)
    }

    fn waits(&self) -> Waits<'_> {
        [self.offset.is_none().then_some((&self.file, PollFlags::IN)), None]
    }

    fn advance(&mut self, n: u32) -> Progress {
        self.lease.advance(n as usize);
        Progress::of(self.lease.len(), self.len, n)
    }

    fn bytes(&self) -> u64 {
        self.lease.len() as u64
    }
}

#[derive(Debug)]
pub(crate) struct Write {
    file: Target,
    /// `None` writes at the file position and advances it, as pipes and sockets require.
    offset: Option<u64>,
    bytes: Bytes,
    done: usize,
}

impl Write {
    pub(crate) fn new(file: Target, offset: u64, bytes: Bytes) -> Self {
        Self { file, offset: Some(offset), bytes, done: 0 }
    }

    pub(crate) fn next(file: Target, bytes: Bytes) -> Self {
        Self { file, offset: None, bytes, done: 0 }
    }

    fn at(&self) -> Option<u64> {
        self.offset.map(|offset| offset + self.done as u64)
    }
}

impl Operation for Write {
    fn perform(&mut self, files: &mut Files, limit: usize) -> io::Result<u32> {
        let file = self.file.as_fd(files)?;
        let rest = &self.bytes[self.done..][..piece(self.bytes.len(), self.done, limit)];
        let n = match self.at() {
            Some(at) => call::write_blocking(file, rest, at),
            // A ready pipe accepts this much without waiting for its reader.
            None if rest.len() > PIPE_BUF && transfer::is_stream(file)? => {
                transfer::write_next_blocking(file, &rest[..PIPE_BUF])
            }
            None => transfer::write_next_blocking(file, rest),
        };
        Ok(n? as u32)
    }

    fn waits(&self) -> Waits<'_> {
        [self.offset.is_none().then_some((&self.file, PollFlags::OUT)), None]
    }

    fn advance(&mut self, n: u32) -> Progress {
        self.done += n as usize;
        Progress::of(self.done, self.bytes.len(), n)
    }

    fn bytes(&self) -> u64 {
        self.done as u64
    }
}
