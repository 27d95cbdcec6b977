//! A directory beneath which paths are opened, and nothing outside of it.
//!
//! The kernel resolves the paths ([openat2(2)](https://man7.org/linux/man-pages/man2/openat2.2.html)), so no link, `..`
//! or concurrent rename can lead out. Without openat2 there is no [`Root`]: a check of the path's text followed by a
//! plain open can be raced, so it is not used as a fallback.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::Metadata;
use super::error::{Error, Result, Step};
use super::file::File;
use crate::runtime::blocking::BlockingTask;
use crate::sys::call;
use crate::sys::call::Links;
use crate::sys::caps::{Capabilities, Support};
use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::mounts;

const RACES: usize = 16;

/// A directory beneath which regular files are opened for reading. Clones share the directory.
///
/// Symbolic links are refused unless [`follow_links_beneath`](Self::follow_links_beneath) is set.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use millstream::fs::Root;
///
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("hello.txt"), "hello")?;
/// let root = Root::open_dir(dir.path())?;
/// assert_eq!(root.open("hello.txt").await?.read_at(0, 100).await?, "hello");
/// assert!(root.open("../etc/passwd").await.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Root {
    dir: Arc<OwnedFd>,
    links: Links,
    /// Whether opening a file, or reading its status, may wait for a server or another process.
    may_wait: bool,
}

impl Root {
    /// Opens a directory. This blocks on the disk: call it during start-up.
    ///
    /// # Errors
    ///
    /// Fails if the path does not lead to a directory that this process may search. On Linux, fails with
    /// `ErrorKind::Unsupported` if `openat2` is missing or blocked; see [`Capabilities::openat2`]. Other systems need
    /// no such call: each component of a path is opened relative to the directory before it.
    pub fn open_dir(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |e: io::Error| Error::new(Step::OpenDirectory, path, e);
        if let Support::No(reason) = Capabilities::get().openat2()
            && !call::WALKS_PATHS
        {
            let message = format!("paths beneath a directory need openat2(2): {reason}");
            return Err(failed(io::Error::new(io::ErrorKind::Unsupported, message)));
        }
        let dir = call::open_directory_blocking(path).map_err(failed)?;
        let may_wait = mounts::may_wait(dir.as_fd());
        Ok(Self { dir: Arc::new(dir), links: Links::Refuse, may_wait })
    }

    /// Returns whether `path` leads to this directory now. **May block on the disk**, unless `path` was looked up
    /// before.
    pub(crate) fn is_at(&self, path: &Path) -> io::Result<bool> {
        // The open directory keeps its inode number in use.
        let this = Metadata::new(&call::status(self.dir.as_fd())?);
        Ok(Metadata::new(&call::status_of(path)?).is_same_file(&this))
    }

    /// Opens the directory that `path` leads to now, with the same rule for links. **May block on the disk.**
    pub(crate) fn reopen(&self, path: &Path) -> Result<Self> {
        Ok(Self { links: self.links, ..Self::open_dir(path)? })
    }

    /// Sets whether symbolic links are followed if their target is also beneath the directory. Links that lead out are
    /// always refused.
    #[must_use]
    pub fn follow_links_beneath(mut self, follow: bool) -> Self {
        self.links = if follow { Links::Beneath } else { Links::Refuse };
        self
    }

    /// Opens a regular file for reading; `path` is relative to the directory. Paths in the kernel's memory are opened
    /// at once, if the directory is on a local file system and the path does not lead to another mount. Otherwise the
    /// open runs on the blocking pool, because on a network file system or in user space (FUSE) it asks the server.
    ///
    /// # Errors
    ///
    /// Fails like openat2(2), with the error number: `EXDEV` for a path that leads out, `ELOOP` for a link. Fails with
    /// `EISDIR` for a directory, and with `ErrorKind::PermissionDenied` without a number for anything else that is not
    /// a regular file.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes a file that is opened afterwards.
    pub async fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let failed = |e: io::Error| Error::new(Step::Open, path, e);
        match self.open_now(path) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            done => return done.map_err(failed),
        }
        let (root, owned) = (self.clone(), path.to_owned());
        BlockingTask::start(move || root.open_blocking(&owned)).map_err(failed)?.await.map_err(failed)
    }

    /// Does the same as [`open`](Self::open), but fails with `WouldBlock` instead of blocking on the disk.
    pub(crate) fn open_now(&self, path: &Path) -> io::Result<File> {
        if self.may_wait {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match call::open_beneath(self.dir.as_fd(), path, self.links, true) {
            Ok(fd) => checked_file(false, fd, path),
            Err(e) => match Errno::from_io_error(&e) {
                // Linux before 5.12 does not know the flag. `XDEV` may mean another mount, or a path that leads out.
                Some(Errno::INVAL | Errno::XDEV) => Err(io::ErrorKind::WouldBlock.into()),
                _ => Err(e),
            },
        }
    }

    /// Does the same as [`open`](Self::open), **blocking on the disk**.
    pub(crate) fn open_blocking(&self, path: &Path) -> io::Result<File> {
        let fd = self.open_any_blocking(path)?;
        checked_file(mounts::may_wait(fd.as_fd()), fd, path)
    }

    /// Opens a file of any type, **blocking on the disk**.
    pub(super) fn open_any_blocking(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut races = 0;
        loop {
            match call::open_beneath(self.dir.as_fd(), path, self.links, false) {
                Ok(fd) => return Ok(fd),
                // A concurrent rename made a `..` in a followed link ambiguous. The manual page says to try again.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && races < RACES => races += 1,
                Err(e) => return Err(e),
            }
        }
    }

    pub(super) fn links(&self) -> Links {
        self.links
    }

    /// Does the same as [`status_blocking`](Self::status_blocking), on runtime threads: an open file pins its directory
    /// entries in memory, so this does not block on the disk. Fails with `WouldBlock` if this may need a server or
    /// another process.
    pub(crate) fn status_now(&self, path: &Path) -> io::Result<Metadata> {
        if self.may_wait { Err(io::ErrorKind::WouldBlock.into()) } else { self.status_blocking(path) }
    }

    /// Returns the status of the file that [`open`](Self::open) would open. Use it only for paths that were opened
    /// before: if links are not followed, the text of the path is not checked.
    pub(crate) fn status_blocking(&self, path: &Path) -> io::Result<Metadata> {
        let statx = match self.links {
            Links::Refuse => call::status_at(self.dir.as_fd(), path)?,
            Links::Beneath => {
                call::status(call::open_beneath(self.dir.as_fd(), path, self.links, !self.may_wait)?.as_fd())?
            }
        };
        Ok(Metadata::new(&statx))
    }
}

fn checked_file(may_wait: bool, fd: OwnedFd, path: &Path) -> io::Result<File> {
    let found = Metadata::new(&call::status(fd.as_fd())?);
    if found.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    found.must_be_file(io::ErrorKind::PermissionDenied)?;
    Ok(File::new(may_wait, fd.into(), path, found))
}

#[cfg(test)]
mod tests;
