//! SIGKILL before each call related to a file.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;

use super::child::{self, BLOCK, Ended, Proc, Work, name};
use super::{NEW, OLD, block_on, holds, listing, only, with_header};

/// Kills `work` before each of its calls. Creates a new directory before each run; afterwards `check` classifies the
/// result in a word. Returns the words in the order of the calls.
fn walk(work: Work, proc: Proc, exists: bool, check: impl Fn(&[u8]) -> &'static str) -> Option<Vec<&'static str>> {
    let what = format!("{work:?} killed at each call, /proc {proc:?}");
    let run = |inject: &[String]| -> Option<(tempfile::TempDir, Ended)> {
        let (dir, path) = child::with_old();
        if exists {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        } else {
            std::fs::remove_file(&path).unwrap();
        }
        let ended = child::run(&what, work, &path, inject, proc)?;
        Some((dir, ended))
    };
    let (_dir, whole) = run(&[])?;
    assert_eq!(whole.said, "done", "{whole:?}");
    assert_eq!((whole.threads, whole.hops), (1, 0), "all of it is one job: {whole:?}");
    let mut found = Vec::new();
    for (n, kill) in child::kills(&whole.calls).into_iter().enumerate() {
        if proc == Proc::Missing && kill.starts_with("newfstatat") {
            // The injected fault already makes it fail.
            continue;
        }
        let (dir, ended) = run(std::slice::from_ref(&kill))?;
        let path = dir.path().join("file");
        assert_eq!(ended.status.signal(), Some(9), "{kill}: {ended:?}");
        assert_eq!(ended.calls.len(), n + 1, "{kill} came too early: {ended:?}");
        let left = listing(dir.path());
        let mut word = match std::fs::read(&path) {
            Ok(bytes) => {
                if exists {
                    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o640, "{kill}");
                }
                check(&bytes)
            }
            Err(_) => {
                assert!(!exists, "{kill}: the file is gone");
                "none"
            }
        };
        match left.iter().filter(|name| *name != "file").collect::<Vec<_>>()[..] {
            [] => {}
            [left] => {
                assert_eq!(left, ".file.millstream-0");
                assert!(matches!(word, "old" | "none"), "{kill}: a leftover beside the new file");
                word = "left";
            }
            ref more => panic!("{kill}: {more:?}"),
        }
        // The next writer cleans up.
        block_on(millstream::fs::replace(&path, "next")).unwrap();
        only(dir.path(), &["file"]);
        holds(&path, b"next");
        found.push(word);
    }
    println!("{what}: {:?}", whole.calls.iter().map(|call| name(call)).zip(&found).collect::<Vec<_>>());
    Some(found)
}

fn is_one_of(old: &[u8], new: &[u8]) -> impl Fn(&[u8]) -> &'static str {
    let (old, new) = (old.to_vec(), new.to_vec());
    move |bytes| {
        if bytes == old {
            return "old";
        }
        assert!(bytes == new, "neither the old file nor the new one, but {} bytes", bytes.len());
        "new"
    }
}

/// Asserts that the words, without repetitions, are the expected ones in this order.
#[track_caller]
fn in_order(found: Option<Vec<&str>>, expected: &[&str]) {
    if let Some(mut found) = found {
        found.dedup();
        assert_eq!(found, expected);
    }
}

/// The calls that provide the guarantees come in the required order, starting with the one that creates the temporary
/// file.
#[test]
fn the_calls_come_in_the_order_that_the_promises_rest_on() {
    if testkit::portable("it makes other calls") {
        return;
    }
    let order = |work, proc| {
        let (_dir, path) = child::with_old();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let ended = child::run("the order of the calls", work, &path, &[], proc)?;
        let flag = if proc == Proc::Mounted { "O_TMPFILE" } else { "O_CREAT|O_EXCL" };
        let made = ended.calls.iter().position(|call| call.contains(flag)).unwrap();
        assert!(ended.calls[made].contains(", 0600)"), "other users must not open it yet: {}", ended.calls[made]);
        let telling = ["flock", "pwrite64", "copy_file_range", "fchmod", "fsync", "statx", "linkat", "renameat"];
        let after = ended.calls[made..].iter().map(|call| name(call).to_owned());
        Some(after.filter(|call| telling.contains(&&**call)).collect::<Vec<_>>().join(" "))
    };
    let Some(replace) = order(Work::Replace, Proc::Mounted) else { return };
    assert_eq!(replace, "flock pwrite64 statx fchmod fsync linkat renameat flock fsync");
    let prepend = order(Work::Prepend, Proc::Mounted).unwrap();
    assert_eq!(prepend, "flock pwrite64 copy_file_range statx fchmod fsync statx linkat renameat flock fsync");
    let named = order(Work::Replace, Proc::Missing).unwrap();
    assert_eq!(named, "flock statx pwrite64 statx fchmod fsync renameat flock fsync");
}

#[test]
fn a_file_is_old_or_new_wherever_its_replacing_is_killed() {
    in_order(walk(Work::Replace, Proc::Mounted, true, is_one_of(&OLD, &NEW)), &["old", "left", "new"]);
}

#[test]
fn a_new_file_is_whole_or_not_there() {
    in_order(walk(Work::Replace, Proc::Mounted, false, is_one_of(&[], &NEW)), &["none", "left", "new"]);
}

#[test]
fn a_file_is_old_or_new_where_temp_files_must_have_names() {
    in_order(walk(Work::Replace, Proc::Missing, true, is_one_of(&OLD, &NEW)), &["old", "left", "new"]);
}

#[test]
fn a_file_is_old_or_new_wherever_its_prepending_is_killed() {
    in_order(walk(Work::Prepend, Proc::Mounted, true, is_one_of(&OLD, &with_header())), &["old", "left", "new"]);
}

#[test]
fn inserting_never_loses_what_was_there() {
    if testkit::portable("no bytes are inserted") {
        return;
    }
    let with = |fill: u8| [&[fill; BLOCK][..], &OLD].concat();
    let (zeros, new) = (with(0), with(b'h'));
    let check = is_one_of(&OLD, &new);
    let found = walk(Work::Insert, Proc::Mounted, true, |bytes| if bytes == zeros { "zeros" } else { check(bytes) });
    in_order(found, &["old", "zeros", "new"]);
}
