//! Reading and writing many pieces of memory on a ring.

#![allow(unsafe_code)]

use std::fmt;

use io_uring::opcode;
use io_uring::squeue::Entry;

use super::super::rw::submit::{at_once, worker};
use super::super::submit::Submit;
use super::{Files, Operation, ReadVectored, WriteVectored};

/// The list of pieces that the kernel reads. It is on the heap, so that the operation may move.
#[derive(Default)]
pub(super) struct Vector(Vec<libc::iovec>);

// SAFETY: only the kernel follows the pointers; they point to memory owned by the operation, which is `Send`.
unsafe impl Send for Vector {}
// SAFETY: as for Send.
unsafe impl Sync for Vector {}

impl fmt::Debug for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Vector").field(&self.0.len()).finish()
    }
}

impl Vector {
    /// Lists the pieces. Returns the address of the list, the number of pieces, and the number of bytes.
    fn set(&mut self, pieces: impl Iterator<Item = (*mut u8, usize)>) -> (*const libc::iovec, u32, usize) {
        self.0.clear();
        self.0.extend(pieces.map(|(start, len)| libc::iovec { iov_base: start.cast(), iov_len: len }));
        (self.0.as_ptr(), self.0.len() as u32, self.0.iter().map(|piece| piece.iov_len).sum())
    }
}

impl Submit for ReadVectored {
    fn code(&self) -> u8 {
        opcode::Readv::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.file.in_ring(files);
        let at = self.offset + self.bytes();
        let rest = Self::rest(&mut self.pieces).map(|(left, lease)| (lease.spare().as_mut_ptr(), left));
        let (start, count, len) = self.vector.set(rest);
        opcode::Readv::new(fd, start, count).offset(at).build().flags(flags | worker(len))
    }

    fn has_not_ended(&self) -> bool {
        self.file.goes_on(self.offset + self.bytes())
    }

    fn bytes_at_once(&self) -> usize {
        at_once(self.pieces.iter().map(|(len, lease)| len - lease.len()).sum())
    }
}

impl Submit for WriteVectored {
    fn code(&self) -> u8 {
        opcode::Writev::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.file.in_ring(files);
        let rest = Self::rest(&self.pieces, self.done).map(|piece| (piece.as_ptr().cast_mut(), piece.len()));
        let (start, count, len) = self.vector.set(rest);
        opcode::Writev::new(fd, start, count).offset(self.offset + self.done).build().flags(flags | worker(len))
    }

    fn bytes_at_once(&self) -> usize {
        at_once((self.len() - self.done) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Target;
    use super::*;
    use bytes::Bytes;
    use std::sync::Arc;

    #[test]
    fn an_entry_lists_no_more_pieces_than_one_call_takes() {
        let file: Target = Arc::new(std::fs::File::open("/dev/null").unwrap()).into();
        let mut write = WriteVectored::new(file.clone(), 0, vec![Bytes::from_static(b"x"); 3000]);
        let mut read = ReadVectored::new(file, 0, &[1; 3000]);
        for (done, left) in [(0, 1024), (1500, 1024), (2990, 10)] {
            write.done = done;
            read.pieces.truncate(3000 - done as usize);
            write.entry(&Files::default());
            read.entry(&Files::default());
            assert_eq!((write.vector.0.len(), read.vector.0.len()), (left, left));
        }
    }
}
