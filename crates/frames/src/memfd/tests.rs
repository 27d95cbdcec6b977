//! Unit tests of `memfd`.

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
