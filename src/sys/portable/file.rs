//! Calls that change files: names, contents, metadata, locks.
//!
//! All of them **wait for the disk** and belong on the blocking pool. Names are relative to an open directory, and no
//! final symbolic link is followed.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::path::Path;

use cap_fs_ext::{OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_primitives::fs as beneath;
use cap_primitives::fs::{FollowSymlinks, OpenOptions};

use super::fd::{BorrowedFd, OwnedFd};
use super::retry::escape;
use super::retry::uninterrupted;
use super::{borrow, unsupported};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    Read,
    Change,
    Append,
    Write,
}

/// Opens a directory that can be synced.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    #[cfg(unix)]
    return Ok(std::os::unix::fs::OpenOptionsExt::custom_flags(File::options().read(true), libc::O_DIRECTORY)
        .open(path)?
        .into());
    #[cfg(windows)]
    return Ok(beneath::open_ambient_dir(path, cap_primitives::ambient_authority())?.into());
}

/// Opens an existing file. A FIFO opens without waiting for its other end, so the caller must check the file type.
pub(crate) fn open_at(dir: BorrowedFd<'_>, name: &OsStr, access: Access) -> io::Result<OwnedFd> {
    open(dir, name, access.options().nonblock(true))
}

/// Opens an existing file for reading, and follows links. Same as [`open_at`] for a FIFO.
pub(crate) fn open_followed(path: &Path) -> io::Result<OwnedFd> {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    Ok(options.read(true).open(path)?.into())
}

/// Creates a file. Fails if the name exists, even as a dangling symbolic link.
pub(crate) fn create_at(dir: BorrowedFd<'_>, name: &OsStr, access: Access, mode: u32) -> io::Result<OwnedFd> {
    let mut options = access.options();
    #[cfg(unix)]
    beneath::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(windows)]
    let _ = mode;
    open(dir, name, options.create_new(true))
}

impl Access {
    fn options(self) -> OpenOptions {
        let mut options = OpenOptions::new();
        match self {
            Self::Read => options.read(true),
            Self::Change => options.read(true).write(true),
            Self::Append => options.append(true),
            Self::Write => options.write(true),
        };
        options
    }
}

fn open(dir: BorrowedFd<'_>, name: &OsStr, options: &mut OpenOptions) -> io::Result<OwnedFd> {
    let options = options.follow(FollowSymlinks::No);
    let file = uninterrupted(|| beneath::open(&borrow::file(dir), Path::new(name), options));
    Ok(file.map_err(escape)?.into())
}

pub(crate) fn create_unnamed(_: BorrowedFd<'_>, _: u32) -> io::Result<OwnedFd> {
    Err(unsupported("every file has a name"))
}

pub(crate) fn is_linkable(_: BorrowedFd<'_>) -> bool {
    false
}

pub(crate) fn link_at(_: BorrowedFd<'_>, _: BorrowedFd<'_>, _: &OsStr) -> io::Result<()> {
    Err(unsupported("every file has a name"))
}

