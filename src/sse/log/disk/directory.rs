//! The directory of a log: its lock, and the names of its segments. All calls **wait for the disk**.
//!
//! ```text
//!  lock                           locked by the process that has the log open
//!  00000000000000000001.events    a segment, named by its first event
//!  00000000000000000001.index     its index, once it is full
//! ```

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::DiskError;
use crate::fs::Metadata;
use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::file::{self, Access};
use crate::sys::lock::Locked;
use crate::sys::{call, dir};

const LOCK: &str = "lock";
/// Permissions of new files, less the umask.
const MODE: u32 = 0o666;

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Events,
    Index,
}

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    _lock: Locked,
}

impl Directory {
    /// Opens and locks the directory, and creates it if needed.
    pub(super) fn open(path: &Path) -> Result<Self, DiskError> {
        let absolute = std::path::absolute(path).map_err(DiskError::io(path, "find the directory"))?;
        let missing = absolute.ancestors().take_while(|dir| !dir.is_dir()).count();
        // Each is synced before the next one is created, so only the innermost one that exists may be unsynced, because
        // its creator was killed.
        let dirs: Vec<&Path> = absolute.ancestors().take(missing + 1).collect();
        for (n, dir) in dirs.into_iter().enumerate().rev() {
            std::fs::create_dir_all(dir).map_err(DiskError::io(path, "create the directory"))?;
            let Some(parent) = dir.parent() else { continue };
            let synced = file::open_directory(parent).and_then(|parent| file::sync(parent.as_fd()));
            // This process may not be allowed to read the parent of a directory that exists.
            if n < missing {
                synced.map_err(DiskError::io(parent, "sync the directory"))?;
            }
        }
        let fd = file::open_directory(path).map_err(DiskError::io(path, "open the directory"))?;
        let lock = lock(&fd).map_err(DiskError::io(&path.join(LOCK), "lock the file"))?;
        let lock = lock.ok_or_else(|| DiskError::Locked { path: path.to_owned() })?;
        Ok(Self { path: path.to_owned(), fd, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn path_of(&self, first: u64, kind: Kind) -> PathBuf {
        self.path.join(name(first, kind))
    }

    /// Returns the error of a call on a file, or [`DiskError::Removed`] if the directory was removed.
    pub(super) fn failed(&self, first: u64, kind: Kind, step: &'static str) -> impl Fn(io::Error) -> DiskError {
        move |e| match self.is_removed() {
            true => DiskError::Removed { path: self.path.clone() },
            false => DiskError::io(&self.path_of(first, kind), step)(e),
        }
    }

    pub(super) fn is_removed(&self) -> bool {
        // A directory without a name has no entry `.` either.
        call::status(self.fd.as_fd()).is_ok_and(|found| found.stx_nlink == 0)
    }

    /// Returns the first events of the segments, in order, and those of the indexes.
    pub(super) fn firsts(&self) -> Result<(Vec<u64>, Vec<u64>), DiskError> {
        let (mut segments, mut indexes) = (Vec::new(), Vec::new());
        let each = |name: &OsStr, _| {
            segments.extend(first_of(name, Kind::Events));
            indexes.extend(first_of(name, Kind::Index));
            Ok(())
        };
        dir::names_blocking(self.fd.as_fd(), usize::MAX, each)
            .map_err(DiskError::io(&self.path, "read the directory"))?;
        segments.sort_unstable();
        Ok((segments, indexes))
    }

    pub(super) fn status(&self, first: u64) -> io::Result<Metadata> {
        Ok(Metadata::new(&call::status_at(self.fd.as_fd(), Path::new(&name(first, Kind::Events)))?))
    }

    pub(super) fn open_file(&self, first: u64, kind: Kind, access: Access) -> io::Result<Arc<File>> {
        let file = file::open_at(self.fd.as_fd(), &name(first, kind), access)?;
        Metadata::new(&call::status(file.as_fd())?).must_be_file(io::ErrorKind::InvalidData)?;
        Ok(Arc::new(file.into()))
    }

    /// Creates an empty file.
    pub(super) fn create(&self, first: u64, kind: Kind) -> io::Result<Arc<File>> {
        let name = name(first, kind);
        let created = match file::create_at(self.fd.as_fd(), &name, Access::Change, MODE) {
            // Left by an attempt that failed afterwards, or by another program.
            Err(e) if e.raw_os_error() == Some(Errno::EXIST.raw_os_error()) => {
                let left = file::open_at(self.fd.as_fd(), &name, Access::Change)?;
                Metadata::new(&call::status(left.as_fd())?).must_be_file(io::ErrorKind::InvalidData)?;
                file::set_len(left.as_fd(), 0)?;
                left
            }
            created => created?,
        };
        Ok(Arc::new(created.into()))
    }

    pub(super) fn remove(&self, first: u64, kind: Kind) -> io::Result<()> {
        match file::unlink_at(self.fd.as_fd(), &name(first, kind)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    pub(super) fn sync(&self) -> Result<(), DiskError> {
        file::sync(self.fd.as_fd()).map_err(DiskError::io(&self.path, "sync the directory"))
    }
}

/// Locks the directory by a file in it; `None` if it is locked.
fn lock(dir: &OwnedFd) -> io::Result<Option<Locked>> {
    let name = OsStr::new(LOCK);
    let fd = match file::create_at(dir.as_fd(), name, Access::Change, MODE) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => file::open_at(dir.as_fd(), name, Access::Change)?,
        created => created?,
    };
    Locked::try_new(fd)
}

fn name(first: u64, kind: Kind) -> OsString {
    match kind {
        Kind::Events => format!("{first:020}.events"),
        Kind::Index => format!("{first:020}.index"),
    }
    .into()
}

fn first_of(found: &OsStr, kind: Kind) -> Option<u64> {
    let first = found.to_str()?.split_once('.')?.0.parse().ok()?;
    // The log never reaches larger numbers. A stray file with such a name would cause an overflow.
    ((1..=i64::MAX as u64).contains(&first) && name(first, kind) == found).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_segments_are_segments() {
        let (last, events) = (i64::MAX as u64, Kind::Events);
        for first in [17, last] {
            assert_eq!(first_of(&name(first, events), events), Some(first));
            assert_eq!(first_of(&name(first, Kind::Index), Kind::Index), Some(first));
        }
        assert_eq!(first_of(&name(last + 1, events), events), None);
        for other in [
            "17.events",
            "00000000000000000000.events",
            "00000000000000000017.index",
            "lock",
            "+0000000000000000017.events",
        ] {
            assert_eq!(first_of(OsStr::new(other), events), None, "{other}");
        }
    }
}
