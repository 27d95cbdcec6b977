//! A file that is replaced, prepended to, saved or copied: the old one or the new one.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::Full;
use millstream::body::Save;
use millstream::fs::{Durability, Prepend, PrependStrategy, Preserve, Replace};
use testkit::crash::{Confirm, FileItem, History, Tree, Tried};
use testkit::http::Flavour;
use testkit::mounts::Mount;

use super::{DURABILITIES, is_torn, new, old, only, recorded, recorded_with, tested};

const FILE: &str = "dir/sub/file";

/// Returns a disk with the old file, or without it, and another one beside it.
fn disk(file: Option<&FileItem>) -> Tree {
    let tree = Tree::new().file("dir/sub/other", FileItem::new("not touched"));
    match file {
        Some(file) => tree.file(FILE, file.clone()),
        None => tree,
    }
}

/// Asserts that each crash leaves the old file or the new one, as promised.
fn old_or_new(history: &History, before: Option<&FileItem>, contents: &[u8], durability: Durability) -> Tried {
    let end = history.end();
    let after = end.get(FILE).expect("the new file");
    assert!(after.contents == contents, "the wrong contents");
    let mut seen = BTreeSet::new();
    let tried = history.crashes(|crash| {
        let found = crash.tree.get(FILE);
        let what = match found {
            _ if found == Some(after) => "new",
            _ if found == before => "old",
            Some(found) if durability == Durability::None && is_torn(&found.contents, contents) => "torn",
            _ => panic!("mixed contents: {crash}"),
        };
        assert!(crash.confirmed == 0 || durability != Durability::Full || what == "new", "{what} after Ok: {crash}");
        only(crash, "dir/sub", &["file", "other"]);
        assert_eq!(crash.tree.get("dir/sub/other"), Some(&FileItem::new("not touched")), "{crash}");
        seen.insert((crash.confirmed > 0, what));
    });
    // The disk loses what was not synced.
    assert!(seen.contains(&(false, "old")) && seen.contains(&(true, "new")), "{seen:?}");
    assert_eq!(seen.contains(&(true, "old")), durability != Durability::Full, "{seen:?}");
    assert_eq!(seen.contains(&(true, "torn")), durability == Durability::None, "{seen:?}");
    tried
}

async fn run(replace: Replace, contents: Bytes, confirm: Confirm) {
    replace.run(contents).await.unwrap();
    confirm.confirm(1);
}

#[test]
fn a_replaced_file_is_old_or_new_after_each_crash() {
    tested(|| {
        let mut all = Tried::default();
        for durability in DURABILITIES {
            for (before, keep) in [
                (None, Preserve::All),
                (Some(old(300)), Preserve::All),
                (Some(old(9000)), Preserve::Possible),
                (Some(old(9000)), Preserve::Nothing),
            ] {
                for len in [100, 10_000] {
                    let work = |path: std::path::PathBuf, confirm| {
                        let replace = Replace::new(path.join(FILE)).durability(durability).keep(keep);
                        run(replace, new(len).into(), confirm)
                    };
                    let Some(history) = recorded(&disk(before.as_ref()), work) else { return };
                    all += old_or_new(&history, before.as_ref(), &new(len), durability);
                    let (end, kept) = (history.end(), before.as_ref().filter(|_| keep != Preserve::Nothing));
                    if let Some(kept) = kept {
                        let expected = FileItem { contents: new(len), ..kept.clone() };
                        assert_eq!(end.get(FILE), Some(&expected), "{keep:?}");
                    }
                }
            }
        }
        println!("replace: {all}");
    });
}

#[test]
fn a_file_is_old_or_new_after_each_crash_where_temp_files_must_have_names() {
    tested(|| {
        let mut all = Tried::default();
        for (before, durability) in [(Some(old(3000)), Durability::Full), (None, Durability::Data)] {
            let work = |path: std::path::PathBuf, confirm| {
                run(Replace::new(path.join(FILE)).durability(durability), new(5000).into(), confirm)
            };
            let Some(history) = recorded_with(&disk(before.as_ref()), false, work) else { return };
            all += old_or_new(&history, before.as_ref(), &new(5000), durability);
        }
        println!("replace with named files: {all}");
    });
}

/// Also of a crash that has left a file of an earlier one.
#[test]
fn files_that_a_crash_has_left_are_removed_by_the_next_change() {
    tested(|| {
        let Some(memory) = Mount::tmpfs("files after crashes", "64m") else { return };
        let left = disk(Some(&old(900))).file("dir/sub/.file.millstream-0", FileItem::new("left"));
        let work = |path: std::path::PathBuf, confirm| run(Replace::new(path.join(FILE)), new(2000).into(), confirm);
        let Some(history) = recorded(&left, work) else { return };
        let mut all = old_or_new(&history, Some(&old(900)), &new(2000), Durability::Full);
        let (mut number, mut removed) = (0, 0);
        let runtime = Flavour::CurrentThread.runtime();
        all += history.crashes(|crash| {
            number += 1;
            let dir = memory.path().join(number.to_string());
            std::fs::create_dir(&dir).unwrap();
            crash.tree.write_to(&dir);
            runtime.block_on(millstream::fs::replace(dir.join(FILE), "next")).unwrap();
            let names = std::fs::read_dir(dir.join("dir/sub")).unwrap().count();
            assert_eq!(names, 2, "{crash}");
            removed += usize::from(crash.tree.names_in("dir/sub").len() > 2);
        });
        assert!(removed > 0, "no crash has left a file");
        println!("replace with leftovers: {all}, {removed} with a file that was left");
    });
}

