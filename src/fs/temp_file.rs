//! A new version of a file, whole before it has the name.
//!
//! ```text
//!  O_TMPFILE ─▶ write ─▶ owner, attributes, mode ─▶ fsync ─▶ link beside the old file ─▶ rename over it ─▶ fsync directory
//! ```
//!
//! Until it is linked the draft has no name, and the kernel removes it with the process. Between `link` and `rename`, or
//! from the start where there is no `O_TMPFILE` or no `/proc`, it is called `.NAME.millstream-N`, and a process that is
//! killed leaves it there.
//!
//! **Leftovers.** N is a slot, 0 to 7, so the next change of the same file finds what is left without listing the
//! directory, which may be large. What tells a leftover from the draft of a living writer is its
//! [lock](file::try_lock): a writer holds it from before the draft has a name until the name is gone, and the kernel
//! gives it back when the writer dies. With all slots taken the name ends in 16 random digits, so nobody who may write
//! to the directory can stop a replace by occupying names; such a draft is not swept.
//!
//! Invariants:
//! 1. A name is only ever given to a draft by a call that fails if anything has it, be it a symbolic link.
//! 2. A slot is emptied only by its writer, or by somebody who holds the lock of what is in it and has looked, after
//!    taking the lock, that it still is. So the name cannot have been given to another draft in between.
//! 3. A writer that meets the lock of a sweeper, or finds its name gone, takes another.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::io::Errno;

use super::error::{Result, Step};
use super::target::Target;
use super::work::Caller;
use super::{Durability, Status};
use crate::sys::call;
use crate::sys::call::IOV_LIMIT;
use crate::sys::file;
use crate::sys::file::Access;

const SLOTS: usize = 8;
/// Random names tried after the slots. Meeting a second one that exists takes luck, or a file system that is broken.
const RANDOM: usize = 8;
/// Of the target's name in the draft's: with what is around it, at most the 255 bytes that Linux allows.
const STEM_MAX: usize = 200;
/// Bytes of one write, between looks at whether somebody waits.
const PIECE: usize = 8 << 20;

/// A file that is about to take the place of its target. Dropping it removes it.
#[derive(Debug)]
pub(super) struct TempFile {
    target: Target,
    fd: OwnedFd,
    /// `None` while it has no name, and again when it has its target's.
    name: Option<OsString>,
}

