//! A directory beneath a root, and the files in it.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::{Metadata, Root};
use crate::sys::call::{self, Links};
use crate::sys::dir;
use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::status::FileType;

/// Type of a file as reported in its directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    /// The entry is a link that is followed, or the file system does not report the type.
    Unknown,
}

/// An open directory. All methods **block on the disk**.
#[derive(Debug)]
pub(crate) struct Directory {
    root: Root,
    path: PathBuf,
    fd: OwnedFd,
}

impl Directory {
    /// Opens the directory at `path` beneath `root`, with the link policy of `root`. Fails with `ENOTDIR` if it is not
    /// a directory.
    pub(crate) fn open_blocking(root: &Root, path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = root.open_any_blocking(path)?;
        if !Metadata::new(&call::status(fd.as_fd())?).is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        Ok(Self { root: root.clone(), path: path.to_owned(), fd })
    }

    /// Reads at most `most` names, and calls `each` with those that may be served. Returns whether there are more.
    pub(crate) fn names_blocking(
        &self,
        most: usize,
        mut each: impl FnMut(&OsStr, Kind) -> io::Result<()>,
    ) -> io::Result<bool> {
        let kind = |kind| match kind {
            FileType::RegularFile => Some(Kind::File),
            FileType::Directory => Some(Kind::Directory),
            FileType::Unknown => Some(Kind::Unknown),
            FileType::Symlink if self.root.links() == Links::Beneath => Some(Kind::Unknown),
            _ => None,
        };
        dir::names_blocking(self.fd.as_fd(), most, |name, found| kind(found).map_or(Ok(()), |kind| each(name, kind)))
    }

    /// Returns the metadata of a file in the directory, or of the file that a link leads to if the root follows it.
    pub(crate) fn status_blocking(&self, name: &OsStr) -> io::Result<Metadata> {
        let found = Metadata::new(&call::status_at(self.fd.as_fd(), Path::new(name))?);
        match found.is_link() {
            true if self.root.links() == Links::Beneath => {
                let fd = self.root.open_any_blocking(&self.path.join(name))?;
                Ok(Metadata::new(&call::status(fd.as_fd())?))
            }
            _ => Ok(found),
        }
    }
}
