//! Calls on files with several pieces of memory, and calls on their length. Each call uses only one piece. **All of
//! them may wait for the disk.**

use std::io::{self, IoSlice, IoSliceMut};

use super::fd::BorrowedFd;
use super::flags::FallocateFlags;
use super::{borrow, file, unsupported};

pub(crate) fn read_pieces(file: BorrowedFd<'_>, pieces: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
    match pieces.iter_mut().find(|piece| !piece.is_empty()) {
        Some(piece) => file::read_piece(&borrow::file(file), piece, offset),
        None => Ok(0),
    }
}

pub(crate) fn write_pieces(file: BorrowedFd<'_>, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    match pieces.iter().find(|piece| !piece.is_empty()) {
        Some(piece) => file::write_piece(&borrow::file(file), piece, offset),
        None => Ok(0),
    }
}

pub(crate) fn allocate(_: BorrowedFd<'_>, _: FallocateFlags, _: u64, _: u64) -> io::Result<()> {
    Err(unsupported("no space on the disk is reserved"))
}

/// Truncates the file, or extends it with zeros.
pub(crate) fn set_len(file: BorrowedFd<'_>, len: u64) -> io::Result<()> {
    borrow::file(file).set_len(len)
}
