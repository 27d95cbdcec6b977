//! Reading and writing one piece of memory: at an offset, or at the file position.

use std::io;

use bytes::Bytes;
use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use rustix::event::PollFlags;

use super::{Files, Operation, Progress, Target, Waits};
use crate::buf::pool::{self, Lease};
use crate::sys::call::{RWF_DONTCACHE, Wait};
use crate::sys::transfer::PIPE_BUF;
use crate::sys::{call, transfer};

/// Maximum number of bytes per read or write: the kernel's own limit is 2 GiB less a page.
const CALL_MAX: usize = 1 << 30;
/// Value of `IORING_OP_READ` and `IORING_OP_WRITE` for the file position.
const NO_OFFSET: u64 = u64::MAX;
/// An offset that the kernel always refuses with `EINVAL`.
const BAD_OFFSET: u64 = 1 << 63;

/// Longer pieces are copied by a kernel thread, because the copy would delay the thread that enters the ring.
const INLINE_MAX: usize = 1 << 20;

pub(super) fn worker(len: usize) -> Flags {
    if len > INLINE_MAX { Flags::ASYNC } else { Flags::empty() }
}

pub(super) fn at_once(len: usize) -> usize {
    if len > INLINE_MAX { 0 } else { len }
}

/// Converts an offset for entries; `None` is the file position. Offsets that pread(2) refuses stay invalid, including
/// the value that denotes the position.
fn in_ring(offset: Option<u64>) -> u64 {
    offset.map_or(NO_OFFSET, |offset| if i64::try_from(offset).is_ok() { offset } else { BAD_OFFSET })
}

pub(super) fn piece(len: usize, done: usize, limit: usize) -> usize {
    (len - done).min(CALL_MAX).min(limit)
}

#[derive(Debug)]
pub(crate) struct Nop;

impl Operation for Nop {
    fn code(&self) -> u8 {
        opcode::Nop::CODE
    }

    fn entry(&mut self, _: &Files) -> Entry {
        opcode::Nop::new().build()
    }

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
    fn code(&self) -> u8 {
        opcode::Read::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.file.in_ring(files);
        let (at, want) = (in_ring(self.at()), piece(self.len, self.lease.len(), usize::MAX));
        let (start, len) = (self.lease.spare().as_mut_ptr(), want as u32);
        let how = if self.uncached { RWF_DONTCACHE as i32 } else { 0 };
        let entry = match files.buffer(start) {
            Some(index) => opcode::ReadFixed::new(fd, start, len, index).offset(at).rw_flags(how).build(),
            None => opcode::Read::new(fd, start, len).offset(at).rw_flags(how).build(),
        };
        entry.flags(flags | worker(want))
    }

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

    fn has_not_ended(&self) -> bool {
        self.at().is_some_and(|at| self.file.goes_on(at))
    }

    fn bytes_at_once(&self) -> usize {
        at_once(piece(self.len, self.lease.len(), usize::MAX))
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
    fn code(&self) -> u8 {
        opcode::Write::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.file.in_ring(files);
        let rest = &self.bytes[self.done..][..piece(self.bytes.len(), self.done, usize::MAX)];
        let at = in_ring(self.at());
        let (start, len) = (rest.as_ptr(), rest.len() as u32);
        let entry = match files.buffer(start) {
            Some(index) => opcode::WriteFixed::new(fd, start, len, index).offset(at).build(),
            None => opcode::Write::new(fd, start, len).offset(at).build(),
        };
        entry.flags(flags | worker(rest.len()))
    }

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

    fn bytes_at_once(&self) -> usize {
        at_once(piece(self.bytes.len(), self.done, usize::MAX))
    }
}
