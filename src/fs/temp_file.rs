//! A temporary file: the new version of a file until it is renamed to the file's name.
//!
//! ```text
//!  O_TMPFILE ─▶ write ─▶ owner, attributes, mode ─▶ fsync ─▶ link beside the old file ─▶ rename ─▶ fsync directory
//! ```
//!
//! Until it is linked, the file has no name, and the kernel removes it when the process dies. Between `link` and
//! `rename`, or from the start without `O_TMPFILE` or `/proc`, its name is `.NAME.millstream-N`. If the process is
//! killed then, the file remains.
//!
//! **Leftovers.** N is a slot, 0 to 7, so the next change of the same file finds leftovers without listing the
//! directory. The [lock](lock::try_lock) marks the file of a living writer: a writer holds it from before the file has
//! a name until the name is gone, and the kernel releases it when the writer dies. If all slots are taken the name ends
//! in 16 random digits, so occupied names cannot block a replace; such a file is not swept.
//!
//! Invariants:
//! 1. A call gives a name to a temporary file only if the name is unused, even by a symbolic link.
//! 2. A slot is emptied only by its writer, or by a sweeper that holds the lock of the file in it and has checked,
//!    after taking the lock, that the file is still there. So the name cannot have been given to another file in
//!    between.
//! 3. A writer that finds its file locked by a sweeper, or its name gone, uses another name.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;

use super::error::{Result, Step};
use super::target::Target;
use super::work::Caller;
use super::{Durability, Metadata};
use crate::sys::call;
use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, BorrowedFd, OwnedFd};
use crate::sys::file;
use crate::sys::file::Access;
use crate::sys::lock::{self, Locked};
use crate::sys::path;

const SLOTS: usize = 8;
/// Number of random names tried after the slots. A second collision means a broken file system.
const RANDOM: usize = 8;
/// Maximum length of the target's name in the temporary name, which stays within the 255 bytes that Linux allows.
const STEM_MAX: usize = 200;

/// A file that will replace its target. Dropping it removes it.
#[derive(Debug)]
pub(super) struct TempFile {
    target: Target,
    fd: OwnedFd,
    /// `None` while it has no name, and again after the rename.
    name: Option<OsString>,
}

impl TempFile {
    /// Sweeps leftovers of dead writers and creates a file with the permissions `mode` less the umask.
    pub(super) fn new(target: Target, mode: u32) -> Result<Self> {
        sweep(&target);
        if let Ok(fd) = file::create_unnamed(target.dir(), mode)
            && file::is_linkable(fd.as_fd())
        {
            // Without lock support sweepers get no lock either and remove nothing.
            let _ = lock::try_lock(fd.as_fd());
            return Ok(Self { target, fd, name: None });
        }
        // Any error: if it also applies to named files, creating one returns it.
        let (fd, name) = create_named(&target, mode)?;
        Ok(Self { target, fd, name: Some(name) })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Writes the pieces at `offset`, and returns their length.
    pub(super) fn write(&self, pieces: &[impl AsRef<[u8]>], offset: u64, caller: &Caller) -> Result<u64> {
        let mut at = offset;
        caller.write(&self.target, self.fd(), pieces, &mut at)?;
        Ok(at - offset)
    }

    /// Renames it over its target, with the guarantee of `durability`, if `still` succeeds just before. An error before
    /// the rename leaves the target unchanged and removes the temporary file. Syncs the directory last.
    pub(super) fn publish(
        self,
        durability: Durability,
        caller: &Caller,
        still: impl FnOnce(&Target) -> Result<()>,
    ) -> Result<()> {
        self.name_it(durability, caller, still, Self::rename)
    }

    /// Does the same as [`publish`](Self::publish), but fails with `EEXIST` if the name is in use.
    pub(super) fn publish_new(self, durability: Durability, caller: &Caller) -> Result<()> {
        self.name_it(durability, caller, |_| Ok(()), Self::take_name)
    }

    fn name_it(
        mut self,
        durability: Durability,
        caller: &Caller,
        still: impl FnOnce(&Target) -> Result<()>,
        name: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        if durability != Durability::None {
            file::sync(self.fd()).map_err(self.target.at(Step::Sync))?;
        }
        caller.waits(&self.target)?;
        still(&self.target)?;
        name(&mut self)?;
        // Later users of the file must not find it locked. The only error is a closed descriptor.
        let _ = lock::unlock(self.fd());
        self.target.sync_name(durability)
    }

    fn rename(&mut self) -> Result<()> {
        let name = match self.name.take() {
            Some(name) => name,
            None => self.link()?,
        };
        let name = self.name.insert(name);
        file::rename_at(self.target.dir(), name, self.target.name()).map_err(self.target.at(Step::Rename))?;
        self.name = None;
        Ok(())
    }

    fn take_name(&mut self) -> Result<()> {
        let (dir, to) = (self.target.dir(), self.target.name());
        match &self.name {
            None => file::link_at(self.fd(), dir, to).map_err(self.target.at(Step::Link))?,
            Some(name) => file::rename_new_at(dir, name, to).map_err(self.target.at(Step::Rename))?,
        }
        self.name = None;
        Ok(())
    }

    fn link(&self) -> Result<OsString> {
        for name in names(self.target.name()) {
            match file::link_at(self.fd(), self.target.dir(), &name) {
                Err(e) if exists(&e) => {}
                linked => return linked.map(|()| name).map_err(self.target.at(Step::Link)),
            }
        }
        Err(self.target.at(Step::Link)(taken()))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // An error is ignored: the next change of the file tries again.
            let _ = file::unlink_at(self.target.dir(), name);
        }
    }
}

