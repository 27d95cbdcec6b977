//! Guarantees about power cuts.

use std::io;

use crate::sys::fd::BorrowedFd;
use crate::sys::file;

/// Guarantee about a change of a file after a power cut or a crash of the kernel. If only the process dies, every
/// change that another process could see remains, for every value.
///
/// Requires file systems that honour [fsync(2)](https://man7.org/linux/man-pages/man2/fsync.2.html), and disks that
/// report syncs correctly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// Waits for nothing. After a power cut a replaced file may be the old one, the new one, **or the new one empty,
    /// truncated or with zeros in it**: many file systems write a new name before the contents. Bytes written in place
    /// or appended may be complete, partial, or missing.
    None,
    /// Waits for the contents. A replaced file is synced **before** it gets its name, so after a power cut it is
    /// completely the old or completely the new one, even after `Ok`. Bytes written in place or appended to an existing
    /// file remain after `Ok`; a file created by `append` may be missing.
    Data,
    /// Waits for the contents, the metadata and the directory. After `Ok` the change survives; before, a replaced file
    /// is completely the old or completely the new one.
    #[default]
    Full,
}

impl Durability {
    pub(super) fn sync_in_place(self, file: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Data => file::sync_data(file),
            Self::Full => file::sync(file),
        }
    }
}
