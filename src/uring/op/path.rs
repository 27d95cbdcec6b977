//! Operations on names: rename, remove, link.

use std::ffi::CString;
use std::io;

use io_uring::opcode;
use io_uring::squeue::Entry;
use rustix::fs::RenameFlags;

use super::open::Dir;
use super::{Files, Operation};
use crate::sys::path;

pub(crate) type Name = (Dir, CString);

#[derive(Debug)]
pub(crate) struct Rename {
    from: Name,
    to: Name,
    flags: RenameFlags,
}

impl Rename {
    /// Replaces an existing file without flags; `NOREPLACE` fails instead, `EXCHANGE` swaps the names.
    pub(crate) fn new(from: Name, to: Name, flags: RenameFlags) -> Self {
        Self { from, to, flags }
    }
}

impl Operation for Rename {
    fn code(&self) -> u8 {
        opcode::RenameAt::CODE
    }

    fn entry(&mut self, _: &Files) -> Entry {
        let ((from_dir, from), (to_dir, to)) = (&self.from, &self.to);
        let rename = opcode::RenameAt::new(from_dir.in_ring(), from.as_ptr(), to_dir.in_ring(), to.as_ptr());
        rename.flags(self.flags.bits()).build()
    }

    fn perform(&mut self, _: &mut Files, _: usize) -> io::Result<u32> {
        let ((from_dir, from), (to_dir, to)) = (&self.from, &self.to);
        path::rename_blocking((from_dir.as_fd(), from), (to_dir.as_fd(), to), self.flags).map(|()| 0)
    }
}

#[derive(Debug)]
pub(crate) struct Unlink(Name);

impl Unlink {
    pub(crate) fn new(name: Name) -> Self {
        Self(name)
    }
}

impl Operation for Unlink {
    fn code(&self) -> u8 {
        opcode::UnlinkAt::CODE
    }

    fn entry(&mut self, _: &Files) -> Entry {
        let (dir, path) = &self.0;
        opcode::UnlinkAt::new(dir.in_ring(), path.as_ptr()).build()
    }

    fn perform(&mut self, _: &mut Files, _: usize) -> io::Result<u32> {
        let (dir, path) = &self.0;
        path::unlink_blocking(dir.as_fd(), path).map(|()| 0)
    }
}

#[derive(Debug)]
pub(crate) struct Link {
    from: Name,
    to: Name,
}

impl Link {
    pub(crate) fn new(from: Name, to: Name) -> Self {
        Self { from, to }
    }
}

impl Operation for Link {
    fn code(&self) -> u8 {
        opcode::LinkAt::CODE
    }

    fn entry(&mut self, _: &Files) -> Entry {
        let ((from_dir, from), (to_dir, to)) = (&self.from, &self.to);
        opcode::LinkAt::new(from_dir.in_ring(), from.as_ptr(), to_dir.in_ring(), to.as_ptr()).build()
    }

    fn perform(&mut self, _: &mut Files, _: usize) -> io::Result<u32> {
        let ((from_dir, from), (to_dir, to)) = (&self.from, &self.to);
        path::link_blocking((from_dir.as_fd(), from), (to_dir.as_fd(), to)).map(|()| 0)
    }
}
