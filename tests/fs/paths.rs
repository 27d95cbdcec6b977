//! Whole files by their paths, against std and tokio.

use std::error::Error as _;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use millstream::fs::{self, Durability, Error, Preserve, Replace, Step};
use tempfile::TempDir;

use testkit::ways::on_every_way;
use testkit::{child, limits, noise, skip};

fn errno<T>(result: Result<T, Error>, step: Step, path: &Path) -> Option<i32> {
    let error = result.map(drop).unwrap_err();
    assert_eq!((error.step(), error.path()), (step, path), "{error:?}");
    error.raw_os_error()
}

/// A directory with one file of each kind, and the names of all of them and of some that do not exist.
fn tree() -> (TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, len) in [("empty", 0), ("small", 10), ("page", 4096), ("now", 64 << 10), ("large", 3_000_000)] {
        std::fs::write(at(name), noise(len)).unwrap();
    }
    std::fs::write(at("text"), "süß").unwrap();
    std::fs::create_dir(at("directory")).unwrap();
    std::fs::write(at("directory/file"), "x").unwrap();
    symlink("small", at("link")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("loop", at("loop")).unwrap();
    let names =
        ["empty", "small", "page", "now", "large", "text", "directory", "directory/", "link", "dangling", "loop"];
    let others = ["missing", "missing/file", "small/", "small/file", "", ".", "directory/..", "a\0b"];
    let mut paths: Vec<_> = names.iter().chain(&others).map(|name| at(name)).collect();
    paths.push(at(&"n".repeat(256)));
    paths.push(at(&"n/".repeat(3000)));
    paths.push(PathBuf::new());
    (dir, paths)
}

/// Asserts that an error is that of std: the number, or the kind if there is none.
#[track_caller]
fn same<T: PartialEq>(ours: Result<T, Error>, std: io::Result<T>, step: &[Step], path: &Path) {
    match (ours, std) {
        (Ok(ours), Ok(std)) => assert!(ours == std, "{}", path.display()),
        (Err(ours), Err(std)) => {
            assert_eq!((ours.raw_os_error(), ours.kind()), (std.raw_os_error(), std.kind()), "{}", path.display());
            assert!(step.contains(&ours.step()), "{ours:?}");
            assert_eq!(ours.path(), path);
            assert!(ours.to_string().starts_with(&path.display().to_string()) && ours.source().is_some());
        }
        (ours, std) => panic!("{}: ours {:?}, std {:?}", path.display(), ours.err(), std.err()),
    }
}

#[test]
fn files_are_read_like_by_std_and_tokio() {
    on_every_way(|_| async {
        let (_dir, mut paths) = tree();
        // No length, and more than it said.
        paths.extend(["/proc/self/cmdline", "/proc/version", "/dev/null", "/proc/self/mem/x"].map(PathBuf::from));
        for path in paths {
            let std = std::fs::read(&path).map(Bytes::from);
            same(fs::read(&path).await, std, &[Step::Open, Step::Read], &path);
            let tokio = tokio::fs::read_to_string(&path).await;
            same(fs::read_to_string(&path).await, tokio, &[Step::Open, Step::Read], &path);
        }
    });
}

#[test]
fn a_file_that_is_too_large_for_memory_is_an_error() {
    on_every_way(|_| async {
        // More than the address space, which file systems on disks do not allow.
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return skip("a file of 8 EiB", "no tmpfs") };
        let path = dir.path().join("sparse");
        std::fs::File::create(&path).unwrap().set_len(i64::MAX as u64).unwrap();
        assert_eq!(fs::read(&path).await.unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    });
}

#[test]
fn names_are_removed_like_by_std() {
    on_every_way(|_| async {
        let ((ours, paths), (theirs, others)) = (tree(), tree());
        for (path, other) in paths.iter().zip(&others) {
            same(fs::remove(path).await, std::fs::remove_file(other), &[Step::Remove], path);
            assert_eq!(listing(ours.path()), listing(theirs.path()));
        }
        let left = [".", "./directory", "./directory/file"].map(PathBuf::from);
        assert!(listing(ours.path()).iter().all(|(path, _)| left.contains(path)), "{:?}", listing(ours.path()));
    });
}

