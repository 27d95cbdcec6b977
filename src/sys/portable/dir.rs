//! Names in a directory. All calls **wait for the disk**.

use std::ffi::OsString;
use std::io;

use cap_primitives::fs as beneath;

use super::borrow;
use super::fd::BorrowedFd;
use super::status::FileType;

/// Returns the names in an open directory with their types, in the order of the file system, without `.` and `..`. Stops
/// after `most` names, and then returns `true`.
pub(crate) fn names_blocking(dir: BorrowedFd<'_>, most: usize) -> io::Result<(Vec<(OsString, FileType)>, bool)> {
    let mut names = Vec::new();
    for entry in beneath::read_base_dir(&borrow::file(dir))? {
        let entry = entry?;
        if names.len() == most {
            return Ok((names, true));
        }
        let kind = entry.file_type().map_or(FileType::Unknown, |kind| match () {
            () if kind.is_file() => FileType::RegularFile,
            () if kind.is_dir() => FileType::Directory,
            () if kind.is_symlink() => FileType::Symlink,
            () => FileType::Unknown,
        });
        names.push((entry.file_name(), kind));
    }
    Ok((names, false))
}
