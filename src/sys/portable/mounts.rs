//! File systems that open a file from the memory of this machine: none is known.

use super::fd::BorrowedFd;

pub(crate) fn may_wait(_: BorrowedFd<'_>) -> bool {
    true
}