impl TempFile {
    /// Sweeps what dead writers left and makes a file with the permissions `mode` less the umask.
    pub(super) fn new(target: Target, mode: u32) -> Result<Self> {
        sweep(&target);
        if let Ok(fd) = file::create_unnamed(target.dir(), mode)
            && file::is_linkable(fd.as_fd())
        {
            // Where there are no locks, sweepers get none either and leave everything alone.
            let _ = file::try_lock(fd.as_fd());
            return Ok(Self { target, fd, name: None });
        }
        // Whatever it was: if it concerns named files too, they say so.
        let (fd, name) = create_named(&target, mode)?;
        Ok(Self { target, fd, name: Some(name) })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Writes all of `pieces` one after the other from `offset` on. Returns how many bytes that was.
    pub(super) fn write(&self, pieces: &[impl AsRef<[u8]>], offset: u64, caller: &Caller) -> Result<u64> {
        let mut written = 0;
        for pieces in pieces.chunks(IOV_LIMIT) {
            let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece.as_ref())).collect();
            let mut rest = &mut slices[..];
            // Pieces without bytes are no call.
            IoSlice::advance_slices(&mut rest, 0);
            while let [first, ..] = rest {
                caller.waits(&self.target)?;
                let long = [IoSlice::new(&first[..first.len().min(PIECE)])];
                let now = if first.len() > PIECE { &long[..] } else { &*rest };
                let n = file::write_at(self.fd(), now, offset + written).map_err(self.target.at(Step::Write))?;
                written += n as u64;
                IoSlice::advance_slices(&mut rest, n);
            }
        }
        Ok(written)
    }

    /// Puts it in the place of its target, with what `durability` promises, if `still` has nothing against it in the last
    /// moment. On an error before that the target is as it was and the draft is gone; the directory is synced last.
    pub(super) fn publish(
        mut self,
        durability: Durability,
        caller: &Caller,
        still: impl FnOnce(&Target) -> Result<()>,
    ) -> Result<()> {
        if durability != Durability::None {
            file::sync(self.fd()).map_err(self.target.at(Step::Sync))?;
        }
        caller.waits(&self.target)?;
        still(&self.target)?;
        self.rename()?;
        if durability == Durability::Full { self.target.sync_directory() } else { Ok(()) }
    }

    fn rename(&mut self) -> Result<()> {
        let name = match self.name.take() {
            Some(name) => name,
            None => self.link()?,
        };
        let name = self.name.insert(name);
        file::rename_at(self.target.dir(), name, self.target.name()).map_err(self.target.at(Step::Rename))?;
        self.name = None;
        // Whoever locks the file from now on is not to meet ours. Its only error is a descriptor that is not open.
        let _ = file::unlock(self.fd());
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
            // If this fails there is no more to be done here, and the next change of the file tries again.
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

/// Whether a file that was made with a name is still there and locked by us. A sweeper may have found it unlocked.
fn is_ours(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(file::try_lock(fd).unwrap_or(true) && call::status(fd)?.stx_nlink > 0)
}

/// Removes what writers that died have left of drafts for this target. Never fails: what cannot be removed takes a slot.
fn sweep(target: &Target) {
    for slot in 0..SLOTS {
        let _ = sweep_slot(target, &slot_name(target.name(), slot));
    }
}

fn sweep_slot(target: &Target, name: &OsStr) -> io::Result<()> {
    sweep_opened(target, name, file::open_at(target.dir(), name, Access::Read)?)
}

/// As [`sweep_slot`], with what was in the slot a moment ago.
fn sweep_opened(target: &Target, name: &OsStr, fd: OwnedFd) -> io::Result<()> {
    let found = Status::new(&call::status(fd.as_fd())?);
    if found.is_file() && file::try_lock(fd.as_fd())? {
        let named = Status::new(&call::status_at(target.dir(), Path::new(name))?);
        if named.is_same_file(&found) {
            file::unlink_at(target.dir(), name)?;
        }
    }
    Ok(())
}

/// Names for a draft of `target`, in the order in which they are tried.
fn names(target: &OsStr) -> impl Iterator<Item = OsString> {
    let random = || RandomState::new().hash_one(SLOTS);
    let slots = (0..SLOTS).map(move |slot| slot_name(target, slot));
    slots.chain((0..RANDOM).map(move |_| draft_name(target, &format!("{:016x}", random()))))
}

fn slot_name(target: &OsStr, slot: usize) -> OsString {
    draft_name(target, &slot.to_string())
}

fn draft_name(target: &OsStr, end: &str) -> OsString {
    let stem = &target.as_bytes()[..target.len().min(STEM_MAX)];
    OsString::from_vec([b".", stem, b".millstream-", end.as_bytes()].concat())
}

fn exists(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EXIST.raw_os_error())
}

fn taken() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "every name beside it is taken; remove the files .NAME.millstream-*")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn target() -> (tempfile::TempDir, Target) {
        let dir = tempfile::tempdir().unwrap();
        let (target, _) = Target::open(&dir.path().join("file"), false).unwrap();
        (dir, target)
    }

    #[test]
    fn a_slot_that_was_given_to_another_draft_meanwhile_is_not_emptied() {
        let (dir, target) = target();
        let (name, path) = (slot_name(target.name(), 0), dir.path().join(".file.millstream-0"));
        let open = || file::open_at(target.dir(), &name, Access::Read).unwrap();
        File::create(&path).unwrap();
        let dead = open();
        std::fs::remove_file(&path).unwrap();
        // Not locked yet, so that only the look at the name can tell.
        File::create(&path).unwrap();
        sweep_opened(&target, &name, dead).unwrap();
        assert!(path.exists());
        sweep_opened(&target, &name, open()).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_draft_that_a_sweeper_has_taken_is_not_ours() {
        let (dir, target) = target();
        let path = dir.path().join("draft");
        let create = || file::create_at(target.dir(), OsStr::new("draft"), Access::Change, 0o600).unwrap();
        let (ours, sweeper) = (create(), File::open(&path).unwrap());
        sweeper.lock().unwrap();
        assert!(!is_ours(ours.as_fd()).unwrap(), "somebody else has the lock");
        drop(sweeper);
        assert!(is_ours(ours.as_fd()).unwrap());
        std::fs::remove_file(&path).unwrap();
        let ours = create();
        std::fs::remove_file(&path).unwrap();
        assert!(!is_ours(ours.as_fd()).unwrap(), "the name is gone");
    }

    #[test]
    fn names_are_slots_first_and_then_random() {
        let all: Vec<_> = names(OsStr::new("a")).map(|name| name.into_string().unwrap()).collect();
        assert_eq!(all.len(), SLOTS + RANDOM);
        assert_eq!((&*all[0], &*all[7]), (".a.millstream-0", ".a.millstream-7"));
        assert!(all[8..].iter().all(|name| name.len() == ".a.millstream-".len() + 16), "{all:?}");
        assert_ne!(all[8], all[9]);
        assert!(names(OsStr::new(&"n".repeat(255))).all(|name| name.len() <= 255));
    }
}
