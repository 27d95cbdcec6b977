//! Chains: the steps reach the disk in their order as far as the chain syncs them.

use std::path::{Path, PathBuf};

use millstream::fs::OpenOptions;
use millstream::fs::chain::Chain;
use testkit::crash::{Confirm, FileItem, History, Tree};

use super::{is_torn, new, old, recorded, tested};

fn write() -> OpenOptions {
    OpenOptions::new().write(true)
}

fn directory() -> OpenOptions {
    OpenOptions::new().read(true)
}

async fn confirmed(chain: Chain, confirm: Confirm) {
    chain.run().await.unwrap();
    confirm.confirm(1);
}

/// Runs the chain that the documentation shows, across directories, and the sync of the directory if `is_synced`.
fn replaced(before: Option<&FileItem>, len: usize, is_synced: bool) -> Option<History> {
    let tree = Tree::new().directory("temp").directory("dir");
    let tree = match before {
        Some(before) => tree.file("dir/file", before.clone()),
        None => tree,
    };
    recorded(&tree, |path: PathBuf, confirm| {
        let (temp, file) = (path.join("temp/file"), path.join("dir/file"));
        let chain = Chain::new().open(&temp, write().create_new(true)).write(new(len)).sync().rename(&temp, &file);
        let chain = if is_synced { chain.open(path.join("dir"), directory()).sync() } else { chain };
        confirmed(chain, confirm)
    })
}

#[test]
fn a_chain_that_syncs_and_renames_leaves_the_old_file_or_the_new_one() {
    tested(|| {
        for before in [None, Some(old(3000))] {
            for len in [50, 20_000] {
                for is_synced in [false, true] {
                    let Some(history) = replaced(before.as_ref(), len, is_synced) else { return };
                    let mut old_after_ok = false;
                    let tried = history.crashes(|crash| {
                        let found = crash.tree.get("dir/file");
                        let is_new = found.is_some_and(|found| found.contents == new(len));
                        assert!(is_new || found == before.as_ref(), "mixed contents: {crash}");
                        old_after_ok |= !is_new && crash.confirmed > 0;
                    });
                    assert_eq!(old_after_ok, !is_synced, "after Ok it is there if the directory was synced");
                    println!("chain of {len} bytes: {tried}");
                }
            }
        }
    });
}

#[test]
fn bytes_that_a_chain_writes_in_place_are_there_after_its_sync() {
    tested(|| {
        for data_only in [false, true] {
            let before = old(4000);
            let tree = Tree::new().file("file", before.clone());
            let work = |path: PathBuf, confirm: Confirm| async move {
                let chain = Chain::new().open(path.join("file"), write()).allocate(20_000).write_at(4000, new(5000));
                let chain = if data_only { chain.sync_data() } else { chain.sync() };
                confirmed(chain, confirm).await;
            };
            let Some(history) = recorded(&tree, work) else { return };
            let whole = [before.contents.clone(), new(5000)].concat();
            let tried = history.crashes(|crash| {
                let found = &crash.tree.get("file").expect("the file").contents;
                assert!(found.len() >= 4000 && is_torn(found, &whole), "{crash}");
                assert!(found[..4000] == whole[..4000], "what was there has changed: {crash}");
                assert!(crash.confirmed == 0 || *found == whole, "{crash}");
            });
            println!("chain that writes in place: {tried}");
        }
    });
}

/// Runs a chain on the names `one` and `two` in a directory, and then syncs it.
fn names(make: fn(Chain, &Path) -> Chain) -> Option<History> {
    let tree = Tree::new().file("one", FileItem::new("1")).file("two", FileItem::new("2"));
    recorded(&tree, move |path: PathBuf, confirm| {
        let chain = make(Chain::new(), &path);
        confirmed(chain.open(&path, directory()).sync(), confirm)
    })
}

#[test]
fn names_that_a_chain_changes_are_all_old_or_all_new() {
    tested(|| {
        let before = [Some("1"), Some("2"), None];
        for (history, after) in [
            (names(|chain, dir| chain.exchange(dir.join("one"), dir.join("two"))), [Some("2"), Some("1"), None]),
            (names(|chain, dir| chain.rename(dir.join("one"), dir.join("two"))), [None, Some("1"), None]),
            (names(|chain, dir| chain.rename_new(dir.join("one"), dir.join("three"))), [None, Some("2"), Some("1")]),
            (names(|chain, dir| chain.link(dir.join("one"), dir.join("three"))), [Some("1"), Some("2"), Some("1")]),
            (names(|chain, dir| chain.unlink(dir.join("one"))), [None, Some("2"), None]),
        ] {
            let Some(history) = history else { return };
            let tried = history.crashes(|crash| {
                let text = |name| crash.tree.get(name).map(|file| str::from_utf8(&file.contents).unwrap());
                let found = ["one", "two", "three"].map(text);
                assert!(found == after || found == before && crash.confirmed == 0, "{crash}");
            });
            println!("chain on names: {tried}");
        }
    });
}
