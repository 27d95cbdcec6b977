//! A directory beneath which paths are opened, and nothing outside of it.
//!
//! The kernel resolves the paths ([openat2(2)](https://man7.org/linux/man-pages/man2/openat2.2.html)), so no link, `..`
//! or concurrent rename can lead out. Without openat2 there is no [`Root`]: a check of the path's text followed by a
//! plain open can be raced, so it is not used as a fallback.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::Metadata;
use super::error::{Error, Step};
use crate::runtime::blocking::BlockingTask;
use crate::sys::call;
use crate::sys::call::Links;
use crate::sys::caps::{Capabilities, Support};
use crate::sys::mounts;

const RACES: usize = 16;

/// A directory beneath which regular files are opened for reading. Clones share the directory.
///
/// Symbolic links are refused unless [`follow_links_beneath`](Self::follow_links_beneath) is set.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use millstream::fs::{Opened, Root};
/// use std::path::Path;
///
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("hello.txt"), "hello")?;
/// let root = Root::open_dir(dir.path())?;
/// match root.open(Path::new("hello.txt")).await? {
///     Opened::File(_, status) => assert_eq!(status.len(), 5),
///     _ => unreachable!(),
/// }
/// assert!(root.open(Path::new("../etc/passwd")).await.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Root {
    dir: Arc<OwnedFd>,
    links: Links,
    /// Whether an open or a status may wait for a server or another process.
    may_wait: bool,
}

/// Result of opening a path beneath a [`Root`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Opened {
    /// A regular file, open for reading, and its status.
    File(File, Metadata),
    /// A directory, which is not kept open.
    Directory,
}