fn create_named(target: &Target, mode: u32) -> Result<(OwnedFd, OsString)> {
    for name in names(target.name()) {
        let fd = match file::create_at(target.dir(), &name, Access::Change, mode) {
            Err(e) if exists(&e) => continue,
            fd => fd.map_err(target.at(Step::Create))?,
        };
        if is_ours(fd.as_fd()).map_err(target.at(Step::Create))? {
            return Ok((fd, name));
        }
    }
    Err(target.at(Step::Create)(taken()))
}

/// Returns whether a created file is still there and locked by this writer. A sweeper may have found it unlocked.
fn is_ours(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(lock::try_lock(fd).unwrap_or(true) && call::status(fd)?.stx_nlink > 0)
}

/// Removes temporary files of dead writers. Never fails: a file that cannot be removed keeps its slot.
fn sweep(target: &Target) {
    for slot in 0..SLOTS {
        let _ = sweep_slot(target, &slot_name(target.name(), slot));
    }
}

fn sweep_slot(target: &Target, name: &OsStr) -> io::Result<()> {
    sweep_opened(target, name, file::open_at(target.dir(), name, Access::Read)?)
}

fn sweep_opened(target: &Target, name: &OsStr, fd: OwnedFd) -> io::Result<()> {
    let found = Metadata::new(&call::status(fd.as_fd())?);
    if found.is_file()
        && let Some(_locked) = Locked::try_new(fd)?
    {
        let named = Metadata::new(&call::status_at(target.dir(), Path::new(name))?);
        if named.is_same_file(&found) {
            file::unlink_at(target.dir(), name)?;
        }
    }
    Ok(())
}

fn names(target: &OsStr) -> impl Iterator<Item = OsString> {
    let random = || RandomState::new().hash_one(SLOTS);
    let slots = (0..SLOTS).map(move |slot| slot_name(target, slot));
    slots.chain((0..RANDOM).map(move |_| temp_name(target, &format!("{:016x}", random()))))
}

fn slot_name(target: &OsStr, slot: usize) -> OsString {
    temp_name(target, &slot.to_string())
}

fn temp_name(target: &OsStr, end: &str) -> OsString {
    let mut name = OsString::from(".");
    name.push(path::beginning(target, STEM_MAX));
    name.push(".millstream-");
    name.push(end);
    name
}

fn exists(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EXIST.raw_os_error())
}

fn taken() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "all temporary names are in use; remove the files .NAME.millstream-*")
}

#[cfg(test)]
mod tests;
