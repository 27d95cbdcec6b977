//! Typed calls that change files: unnamed files, names, contents, metadata, locks.
//!
//! All of them **wait for the disk** and belong on the blocking pool. None returns `EINTR`. Names are relative to an
//! open directory, and no final symbolic link is followed.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, RenameFlags, Uid, XattrFlags};
use rustix::io::{Errno, retry_on_intr};

use super::call::IOV_LIMIT;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    Read,
    Change,
    Append,
    Write,
}

/// Opens a directory that can be synced; [`call`](super::call) opens directories for path resolution only.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?)
}

/// Opens an existing file. A FIFO opens without waiting for its other end, so the caller must check the file type.
pub(crate) fn open_at(dir: BorrowedFd<'_>, name: &OsStr, access: Access) -> io::Result<OwnedFd> {
    open(dir, name, access.flags() | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY, 0)
}

/// Opens an existing file for reading, and follows links. Same as [`open_at`] for a FIFO.
pub(crate) fn open_followed(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?)
}

/// Creates a file. Fails if the name exists, even as a dangling symbolic link.
pub(crate) fn create_at(dir: BorrowedFd<'_>, name: &OsStr, access: Access, mode: u32) -> io::Result<OwnedFd> {
    open(dir, name, access.flags() | OFlags::CREATE | OFlags::EXCL, mode)
}

/// Creates an unnamed file, `O_TMPFILE` of [open(2)](https://man7.org/linux/man-pages/man2/open.2.html): the kernel
/// removes it when the last descriptor closes, even if the process dies.
pub(crate) fn create_unnamed(dir: BorrowedFd<'_>, mode: u32) -> io::Result<OwnedFd> {
    open(dir, OsStr::new("."), OFlags::TMPFILE | OFlags::WRONLY, mode)
}

impl Access {
    fn flags(self) -> OFlags {
        match self {
            Self::Read => OFlags::RDONLY,
            Self::Change => OFlags::RDWR,
            Self::Append => OFlags::WRONLY | OFlags::APPEND,
            Self::Write => OFlags::WRONLY,
        }
    }
}

fn open(dir: BorrowedFd<'_>, name: &OsStr, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(mode);
    Ok(retry_on_intr(|| rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, mode))?)
}

/// Returns the `/proc` path of a descriptor. Uses `thread-self`, because an exited main thread lists no descriptors.
fn path_of(file: BorrowedFd<'_>) -> String {
    format!("/proc/thread-self/fd/{}", file.as_raw_fd())
}

/// Returns whether [`link_at`] can name an unnamed file: it needs `/proc`.
pub(crate) fn is_linkable(file: BorrowedFd<'_>) -> bool {
    rustix::fs::statat(CWD, path_of(file), AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Names a file created without a name. Fails with `EEXIST`, and changes nothing, if the name exists.
pub(crate) fn link_at(file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let from = path_of(file);
    Ok(retry_on_intr(|| rustix::fs::linkat(CWD, from.as_str(), dir, name, AtFlags::SYMLINK_FOLLOW))?)
}

/// Renames `from` to `to`, which is replaced atomically.
pub(crate) fn rename_at(dir: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::renameat(dir, from, dir, to))?)
}

/// Renames `from` to `to`. Fails with `EEXIST` if that name is in use, even by a dangling symbolic link.
pub(crate) fn rename_new_at(dir: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> io::Result<()> {
    match retry_on_intr(|| rustix::fs::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE)) {
        // The file system does not support the flag; NFS, for example.
        Err(Errno::INVAL) => {
            retry_on_intr(|| rustix::fs::linkat(dir, from, dir, to, AtFlags::empty()))?;
            // The file has its new name. If the old name cannot be removed, it is a leftover that the next change
            // removes.
            let _ = unlink_at(dir, from);
            Ok(())
        }
        renamed => Ok(renamed?),
    }
}

pub(crate) fn unlink_at(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::unlinkat(dir, name, AtFlags::empty()))?)
}

/// Waits until the file, or the entries of the directory, are on the disk. The kernel reports a failed write-back once
/// and then treats the pages as clean, so a second call proves nothing.
pub(crate) fn sync(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fsync(file))?)
}

/// As [`sync`], without times and other metadata that is not needed to read the contents.
pub(crate) fn sync_data(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fdatasync(file))?)
}

/// Writes at `offset`. May write fewer bytes than offered.
pub(crate) fn write_at(file: BorrowedFd<'_>, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    debug_assert!(slices.len() <= IOV_LIMIT);
    taken(match slices {
        [one] => retry_on_intr(|| rustix::io::pwrite(file, one, offset)),
        many => retry_on_intr(|| rustix::io::pwritev(file, many, offset)),
    })
}

/// Writes at the end of a file opened with [`Access::Append`]. May write fewer bytes than offered.
pub(crate) fn write_end(file: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    taken(retry_on_intr(|| rustix::io::write(file, bytes)))
}

/// Fails if a file system accepts no bytes without an error, which would otherwise loop forever.
fn taken(written: rustix::io::Result<usize>) -> io::Result<usize> {
    match written? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        n => Ok(n),
    }
}

/// Allocates space after the end of the file, without changing its length. Fails if the file system cannot do this.
pub(crate) fn reserve(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, len))?)
}

/// Truncates the file to `len` bytes, and releases space that was [reserved](reserve) behind.
pub(crate) fn set_len(file: BorrowedFd<'_>, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::ftruncate(file, len))?)
}

