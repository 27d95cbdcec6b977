//! Files in memory that are sealed: their bytes never change
//! ([memfd_create(2)](https://man7.org/linux/man-pages/man2/memfd_create.2.html),
//! [fcntl(2)](https://man7.org/linux/man-pages/man2/fcntl.2.html)).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{FileType, MemfdFlags, SealFlags};
use rustix::io::{Errno, retry_on_intr};

/// Seals that fix every byte of a file and its length. None of them can be removed.
const FIXED: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);
/// `TMPFS_MAGIC` of <linux/magic.h>: the file system of memfds.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Creates an empty file that can be sealed.
pub(crate) fn create() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(c"millstream", flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux 6.3 has the flag. `vm.memfd_noexec` may demand it.
        Err(Errno::INVAL) => Ok(rustix::fs::memfd_create(c"millstream", flags)?),
        created => Ok(created?),
    }
}

/// Writes at `offset`. May write fewer bytes than offered.
pub(crate) fn write_at(file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<usize> {
    match retry_on_intr(|| rustix::io::pwrite(file, bytes, offset))? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        n => Ok(n),
    }
}

/// Reads at `offset`; `Ok(0)` is the end.
pub(crate) fn read_at(file: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::pread(file, &mut *buf, offset))?)
}

/// Makes the contents of a file of [`create`] final.
pub(crate) fn seal(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fcntl_add_seals(file, FIXED | SealFlags::SEAL))?)
}

/// Returns the length of a file whose bytes can never change, or the reason why they can.
pub(crate) fn sealed_len(file: BorrowedFd<'_>) -> Result<u64, &'static str> {
    // Only files in memory have seals.
    let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| "the descriptor is not a memfd")?;
    if !seals.contains(FIXED) {
        return Err("the memfd is not sealed against writing, shrinking and growing");
    }
    // A mapping of huge pages is rounded up to their size, beyond the addresses that are set aside for it.
    if !rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type as u64 == TMPFS_MAGIC) {
        return Err("the memfd has huge pages");
    }
    let status = rustix::fs::fstat(file).map_err(|_| "the memfd has no status")?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err("the descriptor is not a regular file");
    }
    u64::try_from(status.st_size).map_err(|_| "the memfd has no length")
}

#[cfg(test)]
mod tests;
