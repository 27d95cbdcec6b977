//! Files in memory that are sealed exist on Linux only.

use std::io;

use super::fd::{BorrowedFd, OwnedFd};
use super::unsupported;

pub(crate) fn create() -> io::Result<OwnedFd> {
    Err(unsupported("frames are not shared"))
}

pub(crate) fn seal(_: BorrowedFd<'_>) -> io::Result<()> {
    Err(unsupported("frames are not shared"))
}

pub(crate) fn sealed_len(_: BorrowedFd<'_>) -> Result<u64, &'static str> {
    Err("portable build: frames are not shared")
}
