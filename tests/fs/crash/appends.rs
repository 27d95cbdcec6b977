//! Bytes that are appended: what was confirmed is there, and behind it at most what was under way.

use std::path::PathBuf;

use bytes::Bytes;
use http_body_util::{Full, StreamBody};
use hyper::body::Frame;
use millstream::body::Save;
use millstream::fs::{Append, Durability};
use testkit::crash::{Confirm, FileItem, History, Tree, Tried};

use super::{DURABILITIES, is_torn, new, old, recorded, tested};

const FILE: &str = "dir/log";
/// Lengths of what is appended: within a sector, to its end, and over several pages.
const LENS: [usize; 4] = [100, 412, 9000, 1];

/// Asserts that each crash leaves the bytes of all confirmed appends, and of the others at most a beginning with zeros in
/// it. `durability` is that of the appends, and the confirmed number is the length of the file.
fn confirmed_and_part(history: &History, before: Option<&FileItem>, durability: Durability) -> Tried {
    let start = before.map_or(0, |before| before.contents.len());
    let end = history.end();
    let whole = &end.get(FILE).expect("the file").contents;
    let mut lost = false;
    let tried = history.crashes(|crash| {
        let confirmed = (crash.confirmed as usize).max(start);
        let Some(found) = crash.tree.get(FILE) else {
            // Its name has not arrived.
            assert!(before.is_none(), "the file is lost: {crash}");
            assert!(crash.confirmed == 0 || durability != Durability::Full, "the name is lost: {crash}");
            lost = true;
            return;
        };
        let promised = if durability == Durability::None { start } else { confirmed };
        let is_there = found.contents.get(..promised).is_some_and(|there| *there == whole[..promised]);
        assert!(is_there, "confirmed bytes are lost: {crash}");
        assert!(is_torn(&found.contents, whole), "{crash}");
        let is_whole =
            crash.confirmed == 0 || durability != Durability::Full || found.mode == end.get(FILE).unwrap().mode;
        assert!(is_whole, "the permissions are lost: {crash}");
        lost |= found.contents.get(..confirmed) != Some(&whole[..confirmed]);
        if let Some(before) = before {
            assert_eq!(FileItem { contents: before.contents.clone(), ..found.clone() }, *before, "{crash}");
        }
    });
    assert!(lost || durability == Durability::Full || before.is_some(), "the disk loses too little");
    tried
}

fn disk(file: Option<&FileItem>) -> Tree {
    match file {
        Some(file) => Tree::new().file(FILE, file.clone()),
        None => Tree::new().directory("dir"),
    }
}

async fn append(path: PathBuf, confirm: Confirm, durability: Durability) {
    let path = path.join(FILE);
    for len in LENS {
        Append::new(&path).durability(durability).run(new(len)).await.unwrap();
        confirm.confirm(std::fs::metadata(&path).unwrap().len());
    }
}

#[test]
fn what_was_appended_is_there_after_each_crash() {
    tested(|| {
        let mut all = Tried::default();
        for durability in DURABILITIES {
            for before in [None, Some(old(700))] {
                let work = |path, confirm| append(path, confirm, durability);
                let Some(history) = recorded(&disk(before.as_ref()), work) else { return };
                all += confirmed_and_part(&history, before.as_ref(), durability);
            }
        }
        println!("append: {all}");
    });
}

/// As after a process that was killed before it synced the directory, or a file that another program has made.
#[test]
fn the_name_of_a_file_that_exists_is_durable_after_an_append() {
    tested(|| {
        let work = |path: PathBuf, confirm| async move {
            std::fs::write(path.join(FILE), "").unwrap();
            append(path, confirm, Durability::Full).await;
        };
        let Some(history) = recorded(&disk(None), work) else { return };
        println!("append to a file of another: {}", confirmed_and_part(&history, None, Durability::Full));
    });
}

#[test]
fn an_upload_that_is_continued_is_there_after_each_crash() {
    tested(|| {
        let mut all = Tried::default();
        for durability in DURABILITIES {
            let work = |path: PathBuf, confirm: Confirm| async move {
                let path = path.join(FILE);
                // The first part is cut off by an error of the body. Bytes that have arrived stay, and are not confirmed.
                let frames = [Ok(Frame::data(Bytes::from(new(3000)))), Err(std::io::Error::other("reset"))];
                let broken = StreamBody::new(futures_util::stream::iter(frames));
                let save = |offset| Save::new(&path).durability(durability).mode(0o604).continue_at(offset);
                save(0).run(broken).await.unwrap_err();
                let mut offset = std::fs::metadata(&path).unwrap().len();
                assert_eq!(offset, 3000);
                for len in [100, 6000] {
                    let saved = save(offset).run(Full::new(Bytes::from(new(len)))).await.unwrap();
                    offset = saved.file_len;
                    confirm.confirm(offset);
                }
            };
            let Some(history) = recorded(&disk(None), work) else { return };
            all += confirmed_and_part(&history, None, durability);
        }
        println!("continued uploads: {all}");
    });
}
