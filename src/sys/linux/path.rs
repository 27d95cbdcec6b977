//! Calls on paths, and close with its result. All of them **may wait for the disk**, and none returns `EINTR`.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

/// Base of relative paths: an open directory, or the working directory.
pub(crate) type At<'a> = BorrowedFd<'a>;
pub(crate) const CWD: At<'static> = rustix::fs::CWD;

pub(crate) fn at(dir: BorrowedFd<'_>) -> At<'_> {
    dir
}

/// A path as the kernel takes it.
pub(crate) type Name = CStr;
pub(crate) type NameBuf = CString;

/// Converts a path. Fails if it contains a NUL byte.
pub(crate) fn name(path: &Path) -> io::Result<NameBuf> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Returns the path of these bytes, if this system has such paths.
pub(crate) fn of_bytes(path: &[u8]) -> Option<&Path> {
    Some(Path::new(OsStr::from_bytes(path)))
}

/// Returns at most `max` bytes of a name, from its beginning.
pub(crate) fn beginning(name: &OsStr, max: usize) -> Cow<'_, OsStr> {
    OsStr::from_bytes(&name.as_bytes()[..name.len().min(max)]).into()
}

/// The `open_how` of [openat2(2)](https://man7.org/linux/man-pages/man2/openat2.2.html), always with close-on-exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct How {
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
}

impl How {
    /// Ignores `mode` unless `flags` may create a file; openat2 would fail otherwise.
    pub(crate) fn new(flags: OFlags, mode: Mode, resolve: ResolveFlags) -> Self {
        let creates = flags.contains(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
        let mode = if creates { mode & Mode::from_raw_mode(0o7777) } else { Mode::empty() };
        Self { flags: flags | OFlags::CLOEXEC, mode, resolve }
    }

    pub(crate) fn and(self, flags: OFlags, resolve: ResolveFlags) -> Self {
        Self { flags: self.flags | flags, resolve: self.resolve | resolve, ..self }
    }

    /// Returns whether it does more than open an existing file, and so may wait for the disk in any case.
    pub(crate) fn may_wait(&self) -> bool {
        let harmless = OFlags::ACCMODE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        !(self.flags - harmless).is_empty()
    }

    pub(crate) fn has(&self, flags: OFlags) -> bool {
        self.flags.contains(flags)
    }

    /// Returns flags and resolution that find the same file without opening it.
    pub(super) fn to_look_at(self) -> (OFlags, ResolveFlags) {
        (OFlags::PATH | OFlags::CLOEXEC | (self.flags & (OFlags::NOFOLLOW | OFlags::DIRECTORY)), self.resolve)
    }

    /// Returns flags, mode and resolution as numbers. `into_table` leaves out `O_CLOEXEC`, which the kernel refuses for
    /// the file table of a ring.
    pub(crate) fn raw(&self, into_table: bool) -> (u64, u64, u64) {
        let flags = if into_table { self.flags - OFlags::CLOEXEC } else { self.flags };
        (flags.bits().into(), self.mode.as_raw_mode().into(), self.resolve.bits())
    }
}

/// Opens `path` relative to `dir`. Uses openat2 only for restricted resolution: a sandbox may lack it.
pub(crate) fn open_blocking(dir: BorrowedFd<'_>, path: &CStr, how: &How) -> io::Result<OwnedFd> {
    let &How { flags, mode, resolve } = how;
    Ok(retry_on_intr(|| match resolve.is_empty() {
        true => rustix::fs::openat(dir, path, flags, mode),
        false => rustix::fs::openat2(dir, path, flags, mode, resolve),
    })?)
}

/// Closes a descriptor and returns the result of [close(2)](https://man7.org/linux/man-pages/man2/close.2.html). The
/// descriptor is closed even on error; `EINTR` counts as success, because Linux has closed it then.
pub(crate) fn close_blocking(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor was owned and is not used afterwards.
    match unsafe { rustix::io::try_close(fd.into_raw_fd()) } {
        Ok(()) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Renames, [renameat2(2)](https://man7.org/linux/man-pages/man2/rename.2.html).
pub(crate) fn rename_blocking(
    (from_dir, from): (BorrowedFd<'_>, &CStr),
    (to_dir, to): (BorrowedFd<'_>, &CStr),
    flags: RenameFlags,
) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::renameat_with(from_dir, from, to_dir, to, flags))?)
}

pub(crate) fn unlink_blocking(dir: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::unlinkat(dir, path, AtFlags::empty()))?)
}

/// Creates a hard link, [linkat(2)](https://man7.org/linux/man-pages/man2/link.2.html). Does not follow a final link.
pub(crate) fn link_blocking(
    (from_dir, from): (BorrowedFd<'_>, &CStr),
    (to_dir, to): (BorrowedFd<'_>, &CStr),
) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::linkat(from_dir, from, to_dir, to, AtFlags::empty()))?)
}
