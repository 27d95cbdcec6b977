//! The file to change: a name in an open directory.
//!
//! The directory is opened once and every step is relative to it, so renames of its parents in between have no effect.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf, is_separator};

use super::Metadata;
use super::durability::Durability;
use super::error::{Error, Result, Step};
use crate::sys::call;
use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, BorrowedFd, OwnedFd};
use crate::sys::file;
use crate::sys::file::Access;
use crate::sys::status::Statx;

#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    dir: OwnedFd,
    name: OsString,
}

impl Target {
    /// Opens the directory of `path` and checks that the name is a regular file or unused (`None`). Follows a symbolic
    /// link if `follow_link`, otherwise refuses it.
    pub(super) fn open(path: &Path, follow_link: bool) -> Result<(Self, Option<Statx>)> {
        let mut target = Self::open_name(path, path)?;
        let mut found = target.status()?;
        if follow_link && found.as_ref().is_some_and(|found| Metadata::new(found).is_link()) {
            // The current target of the link; if that has become a link meanwhile, it is refused.
            let place = std::fs::canonicalize(path).map_err(target.at(Step::Inspect))?;
            target = Self::open_name(path, &place)?;
            found = target.status()?;
        }
        if let Some(found) = &found {
            target.must_be_file(found)?;
        }
        Ok((target, found))
    }

    fn open_name(path: &Path, place: &Path) -> Result<Self> {
        let error = |step, source| Error::new(step, path, source);
        let Some((dir, name)) = split(place) else {
            return Err(error(Step::Inspect, refused("the last part of the path is not the name of a file")));
        };
        let dir = file::open_directory(dir).map_err(|e| error(Step::OpenDirectory, e))?;
        Ok(Self { path: path.to_owned(), dir, name })
    }

    pub(super) fn status(&self) -> Result<Option<Statx>> {
        match call::status_at(self.dir(), Path::new(&self.name)) {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(None),
            Err(e) => Err(Error::new(Step::Inspect, &self.path, e)),
        }
    }

    fn must_be_file(&self, found: &Statx) -> Result<()> {
        let found = Metadata::new(found);
        if found.is_link() {
            let message = "a symbolic link; follow_link(true) changes the file it leads to";
            return Err(self.at(Step::Inspect)(refused(message)));
        }
        found.must_be_file(io::ErrorKind::InvalidInput).map_err(self.at(Step::Inspect))
    }

    pub(super) fn open_old(&self, access: Access) -> Result<(OwnedFd, Statx)> {
        let fd = file::open_at(self.dir(), &self.name, access).map_err(self.at(Step::Open))?;
        let statx = call::status(fd.as_fd()).map_err(self.at(Step::Open))?;
        // The file may have been replaced since the check.
        self.must_be_file(&statx)?;
        Ok((fd, statx))
    }

    pub(super) fn at(&self, step: Step) -> impl Fn(io::Error) -> Error {
        move |source| Error::new(step, &self.path, source)
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Syncs a file that was changed in place, and its name.
    pub(super) fn sync_in_place(&self, file: BorrowedFd<'_>, durability: Durability) -> Result<()> {
        durability.sync_in_place(file).map_err(self.at(Step::Sync))?;
        self.sync_name(durability)
    }

    /// Syncs the directory if `durability` includes it. A name that existed before may be unsynced, too: its creator may
    /// have been killed.
    pub(super) fn sync_name(&self, durability: Durability) -> Result<()> {
        let synced = if durability == Durability::Full { file::sync(self.dir()) } else { Ok(()) };
        synced.map_err(self.at(Step::SyncDirectory))
    }
}

pub(super) fn refused(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Splits a path into the directory and the last name. `None` if the last part is not a name: empty, `.` or `..`.
fn split(path: &Path) -> Option<(&Path, OsString)> {
    let mut parts = path.as_os_str().as_encoded_bytes().rsplit(|&b| is_separator(b.into()));
    if matches!(parts.next(), None | Some(b"" | b"." | b"..")) {
        return None;
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some((dir, path.file_name()?.to_owned()))
}

#[cfg(test)]
mod tests;
