//! Errors of files that are answered as absence.

use std::io;

use crate::sys::errno::Errno;

/// Returns whether an error means that there is nothing to serve. The client does not learn why.
pub(super) fn is_absent(error: &io::Error) -> bool {
    match errno(error) {
        Some(errno) => matches!(
            errno,
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ACCESS | Errno::PERM | Errno::NAMETOOLONG
                // Not a file: a socket, a missing device, or a name that the file system does not support.
                | Errno::NXIO | Errno::NODEV | Errno::INVAL | Errno::ILSEQ
        ),
        None => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied),
    }
}

/// Returns whether an error means that there is no such name. This is false for a file that exists but is not served.
pub(super) fn is_missing(error: &io::Error) -> bool {
    match errno(error) {
        Some(errno) => matches!(errno, Errno::NOENT | Errno::NOTDIR),
        None => error.kind() == io::ErrorKind::NotFound,
    }
}

pub(super) fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}
