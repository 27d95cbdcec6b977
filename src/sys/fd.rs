//! Descriptors for the rest of the crate: the types of the standard library. On Windows, where sockets and files
//! differ, a twin of this module has a type for both.

pub(crate) use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Returns the number of a descriptor, for messages.
pub(crate) fn number(fd: BorrowedFd<'_>) -> impl std::fmt::Display {
    std::os::fd::AsRawFd::as_raw_fd(&fd)
}

/// Implements `AsFd` for a public type by its field.
macro_rules! as_fd {
    ($name:ident, $($field:tt)+) => {
        impl std::os::fd::AsFd for $name {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.$($field)+.as_fd()
            }
        }
    };
}
pub(crate) use as_fd;
// On Windows files and sockets have different traits.
pub(crate) use as_fd as file_as_fd;
