//! Calls that were interrupted, and errors that differ from those of Linux.

use std::io;

use super::errno::Errno;

pub(super) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Returns the error of a path that leads out of its directory as Linux does: `EXDEV`.
pub(super) fn escape(error: io::Error) -> io::Error {
    // The library has its own error for this, without a number.
    match error.kind() {
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => Errno::XDEV.into(),
        _ => error,
    }
}
