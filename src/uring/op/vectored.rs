//! Reading and writing many pieces of memory at one file offset.

#![allow(unsafe_code)]

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};

use bytes::Bytes;
use io_uring::opcode;
use io_uring::squeue::Entry;

use super::rw::{at_once, worker};
use super::{Files, Operation, Progress, Target};
use crate::buf::pool::{self, Lease};
use crate::sys::vectored;
use crate::sys::vectored::PIECES_MAX;

/// The list of pieces that the kernel reads. It is on the heap, so that the operation may move.
#[derive(Default)]
struct Vector(Vec<libc::iovec>);

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

/// Reads consecutive pieces of given lengths from `offset` into pool memory; fewer bytes only at the end of the file.
#[derive(Debug)]
pub(crate) struct ReadVectored {
    file: Target,
    offset: u64,
    pieces: Vec<(usize, Lease)>,
    vector: Vector,
}

impl ReadVectored {
    pub(crate) fn new(file: Target, offset: u64, lens: &[usize]) -> Self {
        let pieces = lens.iter().map(|&len| (len, pool::lease(len))).collect();
        Self { file, offset, pieces, vector: Vector::default() }
    }

    /// Returns one piece per length; pieces beyond the end of the file are empty.
    pub(crate) fn into_pieces(self) -> Vec<Bytes> {
        self.pieces.into_iter().map(|(_, lease)| lease.freeze()).collect()
    }

    fn rest(pieces: &mut [(usize, Lease)]) -> impl Iterator<Item = (usize, &mut Lease)> {
        let rest = pieces.iter_mut().map(|(len, lease)| (*len - lease.len(), lease));
        rest.filter(|(left, _)| *left > 0).take(PIECES_MAX)
    }
}

impl Operation for ReadVectored {
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

    fn perform(&mut self, files: &mut Files, limit: usize) -> io::Result<u32> {
        let at = self.offset + self.bytes();
        let mut room = limit;
        let rest = Self::rest(&mut self.pieces).map_while(|(left, lease)| {
            let len = left.min(room);
            room -= len;
            (len > 0).then(|| IoSliceMut::new(&mut lease.spare()[..len]))
        });
        let mut rest: Vec<_> = rest.collect();
        Ok(vectored::read_pieces(self.file.as_fd(files)?, &mut rest, at)? as u32)
    }

    fn advance(&mut self, n: u32) -> Progress {
        let mut left = n as usize;
        for (room, lease) in Self::rest(&mut self.pieces) {
            let here = room.min(left);
            lease.advance(here);
            left -= here;
        }
        match n {
            _ if Self::rest(&mut self.pieces).next().is_none() => Progress::Done,
            0 => Progress::End,
            _ => Progress::More,
        }
    }

    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, lease)| lease.len() as u64).sum()
    }

    fn has_not_ended(&self) -> bool {
        self.file.goes_on(self.offset + self.bytes())
    }

    fn bytes_at_once(&self) -> usize {
        at_once(self.pieces.iter().map(|(len, lease)| len - lease.len()).sum())
    }
}

#[derive(Debug)]
pub(crate) struct WriteVectored {
    file: Target,
    offset: u64,
    /// Kept whole until the operation is dropped: they may be the memory of users.
    pieces: Vec<Bytes>,
    done: u64,
    vector: Vector,
}

impl WriteVectored {
    pub(crate) fn new(file: Target, offset: u64, pieces: Vec<Bytes>) -> Self {
        Self { file, offset, pieces, done: 0, vector: Vector::default() }
    }

    fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    fn rest(pieces: &[Bytes], done: u64) -> impl Iterator<Item = &[u8]> {
        let mut done = done;
        let rest = pieces.iter().map(move |piece| {
            let skip = done.min(piece.len() as u64);
            done -= skip;
            &piece[skip as usize..]
        });
        rest.filter(|piece| !piece.is_empty()).take(PIECES_MAX)
    }
}

impl Operation for WriteVectored {
    fn code(&self) -> u8 {
        opcode::Writev::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.file.in_ring(files);
        let rest = Self::rest(&self.pieces, self.done).map(|piece| (piece.as_ptr().cast_mut(), piece.len()));
        let (start, count, len) = self.vector.set(rest);
        opcode::Writev::new(fd, start, count).offset(self.offset + self.done).build().flags(flags | worker(len))
    }

    fn perform(&mut self, files: &mut Files, limit: usize) -> io::Result<u32> {
        let mut room = limit;
        let rest = Self::rest(&self.pieces, self.done).map_while(|piece| {
            let len = piece.len().min(room);
            room -= len;
            (len > 0).then(|| IoSlice::new(&piece[..len]))
        });
        let rest: Vec<_> = rest.collect();
        Ok(vectored::write_pieces(self.file.as_fd(files)?, &rest, self.offset + self.done)? as u32)
    }

    fn advance(&mut self, n: u32) -> Progress {
        self.done += u64::from(n);
        match n {
            _ if self.done >= self.len() => Progress::Done,
            0 => Progress::End,
            _ => Progress::More,
        }
    }

    fn bytes(&self) -> u64 {
        self.done
    }

    fn bytes_at_once(&self) -> usize {
        at_once((self.len() - self.done) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
