//! Names in a directory. All calls **wait for the disk**.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

/// Length of the buffer that the kernel fills with one call: about 1000 names.
const BUFFER: usize = 32 << 10;

/// Calls `each` with the names in an open directory and their types, in the order of the file system, without `.` and
/// `..`, [getdents64(2)](https://man7.org/linux/man-pages/man2/getdents.2.html). Stops after `most` names, and then
/// returns `true`. Some file systems do not report types.
pub(crate) fn names_blocking(
    dir: BorrowedFd<'_>,
    most: usize,
    mut each: impl FnMut(&OsStr, FileType) -> io::Result<()>,
) -> io::Result<bool> {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut names = 0;
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Err(Errno::INTR) => continue,
            entry => entry?,
        };
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if names == most {
            return Ok(true);
        }
        names += 1;
        each(OsStr::from_bytes(name), entry.file_type())?;
    }
    Ok(false)
}
