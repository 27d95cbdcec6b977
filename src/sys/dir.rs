//! Names in a directory. All calls **wait for the disk**.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

/// Length of the buffer that the kernel fills with one call: about 1000 names.
const BUFFER: usize = 32 << 10;

/// Returns the names in an open directory with their types, in the order of the file system, without `.` and `..`,
/// [getdents64(2)](https://man7.org/linux/man-pages/man2/getdents.2.html). Stops after `most` names, and then returns
/// `true`. Some file systems do not tell types.
pub(crate) fn names_blocking(dir: BorrowedFd<'_>, most: usize) -> io::Result<(Vec<(OsString, FileType)>, bool)> {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Err(Errno::INTR) => continue,
            entry => entry?,
        };
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if names.len() == most {
            return Ok((names, true));
        }
        names.push((OsString::from_vec(name.to_vec()), entry.file_type()));
    }
    Ok((names, false))
}
