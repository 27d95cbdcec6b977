//! Reading and writing many pieces of memory at one file offset.

use std::io::{self, IoSlice, IoSliceMut};

use bytes::Bytes;

use super::{Files, Operation, Progress, Target};
use crate::buf::pool::{self, Lease};
use crate::sys::vectored;
use crate::sys::vectored::PIECES_MAX;

#[cfg(uring)]
mod submit;

/// Reads consecutive pieces of given lengths from `offset` into pool memory; fewer bytes only at the end of the file.
#[derive(Debug)]
pub(crate) struct ReadVectored {
    file: Target,
    offset: u64,
    pieces: Vec<(usize, Lease)>,
    #[cfg(uring)]
    vector: submit::Vector,
}

impl ReadVectored {
    pub(crate) fn new(file: Target, offset: u64, lens: &[usize]) -> Self {
        let pieces = lens.iter().map(|&len| (len, pool::lease(len))).collect();
        Self {
            file,
            offset,
            pieces,
            #[cfg(uring)]
            vector: submit::Vector::default(),
        }
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
}

#[derive(Debug)]
pub(crate) struct WriteVectored {
    file: Target,
    offset: u64,
    /// Kept whole until the operation is dropped: they may be the memory of users.
    pieces: Vec<Bytes>,
    done: u64,
    #[cfg(uring)]
    vector: submit::Vector,
}

impl WriteVectored {
    pub(crate) fn new(file: Target, offset: u64, pieces: Vec<Bytes>) -> Self {
        Self {
            file,
            offset,
            pieces,
            done: 0,
            #[cfg(uring)]
            vector: submit::Vector::default(),
        }
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
}
