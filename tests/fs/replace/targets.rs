//! Existing targets: files with metadata to keep, and paths that are not regular files.

use std::ffi::CStr;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use millstream::fs::{Append, Durability, Error, Prepend, Preserve, Replace, Step, append, replace};
use rustix::fs::{CWD, Mode, XattrFlags, chownat, mkfifoat};

use super::child::{self, Proc, Work};
use super::{HEADER, NEW, OLD, block_on, holds, listing, only, with_header};
use testkit::report::report;
use testkit::skip;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

async fn all(path: &Path, follow: bool) -> [Result<(), Error>; 3] {
    [
        Replace::new(path).follow_link(follow).run(NEW.clone()).await,
        Prepend::new(path).follow_link(follow).run(HEADER.clone()).await.map(drop),
        Append::new(path).follow_link(follow).run("tail").await,
    ]
}

#[test]
fn what_is_no_file_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("file"), "precious").unwrap();
    std::fs::create_dir(path("dir")).unwrap();
    mkfifoat(CWD, path("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    symlink("file", path("link")).unwrap();
    symlink("nowhere", path("dangling")).unwrap();
    symlink("fifo", path("link-to-fifo")).unwrap();
    let names = listing(dir.path());
    block_on(async {
        for (name, follow, why) in [
            ("dir", false, "a directory, not a regular file"),
            ("fifo", false, "a FIFO, not a regular file"),
            ("link-to-fifo", true, "a FIFO, not a regular file"),
            ("link", false, "a symbolic link; follow_link(true) changes the file it leads to"),
            ("dangling", false, "a symbolic link; follow_link(true) changes the file it leads to"),
            ("dir/", false, "the last part of the path is not the name of a file"),
            ("dir/..", false, "the last part of the path is not the name of a file"),
        ] {
            for result in all(&path(name), follow).await {
                let error = result.unwrap_err();
                assert_eq!((error.step(), error.kind()), (Step::Inspect, ErrorKind::InvalidInput), "{error}");
                assert_eq!(report(&error), format!("{}: look at the file: {why}", path(name).display()));
            }
        }
        for result in all(&path("dangling"), true).await {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
        }
        for result in all(Path::new("/dev/null"), false).await {
            assert!(report(&result.unwrap_err()).ends_with("a device, not a regular file"));
        }
        for result in all(&path("missing/file"), false).await {
            let error = result.unwrap_err();
            assert_eq!((error.step(), error.raw_os_error()), (Step::OpenDirectory, Some(2)));
        }
        let error = Prepend::new(path("missing")).run("x").await.unwrap_err();
        assert_eq!((error.step(), error.kind()), (Step::Inspect, ErrorKind::NotFound));
    });
    only(dir.path(), &names.iter().map(String::as_str).collect::<Vec<_>>());
    holds(&path("file"), b"precious");
}

#[test]
fn a_link_is_followed_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (sub, link) = (dir.path().join("sub"), dir.path().join("link"));
    std::fs::create_dir(&sub).unwrap();
    std::fs::write(sub.join("file"), &*OLD).unwrap();
    symlink("sub/hop", &link).unwrap();
    symlink("file", sub.join("hop")).unwrap();
    block_on(async {
        Prepend::new(&link).follow_link(true).run(HEADER.clone()).await.unwrap();
        holds(&sub.join("file"), &with_header());
        Replace::new(&link).follow_link(true).run("new ").await.unwrap();
        Append::new(&link).follow_link(true).run("and more").await.unwrap();
    });
    holds(&sub.join("file"), b"new and more");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    only(dir.path(), &["link", "sub"]);
    only(&sub, &["file", "hop"]);
}

#[test]
fn other_names_of_the_file_keep_the_old_contents() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("file"), dir.path().join("other"));
    std::fs::write(&path, &*OLD).unwrap();
    std::fs::hard_link(&path, &other).unwrap();
    block_on(replace(&path, NEW.clone())).unwrap();
    holds(&path, &NEW);
    holds(&other, &OLD);
}

