//! The kernel makes TLS records on Linux only.

use std::io;

use super::fd::BorrowedFd;
use super::tls_keys::Keys;
use super::unsupported;

const WHY: &str = "the kernel makes no TLS records";

pub(crate) fn encrypt(_: BorrowedFd<'_>, _: &Keys) -> io::Result<()> {
    Err(unsupported(WHY))
}

pub(crate) fn send_record(_: BorrowedFd<'_>, _: u8, _: &[u8]) -> io::Result<usize> {
    Err(unsupported(WHY))
}

pub(crate) fn make_room(_: BorrowedFd<'_>) {}

pub(crate) fn send_last_record(_: BorrowedFd<'_>, _: u8, _: &[u8]) -> io::Result<usize> {
    Err(unsupported(WHY))
}

pub(crate) fn replaces_keys() -> bool {
    false
}
