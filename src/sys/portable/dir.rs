//! Names in a directory. All calls **wait for the disk**.

use std::ffi::OsStr;
use std::io;

use cap_primitives::fs as beneath;

use super::borrow;
use super::fd::BorrowedFd;
use super::status::FileType;

/// Calls `each` with the names in an open directory and their types, in the order of the file system, without `.` and
/// `..`. Stops after `most` names, and then returns `true`.
pub(crate) fn names_blocking(
    dir: BorrowedFd<'_>,
    most: usize,
    mut each: impl FnMut(&OsStr, FileType) -> io::Result<()>,
) -> io::Result<bool> {
    for (names, entry) in beneath::read_base_dir(&borrow::file(dir))?.enumerate() {
        let entry = entry?;
        if names == most {
            return Ok(true);
        }
        let kind = entry.file_type().map_or(FileType::Unknown, |kind| match () {
            () if kind.is_file() => FileType::RegularFile,
            () if kind.is_dir() => FileType::Directory,
            () if kind.is_symlink() => FileType::Symlink,
            () => FileType::Unknown,
        });
        each(&entry.file_name(), kind)?;
    }
    Ok(false)
}