#[test]
fn what_is_planted_at_the_names_of_temp_files_is_neither_written_nor_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, &*OLD).unwrap();
    std::fs::write(dir.path().join("victim"), "precious").unwrap();
    let planted = |n| dir.path().join(format!(".file.millstream-{n}"));
    symlink("victim", planted(0)).unwrap();
    mkfifoat(CWD, planted(1), Mode::RUSR | Mode::WUSR).unwrap();
    std::fs::create_dir(planted(2)).unwrap();
    symlink("../file", planted(3)).unwrap();
    // One file of a live writer, and a leftover with two names.
    std::fs::write(planted(4), "of a living writer").unwrap();
    let living = std::fs::File::open(planted(4)).unwrap();
    living.lock().unwrap();
    std::fs::hard_link(dir.path().join("victim"), planted(5)).unwrap();
    std::fs::write(planted(6), "left").unwrap();
    symlink("/nowhere", planted(7)).unwrap();
    block_on(replace(&path, NEW.clone())).unwrap();
    let left: Vec<_> = listing(dir.path()).into_iter().filter(|name| name.starts_with('.')).collect();
    assert_eq!(left, [0, 1, 2, 3, 4, 7].map(|n| format!(".file.millstream-{n}")));
    holds(&path, &NEW);
    holds(&dir.path().join("victim"), b"precious");
    holds(&planted(4), b"of a living writer");
    // A name is found even if no slot is free.
    symlink("victim", planted(5)).unwrap();
    symlink("victim", planted(6)).unwrap();
    block_on(replace(&path, OLD.clone())).unwrap();
    holds(&path, &OLD);
    holds(&dir.path().join("victim"), b"precious");
    assert_eq!(listing(dir.path()).len(), 10);
    living.unlock().unwrap();
    block_on(replace(&path, NEW.clone())).unwrap();
    assert!(!planted(4).exists());
}

#[test]
fn what_is_planted_is_not_followed_where_temp_files_must_have_names() {
    let (dir, path) = child::with_old();
    std::fs::write(dir.path().join("victim"), "precious").unwrap();
    for n in 0..8 {
        symlink(["victim", "nowhere"][n % 2], dir.path().join(format!(".file.millstream-{n}"))).unwrap();
    }
    let before = listing(dir.path());
    let Some(ended) = child::run("planted names, without /proc", Work::Replace, &path, &[], Proc::Missing) else {
        return;
    };
    assert_eq!(ended.said, "done");
    holds(&path, &NEW);
    holds(&dir.path().join("victim"), b"precious");
    assert_eq!(listing(dir.path()), before);
}

#[test]
fn a_name_of_any_length_and_any_bytes_will_do() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    for name in [&[b'n'; 255][..], b"\xff\xfe", b"-", b" "] {
        let path = dir.path().join(std::ffi::OsStr::from_bytes(name));
        block_on(replace(&path, "new")).unwrap();
        holds(&path, b"new");
        std::fs::remove_file(&path).unwrap();
    }
    only(dir.path(), &[]);
}

#[test]
fn permissions_are_those_of_the_old_file_the_umask_or_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    block_on(async {
        replace(&path, "made").await.unwrap();
        assert_eq!(mode(&path), mode(&plain));
        append(dir.path().join("appended"), "made").await.unwrap();
        assert_eq!(mode(&dir.path().join("appended")), mode(&plain));
        for bits in [0o600, 0o444, 0o4755, 0o1751, 0o000] {
            set_mode(&path, bits);
            // Without root the last one may be unreadable, so it cannot be kept.
            if std::fs::File::open(&path).is_err() {
                assert_eq!(replace(&path, "x").await.unwrap_err().step(), Step::Open);
                Replace::new(&path).keep(Preserve::Possible).run("kept").await.unwrap();
            } else {
                replace(&path, "kept").await.unwrap();
            }
            assert_eq!(mode(&path), bits);
        }
        set_mode(&path, 0o640);
        Prepend::new(&path).run("head").await.unwrap();
        assert_eq!(mode(&path), 0o640);
        Replace::new(&path).mode(0o2711).run("asked for").await.unwrap();
        assert_eq!(mode(&path), 0o2711);
        Replace::new(&path).keep(Preserve::Nothing).run("new").await.unwrap();
        assert_eq!(mode(&path), mode(&plain));
        Replace::new(dir.path().join("secret")).mode(0o600).run("new").await.unwrap();
        assert_eq!(mode(&dir.path().join("secret")), 0o600);
    });
}

fn attribute(path: &Path, name: &CStr) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let len = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// An access control list in the kernel's format: owner rw, user 12345 r, group r, mask r, others none.
const LIST: [u8; 44] = {
    let entries: [(u8, u8, u32); 5] = [(1, 6, !0), (2, 4, 12345), (4, 4, !0), (16, 4, !0), (32, 0, !0)];
    let mut bytes = [0; 44];
    bytes[0] = 2;
    let mut n = 0;
    while n < 5 {
        let (at, id) = (4 + 8 * n, entries[n].2.to_le_bytes());
        (bytes[at], bytes[at + 2]) = (entries[n].0, entries[n].1);
        (bytes[at + 4], bytes[at + 5], bytes[at + 6], bytes[at + 7]) = (id[0], id[1], id[2], id[3]);
        n += 1;
    }
    bytes
};

