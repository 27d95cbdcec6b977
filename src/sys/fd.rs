//! Descriptors, as the rest of the crate sees them: those of the standard library. On Windows, where sockets and files
//! differ, a twin of this module holds either.

pub(crate) use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Implements `AsFd` for a public type by its field.
macro_rules! as_fd {
    ($name:ident, $field:ident) => {
        impl std::os::fd::AsFd for $name {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.$field.as_fd()
            }
        }
    };
}
pub(crate) use as_fd;
