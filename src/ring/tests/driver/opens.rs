//! Opening and closing give the same results on a ring and by plain calls.

use crate::ops::open::{Close, Dir, Open};
use crate::ops::program::Program;
use crate::ops::rw::{Read, Write};
use crate::ops::{StepOutcome, Target};
use crate::ring::tests::both::both_ways;
use crate::sys::errno::Errno;
use crate::sys::fd::OwnedFd;
use crate::sys::path::How;
use bytes::Bytes;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::ffi::CString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

fn path(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).unwrap()
}

fn how(flags: OFlags) -> How {
    How::new(flags, Mode::from_raw_mode(0o600), ResolveFlags::empty())
}

fn dir(path: &Path) -> Dir {
    Dir::of(Arc::new(File::open(path).unwrap()))
}

#[test]
fn descriptors_for_the_caller_are_closed_on_exec() {
    let tree = tempfile::tempdir().unwrap();
    std::fs::write(tree.path().join("file"), "bytes").unwrap();
    let open = || Program::of(Open::new(dir(tree.path()), path("file"), how(OFlags::RDONLY)));
    for mut program in both_ways(open) {
        assert_eq!(program.outcome(0), StepOutcome::Done(0));
        let fd = program.take::<Open>(0).into_fd().unwrap();
        assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert_eq!(std::io::read_to_string(File::from(fd)).unwrap(), "bytes");
    }
}

#[test]
fn a_file_of_the_program_is_opened_used_and_closed() {
    let tree = tempfile::tempdir().unwrap();
    let chain = || {
        let _ = std::fs::remove_file(tree.path().join("new"));
        let mut program = Program::new();
        let n = program.open_next();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        program.push(Open::for_program(Dir::default(), path(tree.path().join("new")), how(flags), n));
        program.push(Write::new(Target::Opened(n), 0, Bytes::from_static(b"bytes")));
        program.push(Read::new(Target::Opened(n), 1, 3));
        program.push(Close::of_program(n));
        program.push(Read::new(Target::Opened(n), 1, 3));
        program
    };
    for mut program in both_ways(chain) {
        assert_eq!(program.outcome(3), StepOutcome::Done(0));
        assert_eq!(program.outcome(4), StepOutcome::Failed(Errno::BADF.raw_os_error()));
        assert_eq!(program.take::<Read>(2).into_bytes(), "yte");
    }
    let mode = std::fs::metadata(tree.path().join("new")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o7777, 0o600);
}

#[test]
fn nothing_is_opened_outside_of_a_directory() {
    let tree = tempfile::tempdir().unwrap();
    std::fs::write(tree.path().join("out"), "").unwrap();
    std::fs::create_dir(tree.path().join("sub")).unwrap();
    let how = How::new(OFlags::RDONLY, Mode::empty(), ResolveFlags::BENEATH);
    let open = || Program::of(Open::new(dir(&tree.path().join("sub")), path("../out"), how));
    for program in both_ways(open) {
        assert_eq!(program.outcome(0), StepOutcome::Failed(Errno::XDEV.raw_os_error()));
    }
}

#[test]
fn a_descriptor_is_closed_exactly_once() {
    // The other end of a pipe shows whether this end is open.
    let is_open = |reader: &OwnedFd| {
        rustix::io::ioctl_fionbio(reader, true).unwrap();
        rustix::io::read(reader, &mut [0; 1]) == Err(Errno::AGAIN)
    };
    let readers = std::cell::RefCell::new(Vec::new());
    let close = || {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert!(is_open(&reader));
        readers.borrow_mut().push(reader);
        Program::of(Close::fd(writer))
    };
    for program in both_ways(close) {
        assert_eq!(program.outcome(0), StepOutcome::Done(0));
        assert_eq!(format!("{:?}", program.into_single::<Close>().0), "Close(Fd(None))");
    }
    let skipped = || {
        let mut program = Program::of(Open::new(Dir::default(), path("/no/such/file"), how(OFlags::RDONLY)));
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        readers.borrow_mut().push(reader);
        program.push(Close::fd(writer));
        program
    };
    for program in both_ways(skipped) {
        assert_eq!(program.outcome(1), StepOutcome::Skipped);
    }
    assert!(!readers.borrow().iter().any(is_open));
}
