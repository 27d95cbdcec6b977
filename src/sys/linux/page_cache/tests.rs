//! Unit tests of `page_cache`.

use std::fs::File;
use std::io::Write;

use super::*;
use crate::skips::skip;
use crate::sys::call::warm_blocking;
use crate::sys::caps::Support;
use crate::sys::fd::AsFd;

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn a_written_file_is_resident_and_a_dropped_one_is_warmed() {
    if let Support::No(why) = Capabilities::get().cachestat() {
        return skip("cachestat", why);
    }
    let f = file(&vec![7; 1 << 20]);
    f.sync_all().unwrap();
    assert!(is_resident(f.as_fd(), 0, 1 << 20));
    assert!(is_resident(f.as_fd(), 5000, 10_000));
    rustix::fs::fadvise(&f, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    if is_resident(f.as_fd(), 0, 1 << 20) {
        return crate::skips::tell("a cold file: this file system keeps pages that it was told to drop");
    }
    warm_blocking(f.as_fd(), 0, 1 << 20).unwrap();
    assert!(is_resident(f.as_fd(), 0, 1 << 20));
}

#[test]
fn reading_without_waiting_gives_cached_bytes() {
    let f = file(b"hello world");
    let mut buf = [0; 32];
    assert_eq!(read_nowait(f.as_fd(), &mut buf, 6).unwrap(), 5);
    assert_eq!(&buf[..5], b"world");
    assert_eq!(read_nowait(f.as_fd(), &mut buf, 11).unwrap(), 0);
}
