//! Opening a file, at once where the kernel has all it takes in memory and the file system asks nobody.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::File;
use super::error::{Error, Result, Step};
use super::file::{OPEN, perform};
use crate::runtime::programs::looks_now;
use crate::sys::call;
use crate::sys::caps::Capabilities;
use crate::sys::mounts;
use crate::sys::path;
use crate::sys::path::How;
use crate::sys::transfer;
use crate::uring::chain::OpenOptions;
use crate::uring::op::open::{Dir, Open};

impl OpenOptions {
    /// Opens a file. Links are followed. For paths that come from outside use [`Root`](super::Root).
    ///
    /// # Errors
    ///
    /// As [open(2)](https://man7.org/linux/man-pages/man2/open.2.html); `ErrorKind::InvalidInput` for options that
    /// contradict each other, `ESPIPE` for a FIFO, a terminal or another device that has no offsets.
    ///
    /// # Cancellation
    ///
    /// Dropping the future closes what the open may still bring; a file may have been made or cut all the same.
    pub async fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let failed = |e: io::Error| Error::new(Step::Open, path, e);
        // The error of std says where the zero byte is.
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| failed(e.into()))?;
        let how = self.how().map_err(|what| failed(io::Error::new(io::ErrorKind::InvalidInput, what)))?;
        // Without waiting, because opening a FIFO would wait for its other end.
        let how = how.and(OFlags::NONBLOCK | OFlags::NOCTTY, ResolveFlags::empty());
        if looks_now()
            && let Some(fd) = open_now(&name, how).map_err(failed)?
        {
            return seekable(fd, path).map_err(failed);
        }
        let (open, _) = perform(Open::new(Dir::default(), name, how), OPEN, Step::Open, path).await?;
        seekable(open.into_fd().expect("internal: an open that was done"), path).map_err(failed)
    }
}

/// Opens what the kernel has in memory; `None` if the disk, a server or another process may have to be asked.
fn open_now(path: &CStr, how: How) -> io::Result<Option<OwnedFd>> {
    if how.may_wait() || !Capabilities::get().openat2().is_yes() {
        return Ok(None);
    }
    // Its place first: that asks nobody, and tells the file system.
    let place = How::new(OFlags::PATH, Mode::empty(), ResolveFlags::CACHED);
    match open_cached(path, &place)? {
        Some(place) if !mounts::may_wait(place.as_fd()) => {
            open_cached(path, &how.and(OFlags::empty(), ResolveFlags::CACHED))
        }
        _ => Ok(None),
    }
}

/// `None` if the path cannot be resolved from memory.
fn open_cached(path: &CStr, how: &How) -> io::Result<Option<OwnedFd>> {
    match path::open_blocking(CWD, path, how) {
        Ok(fd) => Ok(Some(fd)),
        Err(e) => match Errno::from_io_error(&e) {
            // Linux before 5.12 does not know the flag.
            Some(Errno::AGAIN | Errno::INVAL) => Ok(None),
            _ => Err(e),
        },
    }
}

/// The file, if it has offsets: by ring, they would be ignored where it has none, and a read would wait for a peer.
fn seekable(fd: OwnedFd, path: &Path) -> io::Result<File> {
    match call::known(fd.as_fd())? {
        (FileType::RegularFile | FileType::Directory, _) => {}
        _ => _ = transfer::position(fd.as_fd())?,
    }
    Ok(File::new(fd.into(), path))
}
