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
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn nothing_changes_a_sealed_file() {
        let file = create().unwrap();
        rustix::io::pwrite(&file, b"frame", 0).unwrap();
        assert!(sealed_len(file.as_fd()).is_err(), "not sealed yet");
        seal(file.as_fd()).unwrap();
        assert_eq!(sealed_len(file.as_fd()), Ok(5));
        assert_eq!(rustix::io::pwrite(&file, b"F", 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&file, 4), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&file, 6), Err(Errno::PERM));
        let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(&file, hole, 0, 5), Err(Errno::PERM));
        assert_eq!(rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE), Err(Errno::PERM), "no further seals");
    }

    #[test]
    fn each_seal_is_needed() {
        for missing in [SealFlags::WRITE, SealFlags::SHRINK, SealFlags::GROW] {
            let file = create().unwrap();
            rustix::fs::fcntl_add_seals(&file, FIXED.difference(missing)).unwrap();
            assert!(sealed_len(file.as_fd()).is_err(), "{missing:?}");
        }
        // Existing mappings stay writable under this one.
        let file = create().unwrap();
        let future = FIXED.difference(SealFlags::WRITE) | SealFlags::FUTURE_WRITE;
        rustix::fs::fcntl_add_seals(&file, future).unwrap();
        assert!(sealed_len(file.as_fd()).is_err());
    }

    #[test]
    fn other_descriptors_are_no_frames() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let file = tempfile::tempfile().unwrap();
        for fd in [reader.as_fd(), writer.as_fd(), file.as_fd()] {
            assert!(sealed_len(fd).is_err());
        }
        let Ok(huge) = rustix::fs::memfd_create(c"huge", MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB) else {
            return testkit::skips::tell("huge pages: the kernel has none");
        };
        rustix::fs::ftruncate(&huge, 2 << 20).unwrap();
        seal(huge.as_fd()).unwrap();
        assert_eq!(sealed_len(huge.as_fd()), Err("the memfd has huge pages"));
    }
}
