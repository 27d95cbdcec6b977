//! Reading and writing at an offset: one piece or many.

use std::io;

use bytes::Bytes;
use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};

use super::{Files, Operation, Progress, Target};
use crate::buf::pool::{self, Lease};
use crate::kernel::call;

/// Most bytes one read or write moves: the kernel's own limit is 2 GiB less a page.
const CALL_MAX: usize = 1 << 30;

/// Longer pieces are copied by a thread of the kernel: whoever enters the ring would be held up for too long.
const INLINE_MAX: usize = 1 << 20;

/// How an entry for `len` bytes is to be worked on.
pub(super) fn worker(len: usize) -> Flags {
    if len > INLINE_MAX { Flags::ASYNC } else { Flags::empty() }
}

/// The next piece of `len` bytes of which `done` are done.
fn piece(len: usize, done: usize, limit: usize) -> usize {
    (len - done).min(CALL_MAX).min(limit)
}

/// Nothing, there and back.
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

/// Reads `len` bytes from `offset` into pool memory, fewer only at the end of the file.
#[derive(Debug)]
pub(crate) struct Read {
    file: Target,
    offset: u64,
    len: usize,
    lease: Lease,
}

impl Read {
    pub(crate) fn new(file: Target, offset: u64, len: usize) -> Self {
        Self::resume(file, offset, len, pool::lease(len))
    }

    /// As [`new`](Self::new), of which `lease` holds the first bytes already; it has room for `len` bytes.
    pub(crate) fn resume(file: Target, offset: u64, len: usize, lease: Lease) -> Self {
        Self { file, offset, len, lease }
    }

    /// What was read.
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
        let (at, want) = (self.offset + self.lease.len() as u64, piece(self.len, self.lease.len(), usize::MAX));
        let (start, len) = (self.lease.spare_ptr(), want as u32);
        let entry = match files.buffer(start) {
            Some(index) => opcode::ReadFixed::new(fd, start, len, index).offset(at).build(),
            None => opcode::Read::new(fd, start, len).offset(at).build(),
        };
        entry.flags(flags | worker(want))
    }

    fn perform(&mut self, files: &mut Files, limit: usize) -> io::Result<u32> {
        let file = self.file.as_fd(files)?;
        let (at, want) = (self.offset + self.lease.len() as u64, piece(self.len, self.lease.len(), limit));
        Ok(call::read_blocking(file, self.lease.spare_first(want), at)? as u32)
    }

    fn advance(&mut self, n: u32) -> Progress {
        self.lease.advance(n as usize);
        match n {
            _ if self.lease.len() >= self.len => Progress::Done,
            0 => Progress::End,
            _ => Progress::More,
        }
    }

    fn bytes(&self) -> u64 {
        self.lease.len() as u64
    }
}

/// Writes all of `bytes` at `offset`.
#[derive(Debug)]
pub(crate) struct Write {
    file: Target,
    offset: u64,
    bytes: Bytes,
    done: usize,
}

impl Write {
    pub(crate) fn new(file: Target, offset: u64, bytes: Bytes) -> Self {
        Self { file, offset, bytes, done: 0 }
    }
}

impl Operation for Write {
    fn code(&self) -> u8 {
        opcode::Write::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.file.in_ring(files);
        let rest = &self.bytes[self.done..][..piece(self.bytes.len(), self.done, usize::MAX)];
        let at = self.offset + self.done as u64;
        let (start, len) = (rest.as_ptr(), rest.len() as u32);
        let entry = match files.buffer(start) {
            Some(index) => opcode::WriteFixed::new(fd, start, len, index).offset(at).build(),
            None => opcode::Write::new(fd, start, len).offset(at).build(),
        };
        entry.flags(flags | worker(rest.len()))
    }

    fn perform(&mut self, files: &mut Files, limit: usize) -> io::Result<u32> {
        let rest = &self.bytes[self.done..][..piece(self.bytes.len(), self.done, limit)];
        Ok(call::write_blocking(self.file.as_fd(files)?, rest, self.offset + self.done as u64)? as u32)
    }

    fn advance(&mut self, n: u32) -> Progress {
        self.done += n as usize;
        match n {
            _ if self.done >= self.bytes.len() => Progress::Done,
            0 => Progress::End,
            _ => Progress::More,
        }
    }

    fn bytes(&self) -> u64 {
        self.done as u64
    }
}
