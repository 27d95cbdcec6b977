//! Operations on names: rename, remove, link.

use std::io;

use super::open::Dir;
use super::{Files, Operation};
use crate::sys::flags::RenameFlags;
use crate::sys::path;
use crate::sys::path::NameBuf;

#[cfg(uring)]
mod submit;

pub(crate) type Name = (Dir, NameBuf);

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
    fn perform(&mut self, _: &mut Files, _: usize) -> io::Result<u32> {
        let ((from_dir, from), (to_dir, to)) = (&self.from, &self.to);
        path::rename_blocking((from_dir.at(), from), (to_dir.at(), to), self.flags).map(|()| 0)
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
    fn perform(&mut self, _: &mut Files, _: usize) -> io::Result<u32> {
        let (dir, path) = &self.0;
        path::unlink_blocking(dir.at(), path).map(|()| 0)
    }
}

#[derive(Debug)]
pub(crate) struct HardLink {
    from: Name,
    to: Name,
}

impl HardLink {
    pub(crate) fn new(from: Name, to: Name) -> Self {
        Self { from, to }
    }
}

impl Operation for HardLink {
    fn perform(&mut self, _: &mut Files, _: usize) -> io::Result<u32> {
        let ((from_dir, from), (to_dir, to)) = (&self.from, &self.to);
        path::link_blocking((from_dir.at(), from), (to_dir.at(), to)).map(|()| 0)
    }
}