#[test]
fn a_file_that_is_streamed_or_copied_is_old_or_new_after_each_crash() {
    tested(|| {
        let before = old(5000);
        // Two jobs.
        let contents = new(460_000);
        let work = |path: std::path::PathBuf, confirm: Confirm| {
            let pieces: Vec<_> = contents.chunks(100_000).map(Bytes::copy_from_slice).collect();
            async move {
                let items = stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
                Replace::new(path.join(FILE)).run_stream(items).await.unwrap();
                confirm.confirm(1);
            }
        };
        let Some(history) = recorded(&disk(Some(&before)), work) else { return };
        let mut all = old_or_new(&history, Some(&before), &contents, Durability::Full);
        let copied = disk(Some(&before)).file("dir/from", FileItem::new(new(9000)));
        let work = |path: std::path::PathBuf, confirm: Confirm| async move {
            Replace::new(path.join(FILE)).run_copy(path.join("dir/from")).await.unwrap();
            confirm.confirm(1);
        };
        let Some(history) = recorded(&copied, work) else { return };
        all += old_or_new(&history, Some(&before), &new(9000), Durability::Full);
        println!("streams and copies: {all}");
    });
}

#[test]
fn a_file_that_is_prepended_to_is_old_or_new_after_each_crash() {
    tested(|| {
        let mut all = Tried::default();
        for durability in DURABILITIES {
            for (header, len) in [(100, 9000), (5000, 700)] {
                let before = old(len);
                let work = |path: std::path::PathBuf, confirm: Confirm| async move {
                    Prepend::new(path.join(FILE)).durability(durability).run(new(header)).await.unwrap();
                    confirm.confirm(1);
                };
                let Some(history) = recorded(&disk(Some(&before)), work) else { return };
                let contents = [new(header), before.contents.clone()].concat();
                all += old_or_new(&history, Some(&before), &contents, durability);
                let expected = FileItem { contents, ..before };
                assert_eq!(history.end().get(FILE), Some(&expected));
            }
        }
        println!("prepend: {all}");
    });
}

/// Each sector of the header is old or new, and the rest is not touched.
#[test]
fn a_header_that_is_overwritten_changes_nothing_behind_it() {
    tested(|| {
        let mut all = Tried::default();
        for durability in DURABILITIES {
            let (before, header) = (old(9000), new(3000));
            let work = |path: std::path::PathBuf, confirm: Confirm| async move {
                let strategy = PrependStrategy::InPlace { reserved: 3000 };
                let prepend = Prepend::new(path.join(FILE)).strategy(strategy).durability(durability);
                prepend.run(new(3000)).await.unwrap();
                confirm.confirm(1);
            };
            let Some(history) = recorded(&disk(Some(&before)), work) else { return };
            all += history.crashes(|crash| {
                let found = crash.tree.get(FILE).unwrap_or_else(|| panic!("{crash}"));
                let areas = found.contents[..3000].chunks(512).zip(header.chunks(512).zip(before.contents.chunks(512)));
                let is_new = areas.clone().all(|(found, (new, _))| found == new);
                let is_old_or_new =
                    |(found, (new, old)): (&[u8], (&[u8], &[u8]))| found == new || found == &old[..found.len()];
                assert!(areas.into_iter().all(is_old_or_new), "{crash}");
                assert!(found.contents[3000..] == before.contents[3000..], "{crash}");
                assert!(crash.confirmed == 0 || durability == Durability::None || is_new, "{crash}");
            });
        }
        println!("prepend in place: {all}");
    });
}

#[test]
fn a_file_system_that_inserts_no_blocks_changes_nothing() {
    tested(|| {
        let before = old(9000);
        let work = |path: std::path::PathBuf, _| async move {
            let prepend = Prepend::new(path.join(FILE)).strategy(PrependStrategy::InsertRange);
            let error = prepend.run(new(4096)).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}");
        };
        let Some(history) = recorded(&disk(Some(&before)), work) else { return };
        history.crashes(|crash| assert_eq!(crash.tree, disk(Some(&before)), "{crash}"));
    });
}

/// A body of known length, for which space is allocated, and one that fits one job.
#[test]
fn a_saved_body_is_old_or_new_after_each_crash() {
    tested(|| {
        let mut all = Tried::default();
        for durability in DURABILITIES {
            for (before, len, is_new) in
                [(Some(old(300)), 10_000, false), (None, 10_000, true), (Some(old(7000)), 460_000, false)]
            {
                // The states of a long body take seconds.
                if len > 10_000 && durability != Durability::Full {
                    continue;
                }
                let work = |path: std::path::PathBuf, confirm: Confirm| async move {
                    let save = Save::new(path.join(FILE)).durability(durability);
                    let save = if is_new { save.create_new() } else { save };
                    save.run(Full::new(Bytes::from(new(len)))).await.unwrap();
                    confirm.confirm(1);
                };
                let Some(history) = recorded(&disk(before.as_ref()), work) else { return };
                all += old_or_new(&history, before.as_ref(), &new(len), durability);
            }
        }
        println!("save: {all}");
    });
}

/// A link is followed, and its target in another directory is replaced there.
#[test]
fn the_target_of_a_link_is_old_or_new_after_each_crash() {
    tested(|| {
        let before = old(700);
        let work = |path: std::path::PathBuf, confirm: Confirm| async move {
            let link = path.join("dir/link");
            std::os::unix::fs::symlink(Path::new("sub/file"), &link).unwrap();
            run(Replace::new(link).follow_link(true), new(2000).into(), confirm).await;
        };
        let Some(history) = recorded(&disk(Some(&before)), work) else { return };
        let tried = old_or_new(&history, Some(&before), &new(2000), Durability::Full);
        println!("replace through a link: {tried}");
    });
}
