//! What is promised about a power cut.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys::file;

/// What a change of a file waits for, and so what is left of it after a power cut or a crash of the kernel. The death of
/// the process alone takes nothing back that another process could already see, whatever is chosen here.
///
/// All of it holds on file systems that honour [fsync(2)](https://man7.org/linux/man-pages/man2/fsync.2.html), on disks
/// that do not lie about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// Waits for nothing. After a power cut a replaced file may be the old one, the new one, **or the new one empty or
    /// cut short**: many file systems write a new name before the contents. What was written in place or appended may be
    /// there, or in part, or not.
    None,
    /// Waits for the contents. A replaced file is synced **before** it gets its name, so that after a power cut it is the
    /// old or the new one, whole; which of them is open even after `Ok`. What was written in place or appended to an
    /// existing file is there after `Ok`; a file that `append` made may be missing.
    Data,
    /// Waits for the contents, the metadata and the directory. After `Ok` the change survives; before, a replaced file is
    /// the old or the new one, whole.
    #[default]
    Full,
}

impl Durability {
    /// Syncs a file that was changed in place.
    pub(super) fn sync_in_place(self, file: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Data => file::sync_data(file),
            Self::Full => file::sync(file),
        }
    }
}