impl Root {
    /// Opens a directory. This blocks on the disk: call it during start-up.
    ///
    /// # Errors
    ///
    /// Fails if the path does not lead to a directory that this process may search, or if `openat2` is missing or
    /// blocked (`ErrorKind::Unsupported`; see [`Capabilities::openat2`]).
    pub fn open_dir(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        if let Support::No(reason) = Capabilities::get().openat2() {
            let message = format!("{}: paths beneath it need openat2(2): {reason}", path.display());
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        match call::open_directory_blocking(path) {
            Ok(dir) => {
                let may_wait = mounts::may_wait(dir.as_fd());
                Ok(Self { dir: Arc::new(dir), links: Links::Refuse, may_wait })
            }
            Err(e) => Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
        }
    }

    /// Returns whether `path` leads to this directory now. **May block on the disk**, unless `path` was looked up
    /// before.
    pub(crate) fn is_at(&self, path: &Path) -> io::Result<bool> {
        // The open directory keeps its inode number in use.
        let this = Metadata::new(&call::status(self.dir.as_fd())?);
        Ok(Metadata::new(&call::status_of(path)?).is_same_file(&this))
    }

    /// Opens the directory that `path` leads to now, with the same rule for links. **May block on the disk.**
    pub(crate) fn reopen(&self, path: &Path) -> io::Result<Self> {
        Ok(Self { links: self.links, ..Self::open_dir(path)? })
    }

    /// Sets whether symbolic links whose target also lies beneath the directory are followed. Links that lead out stay
    /// refused.
    #[must_use]
    pub fn follow_links_beneath(mut self, follow: bool) -> Self {
        self.links = if follow { Links::Beneath } else { Links::Refuse };
        self
    }

    /// Opens a path relative to the directory. Paths in the kernel's memory are opened at once, if the directory is on
    /// a local file system and the path does not lead to another mount. Otherwise the open runs on the blocking pool,
    /// because on a network file system or in user space (FUSE) it asks the server.
    ///
    /// # Errors
    ///
    /// Fails like openat2(2), with the error number: `EXDEV` for a path that leads out, `ELOOP` for a link. Fails with
    /// `ErrorKind::PermissionDenied` without a number for anything but a regular file or a directory.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes a file that is opened afterwards.
    pub async fn open(&self, path: &Path) -> io::Result<Opened> {
        match self.open_now(path) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
        let (root, path) = (self.clone(), path.to_owned());
        BlockingTask::start(move || root.open_blocking(&path))?.await
    }

    /// Opens a regular file like [`open`](Self::open) and returns it as a [`File`](super::File). Fails with `EISDIR`
    /// for a directory.
    pub async fn open_file(&self, path: &Path) -> Result<super::File, Error> {
        let failed = |e: io::Error| Error::new(Step::Open, path, e);
        match self.open(path).await.map_err(failed)? {
            Opened::File(file, _) => Ok(super::File::new(file, path)),
            Opened::Directory => Err(failed(Errno::ISDIR.into())),
        }
    }

    /// Does the same as [`open`](Self::open), but fails with `WouldBlock` instead of blocking on the disk.
    pub(crate) fn open_now(&self, path: &Path) -> io::Result<Opened> {
        if self.may_wait {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match call::open_beneath(self.dir.as_fd(), path, self.links, true) {
            Ok(fd) => look(fd, path),
            Err(e) => match Errno::from_io_error(&e) {
                // Linux before 5.12 does not know the flag. `XDEV` may mean another mount, or a path that leads out.
                Some(Errno::INVAL | Errno::XDEV) => Err(io::ErrorKind::WouldBlock.into()),
                _ => Err(e),
            },
        }
    }

    /// Does the same as [`open`](Self::open), **blocking on the disk**.
    pub(crate) fn open_blocking(&self, path: &Path) -> io::Result<Opened> {
        let mut races = 0;
        loop {
            match call::open_beneath(self.dir.as_fd(), path, self.links, false) {
                Ok(fd) => return look(fd, path),
                // A rename made `..` of a followed link uncertain; the manual page says to try again.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && races < RACES => races += 1,
                Err(e) => return Err(e),
            }
        }
    }

    /// Does the same as [`status_blocking`](Self::status_blocking), on runtime threads: an open file pins its directory
    /// entries in memory, so this does not block on the disk. Fails with `WouldBlock` if a server or another process
    /// may be asked.
    pub(crate) fn status_now(&self, path: &Path) -> io::Result<Metadata> {
        if self.may_wait { Err(io::ErrorKind::WouldBlock.into()) } else { self.status_blocking(path) }
    }

    /// Returns the status of the file that [`open`](Self::open) would open. Only for paths that were opened before:
    /// without following links, the text of the path is not checked.
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

fn look(fd: OwnedFd, path: &Path) -> io::Result<Opened> {
    let status = Metadata::new(&call::status(fd.as_fd())?);
    if status.is_file() {
        Ok(Opened::File(File::from(fd), status))
    } else if status.is_dir() {
        Ok(Opened::Directory)
    } else {
        Err(refused(path, &status))
    }
}

pub(crate) fn refused(path: &Path, status: &Metadata) -> io::Error {
    let message = format!("{}: {}, not a regular file", path.display(), status.what());
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/file"), "bytes").unwrap();
        symlink("sub/file", dir.path().join("in")).unwrap();
        symlink("/etc/passwd", dir.path().join("out")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("fifo"), 0o600.into()).unwrap();
        dir
    }

    async fn errno(root: &Root, path: &str) -> Option<i32> {
        root.open(Path::new(path)).await.unwrap_err().raw_os_error()
    }

    #[tokio::test]
    async fn regular_files_are_opened_and_directories_are_named() {
        let dir = tree();
        let root = Root::open_dir(dir.path()).unwrap();
        let Opened::File(file, status) = root.open(Path::new("sub/file")).await.unwrap() else { panic!("no file") };
        assert_eq!(std::io::read_to_string(file).unwrap(), "bytes");
        assert_eq!(status.len(), 5);
        assert_eq!(root.status_now(Path::new("sub/file")).unwrap(), status);
        assert!(matches!(root.open(Path::new("sub")).await.unwrap(), Opened::Directory));
        assert!(matches!(root.open_blocking(Path::new("sub/file")).unwrap(), Opened::File(..)));
    }

    #[tokio::test]
    async fn nothing_leads_out() {
        let dir = tree();
        let root = Root::open_dir(dir.path()).unwrap();
        assert_eq!(errno(&root, "out").await, Some(Errno::LOOP.raw_os_error()));
        assert_eq!(errno(&root, "in").await, Some(Errno::LOOP.raw_os_error()));
        assert_eq!(errno(&root, "../x").await, Some(Errno::XDEV.raw_os_error()));
        assert_eq!(errno(&root, "/etc/passwd").await, Some(Errno::XDEV.raw_os_error()));
        let root = root.follow_links_beneath(true);
        assert_eq!(errno(&root, "out").await, Some(Errno::XDEV.raw_os_error()));
        assert!(matches!(root.open(Path::new("in")).await.unwrap(), Opened::File(..)));
        assert_eq!(root.status_now(Path::new("in")).unwrap(), root.status_now(Path::new("sub/file")).unwrap());
    }

    #[tokio::test]
    async fn what_is_no_file_is_refused_by_name() {
        let dir = tree();
        let root = Root::open_dir(dir.path()).unwrap();
        let error = root.open(Path::new("fifo")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(error.to_string(), "fifo: a FIFO, not a regular file");
        let dev = Root::open_dir("/dev").unwrap();
        assert!(dev.open(Path::new("null")).await.unwrap_err().to_string().contains("a device"));
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = Root::open_dir("/nowhere/at/all").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().starts_with("/nowhere/at/all: "), "{error}");
    }

    #[test]
    fn without_openat2_there_is_no_root() {
        const CHILD: &str = "MILLSTREAM_TEST_WITHOUT_OPENAT2";
        if std::env::var_os(CHILD).is_some() {
            let error = Root::open_dir("/").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            assert!(error.to_string().contains("openat2"), "{error}");
            return;
        }
        // Capabilities are probed once per process, so this test needs its own process.
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fs::root::tests::without_openat2_there_is_no_root"])
            .env(CHILD, "1")
            .env("MILLSTREAM_DISABLE", "openat2")
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"));
    }
}