/// Every file beneath `dir`, and its contents.
fn listing(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = vec![];
    let mut dirs = vec![PathBuf::from(".")];
    while let Some(at) = dirs.pop() {
        found.push((at.clone(), vec![]));
        for entry in std::fs::read_dir(dir.join(&at)).unwrap() {
            let (entry, path) = (entry.as_ref().unwrap(), at.join(entry.as_ref().unwrap().file_name()));
            let kind = entry.file_type().unwrap();
            match (kind.is_dir(), kind.is_symlink()) {
                (true, _) => dirs.push(path),
                (_, true) => {
                    found.push((path, std::fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes()))
                }
                _ => found.push((path, std::fs::read(entry.path()).unwrap())),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn files_are_renamed_like_by_std() {
    on_every_way(|_| async {
        let count = tree().1.len();
        for from in (0..count).step_by(2) {
            let ((ours, paths), (theirs, others)) = (tree(), tree());
            for to in 0..count {
                let std = std::fs::rename(&others[from], &others[to]);
                let renamed = fs::rename(&paths[from], &paths[to]).await;
                // io_uring and std look at the name and at the other one in different orders.
                let is_name = |path: &PathBuf| {
                    let name = path.as_os_str().as_encoded_bytes();
                    !name.is_empty()
                        && !name.contains(&0)
                        && name.split(|&b| b == b'/').all(|n| n.len() < 256)
                        && name.len() < 4096
                };
                match is_name(&paths[from]) && is_name(&paths[to]) {
                    true => same(renamed, std, &[Step::Rename], &paths[from]),
                    false => assert!(renamed.is_err_and(|e| e.step() == Step::Rename) && std.is_err()),
                }
                assert_eq!(listing(ours.path()), listing(theirs.path()), "{from} to {to}");
            }
        }
    });
}

#[test]
fn files_are_copied_like_by_std() {
    on_every_way(|_| async {
        let (dir, paths) = tree();
        std::fs::set_permissions(dir.path().join("small"), PermissionsExt::from_mode(0o604)).unwrap();
        let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
        for old in [None, Some(0o640)] {
            for from in paths.iter().map(PathBuf::as_path).chain([Path::new("/proc/version"), Path::new("/dev/null")]) {
                for target in [&ours, &theirs] {
                    std::fs::remove_file(target).ok();
                    if let Some(mode) = old {
                        std::fs::write(target, [1; 100_000]).unwrap();
                        std::fs::set_permissions(target, PermissionsExt::from_mode(mode)).unwrap();
                    }
                }
                let copy = Replace::new(&ours).durability(Durability::None).run_copy(from);
                let (copied, std) = (copy.await, std::fs::copy(from, &theirs));
                match (copied, std) {
                    (Ok(copied), Ok(std)) => {
                        assert_eq!(copied, std, "{}", from.display());
                        assert!(std::fs::read(&ours).unwrap() == std::fs::read(&theirs).unwrap());
                        let mode = |path| std::fs::metadata(path).unwrap().mode();
                        assert_eq!(mode(&ours), mode(&theirs), "{}", from.display());
                    }
                    (Err(error), Err(std)) => {
                        // std has no number for what is not a regular file, nor opens a directory for reading.
                        let kinds = (error.kind(), std.kind());
                        let unlike = kinds.0 == io::ErrorKind::InvalidInput && error.step() == Step::Inspect;
                        assert!(unlike || kinds.0 == kinds.1, "{}: {error:?}, {std:?}", from.display());
                        assert_eq!(error.path(), from);
                        assert_eq!(ours.exists(), old.is_some(), "an error leaves what was there");
                    }
                    (ours, std) => panic!("{}: {ours:?}, {std:?}", from.display()),
                }
                let mut names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
                assert!(!names.any(|name| name.to_string_lossy().contains("millstream")), "a leftover");
            }
        }
    });
}

#[test]
fn a_copy_is_whole_and_has_no_special_bits() {
    on_every_way(|_| async {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::write(&from, noise(1_000_000)).unwrap();
        std::fs::set_permissions(&from, PermissionsExt::from_mode(0o6755)).unwrap();
        // Onto itself: std's copy would leave an empty file.
        assert_eq!(fs::copy(&from, &from).await.unwrap(), 1_000_000);
        assert!(std::fs::read(&from).unwrap() == noise(1_000_000));
        std::fs::set_permissions(&from, PermissionsExt::from_mode(0o6755)).unwrap();
        fs::copy(&from, &to).await.unwrap();
        assert_eq!(std::fs::metadata(&to).unwrap().mode() & 0o7777, 0o755);
        Replace::new(&to).mode(0o600).keep(Preserve::Nothing).run_copy(&from).await.unwrap();
        assert_eq!(std::fs::metadata(&to).unwrap().mode() & 0o7777, 0o600);
        // A link at the target is refused, and its file stays.
        std::fs::remove_file(&to).unwrap();
        symlink("from", &to).unwrap();
        let error = fs::copy(&from, &to).await.unwrap_err();
        assert_eq!((error.step(), error.kind()), (Step::Inspect, io::ErrorKind::InvalidInput));
        assert_eq!(
            errno(
                fs::copy(&from, dir.path().join("missing/to")).await,
                Step::OpenDirectory,
                &dir.path().join("missing/to")
            ),
            Some(2)
        );
    });
}

#[test]
fn what_is_not_permitted_is_an_error() {
    const NAME: &str = "paths::what_is_not_permitted_is_an_error";
    if child::task().is_none() {
        child::run(&mut child::command(NAME, "x"));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, closed) = (dir.path().join("file"), dir.path().join("closed"));
    std::fs::create_dir(&closed).unwrap();
    std::fs::write(&file, "x").unwrap();
    std::fs::write(closed.join("file"), "x").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o0)).unwrap();
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o0)).unwrap();
    // Before the runtime starts threads, which have the capabilities of this one.
    limits::drop_capabilities();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let inside = closed.join("file");
        for path in [&file, &inside] {
            assert_eq!(errno(fs::read(path).await, Step::Open, path), Some(13));
            assert_eq!(errno(fs::copy(path, dir.path().join("to")).await, Step::Open, path), Some(13));
        }
        assert_eq!(errno(fs::remove(&inside).await, Step::Remove, &inside), Some(13));
        assert_eq!(errno(fs::rename(&inside, &file).await, Step::Rename, &inside), Some(13));
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    });
}
