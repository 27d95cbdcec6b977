//! Unit tests of `peer`.

use super::*;
use rustix::fs::{CWD, OFlags};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

#[test]
fn files_and_directories_of_this_machine_do_not_wait() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!may_wait(tempfile::tempfile().unwrap().as_fd()));
    assert!(!may_wait(std::fs::File::open(dir.path()).unwrap().as_fd()));
}

#[test]
fn pipes_sockets_and_devices_may() {
    let (reader, writer) = std::io::pipe().unwrap();
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    for fd in [reader.as_fd(), writer.as_fd(), socket.as_fd(), event.as_fd(), null.as_fd()] {
        assert!(may_wait(fd));
    }
}

#[test]
fn paths_are_looked_at_without_opening_them() {
    let dir = tempfile::tempdir().unwrap();
    let (file, fifo) = (dir.path().join("file"), dir.path().join("fifo"));
    std::fs::write(&file, "").unwrap();
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let how = How::new(OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, Mode::RUSR, ResolveFlags::empty());
    for (file, waits) in [(file, false), (dir.path().join("missing"), false), (fifo, true)] {
        let known = path_may_wait(CWD, &path(&file), &how);
        assert!(known.is_none_or(|known| known == waits), "{}", file.display());
        assert_eq!(path_may_wait_blocking(CWD, &path(&file), &how), waits, "{}", file.display());
    }
}
