//! Opens a file, at once if the kernel can do so from memory on a local file system.

use std::io;
use std::path::Path;

use super::error::{Error, Result, Step};
use super::file::{File, OPEN, perform};
use crate::ops::chain::OpenOptions;
use crate::ops::open::{Dir, Open};
use crate::runtime::programs::looks_now;
use crate::sys::caps::Capabilities;
use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::flags::{Mode, OFlags, ResolveFlags};
use crate::sys::mounts;
use crate::sys::path as sys_path;
use crate::sys::path::{CWD, How, Name};

impl OpenOptions {
    /// Opens a file. Follows symbolic links. For untrusted paths use [`Root`](super::Root).
    ///
    /// # Errors
    ///
    /// Fails like [open(2)](https://man7.org/linux/man-pages/man2/open.2.html); with `ErrorKind::InvalidInput` for
    /// contradictory options, and with `ESPIPE` for a FIFO, a terminal or another device without offsets.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes a file that is opened afterwards. The file may have been created or truncated.
    pub async fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let failed = |e: io::Error| Error::new(Step::Open, path, e);
        // The error of std contains the position of the zero byte.
        let name = sys_path::name(path).map_err(failed)?;
        let how = self.how().map_err(|what| failed(io::Error::new(io::ErrorKind::InvalidInput, what)))?;
        // `NONBLOCK`, because opening a FIFO would wait for its other end.
        let how = how.and(OFlags::NONBLOCK | OFlags::NOCTTY, ResolveFlags::empty());
        if looks_now()
            && let Some(fd) = open_now(&name, how).map_err(failed)?
        {
            return File::with_offsets(false, fd.into(), path).map_err(failed);
        }
        let (open, _) = perform(Open::new(Dir::default(), name, how), OPEN, Step::Open, path).await?;
        let fd = open.into_fd().expect("internal: a completed open has a descriptor");
        File::with_offsets(mounts::may_wait(fd.as_fd()), fd.into(), path).map_err(failed)
    }
}

/// Opens a file from memory; `None` if this might need the disk, a server or another process.
fn open_now(path: &Name, how: How) -> io::Result<Option<OwnedFd>> {
    if how.may_wait() || !Capabilities::get().openat2().is_yes() {
        return Ok(None);
    }
    // `O_PATH` first: it never blocks, and identifies the file system.
    let place = How::new(OFlags::PATH, Mode::empty(), ResolveFlags::CACHED);
    match open_cached(path, &place)? {
        Some(place) if !mounts::may_wait(place.as_fd()) => {
            open_cached(path, &how.and(OFlags::empty(), ResolveFlags::CACHED))
        }
        _ => Ok(None),
    }
}

fn open_cached(path: &Name, how: &How) -> io::Result<Option<OwnedFd>> {
    match sys_path::open_blocking(CWD, path, how) {
        Ok(fd) => Ok(Some(fd)),
        Err(e) => match Errno::from_io_error(&e) {
            // Linux before 5.12 does not know the flag.
            Some(Errno::AGAIN | Errno::INVAL) => Ok(None),
            _ => Err(e),
        },
    }
}
