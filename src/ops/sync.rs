//! Operations on a whole file: sync, allocate, set the length.

use std::io;

use super::{Files, Operation, Target};
use crate::sys::flags::FallocateFlags;
use crate::sys::{file, vectored};

#[cfg(uring)]
mod submit;

#[derive(Debug)]
pub(crate) struct Sync {
    file: Target,
    /// Whether to skip times and other metadata that is not needed to read the data.
    data_only: bool,
}

impl Sync {
    pub(crate) fn new(file: Target, data_only: bool) -> Self {
        Self { file, data_only }
    }
}

impl Operation for Sync {
    fn perform(&mut self, files: &mut Files, _: usize) -> io::Result<u32> {
        let file = self.file.as_fd(files)?;
        if self.data_only { file::sync_data(file) } else { file::sync(file) }.map(|()| 0)
    }
}

/// Allocates, punches or zeroes a range of a file, like fallocate(2) with this mode.
#[derive(Debug)]
pub(crate) struct Allocate {
    file: Target,
    mode: FallocateFlags,
    offset: u64,
    len: u64,
}

impl Allocate {
    pub(crate) fn new(file: Target, mode: FallocateFlags, offset: u64, len: u64) -> Self {
        Self { file, mode, offset, len }
    }
}

impl Operation for Allocate {
    fn perform(&mut self, files: &mut Files, _: usize) -> io::Result<u32> {
        vectored::allocate(self.file.as_fd(files)?, self.mode, self.offset, self.len).map(|()| 0)
    }
}

/// Truncates the file, or extends it with zeros. On a ring since Linux 6.9.
#[derive(Debug)]
pub(crate) struct SetLen {
    file: Target,
    len: u64,
}

impl SetLen {
    pub(crate) fn new(file: Target, len: u64) -> Self {
        Self { file, len }
    }
}

impl Operation for SetLen {
    fn perform(&mut self, files: &mut Files, _: usize) -> io::Result<u32> {
        vectored::set_len(self.file.as_fd(files)?, self.len).map(|()| 0)
    }
}
