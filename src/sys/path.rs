//! Calls on paths: open, rename, remove, link; and closing with its result. All of them **may wait for the disk**, and
//! none returns `EINTR`.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

/// How a path is opened: the `open_how` of [openat2(2)](https://man7.org/linux/man-pages/man2/openat2.2.html). What is
/// opened is always closed on exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct How {
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
}

impl How {
    /// `mode` counts only where `flags` may create a file; openat2 would refuse it elsewhere.
    pub(crate) fn new(flags: OFlags, mode: Mode, resolve: ResolveFlags) -> Self {
        let creates = flags.contains(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
        let mode = if creates { mode & Mode::from_raw_mode(0o7777) } else { Mode::empty() };
        Self { flags: flags | OFlags::CLOEXEC, mode, resolve }
    }

    /// The same with more flags.
    pub(crate) fn and(self, flags: OFlags, resolve: ResolveFlags) -> Self {
        Self { flags: self.flags | flags, resolve: self.resolve | resolve, ..self }
    }

    /// Whether it does more than opening what is there: then it may have to wait for the disk, whatever is in memory.
    pub(crate) fn may_wait(&self) -> bool {
        let harmless = OFlags::ACCMODE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        !(self.flags - harmless).is_empty()
    }

    /// Whether it has all of these flags.
    pub(crate) fn has(&self, flags: OFlags) -> bool {
        self.flags.contains(flags)
    }

    /// The flags and the resolution to find the same file without opening it.
    pub(super) fn to_look_at(self) -> (OFlags, ResolveFlags) {
        (OFlags::PATH | OFlags::CLOEXEC | (self.flags & (OFlags::NOFOLLOW | OFlags::DIRECTORY)), self.resolve)
    }

    /// Flags, mode and resolution as numbers. `into_table` leaves out what the kernel refuses for the file table of a
    /// ring, whose files no exec ever inherits.
    pub(crate) fn raw(&self, into_table: bool) -> (u64, u64, u64) {
        let flags = if into_table { self.flags - OFlags::CLOEXEC } else { self.flags };
        (flags.bits().into(), self.mode.as_raw_mode().into(), self.resolve.bits())
    }
}

/// Opens `path` relative to `dir`. Uses openat2 only where the path is to be kept beneath something: a sandbox may lack it.
pub(crate) fn open_blocking(dir: BorrowedFd<'_>, path: &CStr, how: &How) -> io::Result<OwnedFd> {
    let &How { flags, mode, resolve } = how;
    Ok(retry_on_intr(|| match resolve.is_empty() {
        true => rustix::fs::openat(dir, path, flags, mode),
        false => rustix::fs::openat2(dir, path, flags, mode, resolve),
    })?)
}

/// Closes, and tells what [close(2)](https://man7.org/linux/man-pages/man2/close.2.html) says. The descriptor is gone
/// also where that is an error; `EINTR` is none, since Linux has closed it then and nobody may try again.
pub(crate) fn close_blocking(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor was owned, and from here on nobody has it.
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

/// Removes a name of a file, [unlinkat(2)](https://man7.org/linux/man-pages/man2/unlink.2.html).
pub(crate) fn unlink_blocking(dir: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::unlinkat(dir, path, AtFlags::empty()))?)
}

/// Gives a file another name, [linkat(2)](https://man7.org/linux/man-pages/man2/link.2.html). A symbolic link gets the
/// name itself.
pub(crate) fn link_blocking(
    (from_dir, from): (BorrowedFd<'_>, &CStr),
    (to_dir, to): (BorrowedFd<'_>, &CStr),
) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::linkat(from_dir, from, to_dir, to, AtFlags::empty()))?)
}
