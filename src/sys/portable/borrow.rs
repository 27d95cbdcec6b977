//! A borrowed descriptor, as a file of std.

#![allow(unsafe_code)]

use std::fs::File;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
#[cfg(unix)]
use std::os::fd::{AsRawFd, FromRawFd};
#[cfg(windows)]
use std::os::windows::io::{AsRawHandle, FromRawHandle};

use super::fd::BorrowedFd;

/// A file that is not closed when dropped.
#[derive(Debug)]
pub(crate) struct FileRef<'a>(ManuallyDrop<File>, PhantomData<BorrowedFd<'a>>);

impl Deref for FileRef<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

/// Returns a descriptor as a file. On Windows it must not be a socket.
#[expect(clippy::disallowed_methods, reason = "the file is never closed")]
pub(crate) fn file(fd: BorrowedFd<'_>) -> FileRef<'_> {
    #[cfg(unix)]
    let raw = fd.as_raw_fd();
    #[cfg(windows)]
    let raw = match fd {
        BorrowedFd::File(file) => file.as_raw_handle(),
        BorrowedFd::Socket(socket) => panic!("internal: {socket:?} is no file"),
    };
    // SAFETY: the descriptor is open while the borrow lives, and the file does not close it.
    #[cfg(unix)]
    let file = unsafe { File::from_raw_fd(raw) };
    // SAFETY: as above.
    #[cfg(windows)]
    let file = unsafe { File::from_raw_handle(raw) };
    FileRef(ManuallyDrop::new(file), PhantomData)
}
