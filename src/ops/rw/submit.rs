//! Reading and writing one piece of memory on a ring.

use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};

use super::super::submit::Submit;
use super::{Files, Nop, Read, Write, piece};
use crate::sys::call::RWF_DONTCACHE;

/// Value of `IORING_OP_READ` and `IORING_OP_WRITE` for the file position.
const NO_OFFSET: u64 = u64::MAX;
/// An offset that the kernel always refuses with `EINVAL`.
const BAD_OFFSET: u64 = 1 << 63;

/// Longer pieces are copied by a kernel thread, because the copy would delay the thread that enters the ring.
const INLINE_MAX: usize = 1 << 20;

pub(in super::super) fn worker(len: usize) -> Flags {
    if len > INLINE_MAX { Flags::ASYNC } else { Flags::empty() }
}

pub(in super::super) fn at_once(len: usize) -> usize {
    if len > INLINE_MAX { 0 } else { len }
}

/// Converts an offset for entries; `None` is the file position. Offsets that pread(2) refuses stay invalid, including
/// the value that denotes the position.
fn in_ring(offset: Option<u64>) -> u64 {
    offset.map_or(NO_OFFSET, |offset| if i64::try_from(offset).is_ok() { offset } else { BAD_OFFSET })
}

impl Submit for Nop {
    fn code(&self) -> u8 {
        opcode::Nop::CODE
    }

    fn entry(&mut self, _: &Files) -> Entry {
        opcode::Nop::new().build()
    }
}

impl Submit for Read {
    fn code(&self) -> u8 {
        opcode::Read::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.file.in_ring(files);
        let (at, want) = (in_ring(self.at()), piece(self.len, self.lease.len(), usize::MAX));
        let (start, len) = (self.lease.spare().as_mut_ptr(), want as u32);
        let how = if self.uncached { RWF_DONTCACHE as i32 } else { 0 };
        opcode::Read::new(fd, start, len).offset(at).rw_flags(how).build().flags(flags | worker(want))
    }

    fn has_not_ended(&self) -> bool {
        self.at().is_some_and(|at| self.file.goes_on(at))
    }

    fn bytes_at_once(&self) -> usize {
        at_once(piece(self.len, self.lease.len(), usize::MAX))
    }
}

impl Submit for Write {
    fn code(&self) -> u8 {
        opcode::Write::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.file.in_ring(files);
        let rest = &self.bytes[self.done..][..piece(self.bytes.len(), self.done, usize::MAX)];
        let at = in_ring(self.at());
        let (start, len) = (rest.as_ptr(), rest.len() as u32);
        opcode::Write::new(fd, start, len).offset(at).build().flags(flags | worker(rest.len()))
    }

    fn bytes_at_once(&self) -> usize {
        at_once(piece(self.bytes.len(), self.done, usize::MAX))
    }
}
