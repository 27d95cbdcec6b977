//! Moving bytes between descriptors on a ring.

use io_uring::squeue::Entry;
use io_uring::{opcode, types};
use rustix::pipe::SpliceFlags;

use super::super::rw::piece;
use super::super::submit::Submit;
use super::{Files, Send, Splice, Target};

/// Value of `IORING_OP_SPLICE` for the file position, and for pipes.
const NO_OFFSET: i64 = -1;

impl Submit for Splice {
    fn code(&self) -> u8 {
        opcode::Splice::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let offset = |side| self.at(side).map_or(NO_OFFSET, u64::cast_signed);
        let (from_at, to_at) = (offset(&self.from), offset(&self.to));
        let (to, flags) = self.to.0.in_ring(files);
        let len = piece(self.len, self.done, usize::MAX) as u32;
        let splice = match &self.from.0 {
            Target::Opened(n) => opcode::Splice::new(types::Fixed(files.slot(*n)), from_at, to, to_at, len),
            from => opcode::Splice::new(from.in_ring(files).0, from_at, to, to_at, len),
        };
        splice.flags(SpliceFlags::NONBLOCK.bits()).build().flags(flags)
    }
}

impl Submit for Send {
    fn code(&self) -> u8 {
        opcode::Send::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.socket.in_ring(files);
        let rest = &self.bytes[self.done..][..piece(self.bytes.len(), self.done, usize::MAX)];
        let send = opcode::Send::new(fd, rest.as_ptr(), rest.len() as u32);
        send.flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL).build().flags(flags)
    }

    fn bytes_at_once(&self) -> usize {
        piece(self.bytes.len(), self.done, usize::MAX)
    }
}