#[test]
fn attributes_and_access_lists_are_kept() {
    if testkit::portable("extended attributes are not kept") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, &*OLD).unwrap();
    let long = super::noise(2000);
    let (tag, large, list) = (c"user.tag", c"user.large", c"system.posix_acl_access");
    for (name, value) in [(tag, &b"value"[..]), (large, &long), (list, &LIST)] {
        if let Err(e) = rustix::fs::setxattr(&path, name, value, XattrFlags::empty()) {
            return skip("attributes are kept", format_args!("{}: {e}", dir.path().display()));
        }
    }
    let kept = || {
        assert_eq!(attribute(&path, tag).as_deref(), Some(&b"value"[..]));
        assert_eq!(attribute(&path, large).as_deref(), Some(&long[..]));
        assert_eq!(attribute(&path, list).as_deref(), Some(&LIST[..]));
        assert_eq!(mode(&path), 0o640);
    };
    kept();
    block_on(async {
        replace(&path, NEW.clone()).await.unwrap();
        kept();
        Prepend::new(&path).run(HEADER.clone()).await.unwrap();
        kept();
        Replace::new(&path).keep(Preserve::Nothing).run(NEW.clone()).await.unwrap();
    });
    assert_eq!(attribute(&path, tag), None);
    // The directory's default list is not added to a file that had none.
    let plain = |name: &str| dir.path().join(name);
    std::fs::write(plain("before"), "x").unwrap();
    rustix::fs::setxattr(dir.path(), c"system.posix_acl_default", &LIST, XattrFlags::empty()).unwrap();
    block_on(replace(plain("before"), "y")).unwrap();
    assert_eq!(attribute(&plain("before"), list), None);
    block_on(replace(plain("after"), "y")).unwrap();
    assert_eq!(attribute(&plain("after"), list).as_deref(), Some(&LIST[..]));
}

#[test]
fn what_the_kernel_has_given_to_both_files_need_not_be_set() {
    if testkit::portable("extended attributes are not kept") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let what = "an attribute that both files have";
    if let Err(e) = rustix::fs::setxattr(dir.path(), c"system.posix_acl_default", &LIST, XattrFlags::empty()) {
        return skip(what, format_args!("{}: {e}", dir.path().display()));
    }
    let refused = ["fsetxattr:error=EPERM".to_owned()];
    // Both have the mode of temporary files, which is part of the list.
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
    let Some(ended) = child::run(what, Work::Replace, &path, &refused, Proc::Mounted) else { return };
    assert_eq!(ended.said, "done");
    rustix::fs::setxattr(&path, c"user.tag", b"value", XattrFlags::empty()).unwrap();
    let ended = child::run(what, Work::Replace, &path, &refused, Proc::Mounted).unwrap();
    assert!(ended.said.starts_with("KeepAttributes 1 "), "{}", ended.said);
    assert_eq!(attribute(&path, c"user.tag").as_deref(), Some(&b"value"[..]));
    only(dir.path(), &["file"]);
}

#[test]
fn the_owner_is_kept_or_the_file_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, &*OLD).unwrap();
    set_mode(&path, 0o4750);
    let owner = (Some(rustix::fs::Uid::from_raw(12345)), Some(rustix::fs::Gid::from_raw(54321)));
    if let Err(e) = chownat(CWD, &path, owner.0, owner.1, rustix::fs::AtFlags::empty()) {
        return skip("the owner is kept", e);
    }
    set_mode(&path, 0o4750);
    block_on(replace(&path, NEW.clone())).unwrap();
    let found = std::fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (12345, 54321, 0o4750));
    holds(&path, &NEW);
    // As a user who may write to the directory but not change owners.
    std::fs::write(&path, &*OLD).unwrap();
    set_mode(&path, 0o4755);
    set_mode(dir.path(), 0o777);
    let told = std::process::Command::new("setpriv")
        .args(["--reuid=23456", "--regid=23456", "--clear-groups"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "replace::targets::unprivileged", "--nocapture"])
        .env(UNPRIVILEGED, &path)
        .output();
    match told {
        Ok(told) if told.status.success() => assert!(String::from_utf8_lossy(&told.stdout).contains("1 passed")),
        Ok(told) if told.stdout.is_empty() => skip("a refused owner", String::from_utf8_lossy(&told.stderr)),
        Ok(told) => panic!("{}", String::from_utf8_lossy(&told.stdout)),
        Err(e) => skip("a refused owner", format_args!("setpriv: {e}")),
    }
}

const UNPRIVILEGED: &str = "MILLSTREAM_TEST_UNPRIVILEGED";

/// Runs in the child of [`the_owner_is_kept_or_the_file_is`].
#[test]
fn unprivileged() {
    let Some(path) = std::env::var_os(UNPRIVILEGED) else { return };
    let path = Path::new(&path);
    block_on(async {
        let error = replace(path, NEW.clone()).await.unwrap_err();
        assert_eq!((error.step(), error.raw_os_error()), (Step::KeepOwner, Some(1)), "{error}");
        holds(path, &OLD);
        let replace = Replace::new(path).durability(Durability::None).keep(Preserve::Possible);
        replace.run(NEW.clone()).await.unwrap();
    });
    holds(path, &NEW);
    let found = std::fs::metadata(path).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777), (23456, 0o755), "the setuid bit is dropped");
    only(path.parent().unwrap(), &["file"]);
}