/// Copies up to `len` bytes inside the kernel,
/// [copy_file_range(2)](https://man7.org/linux/man-pages/man2/copy_file_range.2.html). `Ok(0)` is the end of `from`.
pub(crate) fn copy_range(
    (from, mut at): (BorrowedFd<'_>, u64),
    (to, mut to_at): (BorrowedFd<'_>, u64),
    len: usize,
) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut to_at), len))?)
}

/// Shares all blocks of `from` with `to` at `to_at`, a multiple of the [block size](block_size), without copying,
/// [ioctl_ficlonerange(2)](https://man7.org/linux/man-pages/man2/ioctl_ficlonerange.2.html).
pub(crate) fn clone_all(from: BorrowedFd<'_>, to: BorrowedFd<'_>, to_at: u64) -> io::Result<()> {
    #[repr(C)]
    struct Range {
        from: i64,
        from_at: u64,
        len: u64,
        to_at: u64,
    }
    const FICLONERANGE: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<Range>(0x94, 13);
    let range = Range { from: from.as_raw_fd().into(), from_at: 0, len: 0, to_at };
    // SAFETY: the request number matches, and `Range` has the layout of `struct file_clone_range` in <linux/fs.h>.
    let request = unsafe { rustix::ioctl::Setter::<FICLONERANGE, Range>::new(range) };
    // SAFETY: the kernel only reads the range, which outlives the call, and accesses no other memory of the process.
    // `EINTR` needs no retry: callers fall back on any error.
    Ok(unsafe { rustix::ioctl::ioctl(to, request) }?)
}

/// Moves the contents of the file back by `len` bytes and leaves a hole at its start, `FALLOC_FL_INSERT_RANGE` of
/// [fallocate(2)](https://man7.org/linux/man-pages/man2/fallocate.2.html). `len` must be a multiple of the
/// [block size](block_size), and the file must not be empty.
pub(crate) fn insert_range(file: BorrowedFd<'_>, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::INSERT_RANGE, 0, len))?)
}

/// Reverts [`insert_range`].
pub(crate) fn collapse_range(file: BorrowedFd<'_>, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::COLLAPSE_RANGE, 0, len))?)
}

pub(crate) fn block_size(file: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(retry_on_intr(|| rustix::fs::fstatvfs(file))?.f_bsize)
}

/// Sets user and group; `None` leaves them unchanged.
pub(crate) fn set_owner(file: BorrowedFd<'_>, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
    Ok(retry_on_intr(|| rustix::fs::fchown(file, user, group))?)
}

/// Sets the permission bits, including setuid, setgid and sticky.
pub(crate) fn set_mode(file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o7777)))?)
}

pub(crate) fn attributes(file: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let list = match growing(|buf| rustix::fs::flistxattr(file, buf)) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        list => list?,
    };
    let mut names = Vec::new();
    let mut rest = &list[..];
    while let Ok(name) = CStr::from_bytes_until_nul(rest) {
        names.push(name.to_owned());
        rest = &rest[name.count_bytes() + 1..];
    }
    Ok(names)
}

pub(crate) fn attribute(file: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    match growing(|buf| rustix::fs::fgetxattr(file, name, buf)) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        value => Ok(Some(value?)),
    }
}

/// Sets an extended attribute, or removes it if `value` is `None`.
pub(crate) fn set_attribute(file: BorrowedFd<'_>, name: &CStr, value: Option<&[u8]>) -> io::Result<()> {
    Ok(retry_on_intr(|| match value {
        Some(value) => rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()),
        None => rustix::fs::fremovexattr(file, name),
    })?)
}

/// Reads a value of unknown length with a growing buffer; `read` fails with `ERANGE` if the buffer is too small.
fn growing(read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    const MOST: usize = 128 << 10;
    let mut buf = vec![0; 256];
    loop {
        match read(&mut buf) {
            Ok(n) => {
                buf.truncate(n);
                return Ok(buf);
            }
            Err(Errno::INTR) => {}
            Err(Errno::RANGE) if buf.len() < MOST => buf.resize(buf.len() * 4, 0),
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_file_without_a_name_gets_one_that_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let fd = open_directory(dir.path()).unwrap();
        let file = match create_unnamed(fd.as_fd(), 0o600) {
            Ok(file) if is_linkable(file.as_fd()) => file,
            other => return crate::skips::skip("files without a name", format!("{other:?}")),
        };
        assert_eq!(write_at(file.as_fd(), &[IoSlice::new(b"he"), IoSlice::new(b"llo")], 0).unwrap(), 5);
        std::os::unix::fs::symlink("nowhere", dir.path().join("taken")).unwrap();
        let taken = link_at(file.as_fd(), fd.as_fd(), OsStr::new("taken")).unwrap_err();
        assert_eq!(taken.raw_os_error(), Some(Errno::EXIST.raw_os_error()));
        link_at(file.as_fd(), fd.as_fd(), OsStr::new("free")).unwrap();
        assert_eq!(std::fs::read(dir.path().join("free")).unwrap(), b"hello");
        assert!(!dir.path().join("nowhere").exists());
    }

    #[test]
    fn lists_and_values_of_any_length_are_read() {
        let whole = vec![7; 70_000];
        let read = |most: usize| {
            growing(|buf| {
                if most > buf.len() {
                    return Err(Errno::RANGE);
                }
                buf[..most].copy_from_slice(&whole[..most]);
                Ok(most)
            })
        };
        for len in [0, 1, 256, 257, 65_536] {
            assert_eq!(read(len).unwrap(), whole[..len], "{len}");
        }
        assert_eq!(growing(|_| Err(Errno::RANGE)).unwrap_err(), Errno::RANGE);
    }
}