/// Renames `from` to `to`, which is replaced atomically.
pub(crate) fn rename_at(dir: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> io::Result<()> {
    let dir = borrow::file(dir);
    uninterrupted(|| beneath::rename(&dir, Path::new(from), &dir, Path::new(to))).map_err(escape)
}

/// Renames `from` to `to`. Fails with `EEXIST` if that name is in use, even by a dangling symbolic link.
pub(crate) fn rename_new_at(dir: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> io::Result<()> {
    let file = borrow::file(dir);
    beneath::hard_link(&file, Path::new(from), &file, Path::new(to)).map_err(escape)?;
    // The file has its new name. If the old name cannot be removed, it is a leftover that the next change removes.
    let _ = unlink_at(dir, from);
    Ok(())
}

pub(crate) fn unlink_at(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    uninterrupted(|| beneath::remove_file(&borrow::file(dir), Path::new(name))).map_err(escape)
}

/// Waits until the file, or the entries of the directory, are on the disk. Windows syncs no directories.
pub(crate) fn sync(file: BorrowedFd<'_>) -> io::Result<()> {
    let file = borrow::file(file);
    if cfg!(windows) && file.metadata()?.is_dir() {
        return Ok(());
    }
    file.sync_all()
}

pub(crate) fn sync_data(file: BorrowedFd<'_>) -> io::Result<()> {
    borrow::file(file).sync_data()
}

/// Writes at `offset`. May write fewer bytes than offered.
pub(crate) fn write_at(file: BorrowedFd<'_>, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    match slices.iter().find(|slice| !slice.is_empty()) {
        Some(slice) => taken(write_piece(&borrow::file(file), slice, offset)),
        None => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Writes at the end of a file opened with [`Access::Append`]. May write fewer bytes than offered.
pub(crate) fn write_end(file: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    taken(uninterrupted(|| (&*borrow::file(file)).write(bytes)))
}

/// Fails if a file system accepts no bytes without an error, which would otherwise loop forever.
fn taken(written: io::Result<usize>) -> io::Result<usize> {
    match written? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        n => Ok(n),
    }
}

#[cfg(unix)]
pub(super) fn write_piece(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    uninterrupted(|| std::os::unix::fs::FileExt::write_at(file, bytes, offset))
}

/// Also moves the position of the file, which nothing here uses.
#[cfg(windows)]
pub(super) fn write_piece(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset)
}

#[cfg(unix)]
pub(super) fn read_piece(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    uninterrupted(|| std::os::unix::fs::FileExt::read_at(file, buf, offset))
}

#[cfg(windows)]
pub(super) fn read_piece(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buf, offset)
}

pub(crate) fn reserve(_: BorrowedFd<'_>, _: u64, _: u64) -> io::Result<()> {
    Err(unsupported("no space on the disk is reserved"))
}

/// Truncates the file to `len` bytes.
pub(crate) fn set_len(file: BorrowedFd<'_>, len: u64) -> io::Result<()> {
    borrow::file(file).set_len(len)
}

pub(crate) fn copy_range(_: (BorrowedFd<'_>, u64), _: (BorrowedFd<'_>, u64), _: usize) -> io::Result<usize> {
    Err(unsupported("files are not copied inside the kernel"))
}

pub(crate) fn clone_all(_: BorrowedFd<'_>, _: BorrowedFd<'_>, _: u64) -> io::Result<()> {
    Err(unsupported("files share no blocks"))
}

pub(crate) fn insert_range(_: BorrowedFd<'_>, _: u64) -> io::Result<()> {
    Err(unsupported("no bytes are inserted into a file"))
}

pub(crate) fn collapse_range(_: BorrowedFd<'_>, _: u64) -> io::Result<()> {
    Err(unsupported("no bytes are taken out of a file"))
}

pub(crate) fn block_size(_: BorrowedFd<'_>) -> io::Result<u64> {
    Err(unsupported("no bytes are inserted into a file"))
}

/// Sets user and group; `None` leaves them unchanged. Windows has neither.
pub(crate) fn set_owner(file: BorrowedFd<'_>, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    #[cfg(unix)]
    std::os::unix::fs::fchown(file, user, group)?;
    #[cfg(windows)]
    let _ = (file, user, group);
    Ok(())
}

/// Sets the permission bits, including setuid, setgid and sticky. Windows has none.
pub(crate) fn set_mode(file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    #[cfg(unix)]
    borrow::file(file).set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode & 0o7777))?;
    #[cfg(windows)]
    let _ = (file, mode);
    Ok(())
}

/// Extended attributes are not read.
pub(crate) fn attributes(_: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    Ok(Vec::new())
}

pub(crate) fn attribute(_: BorrowedFd<'_>, _: &CStr) -> io::Result<Option<Vec<u8>>> {
    Ok(None)
}

pub(crate) fn set_attribute(_: BorrowedFd<'_>, _: &CStr, _: Option<&[u8]>) -> io::Result<()> {
    Err(unsupported("files have no extended attributes"))
}
