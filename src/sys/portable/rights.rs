//! Descriptors are sent over Unix sockets on Linux only: elsewhere there are no sealed files to send.

use std::collections::VecDeque;
use std::io;

use super::fd::{BorrowedFd, OwnedFd};
use super::unsupported;

pub(crate) fn send(_: BorrowedFd<'_>, _: &[u8], _: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    Err(unsupported("frames are not shared"))
}

pub(crate) fn receive(_: BorrowedFd<'_>, _: &mut [u8], _: &mut VecDeque<OwnedFd>) -> io::Result<usize> {
    Err(unsupported("frames are not shared"))
}

pub(crate) fn shut_down(_: BorrowedFd<'_>) {}
