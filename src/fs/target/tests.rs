//! Unit tests of `target`.

use super::*;
use std::error::Error as _;

#[test]
fn paths_are_split_at_the_last_slash() {
    let parts = |path: &'static str| split(Path::new(path)).map(|(dir, name)| (dir.to_str().unwrap(), name));
    assert_eq!(parts("state.json"), Some((".", "state.json".into())));
    assert_eq!(parts("a/b/c"), Some(("a/b", "c".into())));
    assert_eq!(parts("/c"), Some(("/", "c".into())));
    for path in ["", "/", "a/", "a/.", "..", "a/..", "."] {
        assert_eq!(parts(path), None, "{path}");
    }
}

#[test]
fn what_became_something_else_since_it_was_looked_at_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "x").unwrap();
    let (target, found) = Target::open(&path, false).unwrap();
    assert!(found.is_some());
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
    let error = target.open_old(Access::Read).unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), "a FIFO, not a regular file");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    assert_eq!(target.open_old(Access::Change).unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()));
}

#[test]
fn the_directory_stays_the_one_that_was_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (before, after) = (dir.path().join("before"), dir.path().join("after"));
    std::fs::create_dir(&before).unwrap();
    std::fs::write(before.join("file"), "x").unwrap();
    let (target, _) = Target::open(&before.join("file"), false).unwrap();
    std::fs::rename(&before, &after).unwrap();
    std::fs::create_dir(&before).unwrap();
    assert!(target.status().unwrap().is_some());
    assert!(target.open_old(Access::Read).is_ok());
}
