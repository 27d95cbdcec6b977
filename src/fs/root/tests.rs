//! Unit tests of `root`.

use super::*;
use crate::report::report;
use std::os::unix::fs::symlink;

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("sub/file"), "bytes").unwrap();
    symlink("sub/file", dir.path().join("in")).unwrap();
    symlink("/etc/passwd", dir.path().join("out")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("fifo"), 0o600.into()).unwrap();
    dir
}

async fn errno(root: &Root, path: &str) -> Option<i32> {
    root.open(path).await.unwrap_err().raw_os_error()
}

#[tokio::test]
#[cfg_attr(portable, ignore = "paths are resolved by calls that may wait")]
async fn regular_files_are_opened_and_directories_are_named() {
    let dir = tree();
    let root = Root::open_dir(dir.path()).unwrap();
    let path = Path::new("sub/file");
    let file = root.open(path).await.unwrap();
    assert_eq!(file.read_at(0, 100).await.unwrap(), "bytes");
    assert_eq!((file.path(), file.opened().len()), (path, 5));
    assert_eq!(root.status_now(path).unwrap(), *file.opened());
    assert_eq!(errno(&root, "sub").await, Some(Errno::ISDIR.raw_os_error()));
    assert!(root.open_blocking(path).is_ok());
}

#[tokio::test]
#[cfg_attr(portable, ignore = "paths are resolved by calls that may wait")]
async fn nothing_leads_out() {
    let dir = tree();
    let root = Root::open_dir(dir.path()).unwrap();
    assert_eq!(errno(&root, "out").await, Some(Errno::LOOP.raw_os_error()));
    assert_eq!(errno(&root, "in").await, Some(Errno::LOOP.raw_os_error()));
    assert_eq!(errno(&root, "../x").await, Some(Errno::XDEV.raw_os_error()));
    assert_eq!(errno(&root, "/etc/passwd").await, Some(Errno::XDEV.raw_os_error()));
    let root = root.follow_links_beneath(true);
    assert_eq!(errno(&root, "out").await, Some(Errno::XDEV.raw_os_error()));
    assert!(root.open("in").await.is_ok());
    assert_eq!(root.status_now(Path::new("in")).unwrap(), root.status_now(Path::new("sub/file")).unwrap());
}

#[tokio::test]
async fn what_is_no_file_is_refused_by_name() {
    let dir = tree();
    let root = Root::open_dir(dir.path()).unwrap();
    let error = root.open("fifo").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(report(&error), "fifo: open the file: a FIFO, not a regular file");
    let dev = Root::open_dir("/dev").unwrap();
    assert!(report(&dev.open("null").await.unwrap_err()).contains("a device"));
}

#[test]
fn a_missing_directory_is_named() {
    let error = Root::open_dir("/nowhere/at/all").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert_eq!(error.to_string(), "/nowhere/at/all: open the directory");
}

#[test]
#[cfg_attr(portable, ignore = "openat2 is not used")]
fn without_openat2_there_is_no_root() {
    const CHILD: &str = "MILLSTREAM_TEST_WITHOUT_OPENAT2";
    if std::env::var_os(CHILD).is_some() {
        let error = Root::open_dir("/").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(report(&error).contains("openat2"), "{error}");
        return;
    }
    // The answers of probes are kept by the process, so this test needs its own.
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fs::root::tests::without_openat2_there_is_no_root"])
        .env(CHILD, "1")
        .env("MILLSTREAM_DISABLE", "openat2")
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"));
}
