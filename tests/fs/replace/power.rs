//! Power cuts, simulated with ext4 on a loop device.

use std::path::Path;

use millstream::fs::{Append, Durability, Prepend, PrependStrategy, Replace, append};

use super::child::{self, BLOCK, Proc, Work, name};
use super::{HEADER, NEW, OLD, block_on, holds, listing, with_header};
use testkit::mounts::{Cut, Mount};

const CUTS: [Cut; 2] = [Cut::LogFlushed, Cut::LogLost];

/// Mounts a disk with a file whose contents have long been written back.
fn disk(what: &str, options: &str) -> Option<Mount> {
    let disk = Mount::image(what, "mkfs.ext4 -q -F", 32, options)?;
    restore(&disk);
    Some(disk)
}

fn restore(disk: &Mount) {
    for name in listing(&disk.path()) {
        if name != "lost+found" {
            std::fs::remove_file(disk.path().join(name)).unwrap();
        }
    }
    std::fs::write(disk.path().join("file"), &*OLD).unwrap();
    rustix::fs::syncfs(std::fs::File::open(disk.path()).unwrap()).unwrap();
}

/// Returns the version found after a power cut, or "mixed", which must never occur. The file always exists.
fn found<'a>(path: &Path, versions: &[(&'a str, &[u8])]) -> &'a str {
    let bytes = std::fs::read(path).unwrap();
    versions.iter().find(|(_, version)| bytes == *version).map_or("mixed", |(word, _)| word)
}

/// Returns the states after power cuts of both kinds after a replacement with `durability`.
fn after_ok(disk: &Mount, durability: Durability) -> [&'static str; 2] {
    let path = disk.path().join("file");
    CUTS.map(|cut| {
        restore(disk);
        block_on(Replace::new(&path).durability(durability).run(NEW.clone())).unwrap();
        holds(&path, &NEW);
        disk.cut_power(cut);
        found(&path, &[("old", &OLD), ("new", &NEW), ("empty", b"")])
    })
}

/// Cuts the power before each call of `work` after the one that contains `from`. Asserts that one of `versions` is left
/// each time, the old one and another.
fn before_ok(disk: &Mount, what: &str, work: Work, from: &str, versions: &[(&str, &[u8])]) {
    let path = disk.path().join("file");
    restore(disk);
    let Some(whole) = child::run(what, work, &path, &[], Proc::Mounted) else { return };
    let from = whole.calls.iter().position(|call| call.contains(from)).unwrap();
    let mut all = Vec::new();
    for (n, kill) in child::kills(&whole.calls).into_iter().enumerate().skip(from + 1) {
        // Closing a descriptor or taking a lock changes nothing on the disk.
        if matches!(name(&whole.calls[n]), "close" | "flock" | "statx" | "newfstatat") {
            continue;
        }
        for cut in CUTS {
            restore(disk);
            child::run(what, work, &path, std::slice::from_ref(&kill), Proc::Mounted).unwrap();
            disk.cut_power(cut);
            let word = found(&path, versions);
            assert_ne!(word, "mixed", "{kill}, {cut:?}");
            all.push(word);
            // A leftover that reached the disk is removed as well.
            block_on(millstream::fs::replace(&path, "next")).unwrap();
            assert_eq!(listing(&disk.path()), ["file", "lost+found"], "{kill}, {cut:?}");
        }
    }
    println!("{what}, {work:?}: {all:?}");
    assert!(all.contains(&"old") && all.iter().any(|word| *word != "old"), "{all:?}");
}

fn survives(options: &str) {
    let what = format!("a power cut with {options}");
    let Some(disk) = disk(&what, options) else { return };
    assert_eq!(after_ok(&disk, Durability::Full), ["new", "new"], "{what}");
    // Without the sync of the directory the new name is lost, but the old file is kept.
    let [flushed, lost] = after_ok(&disk, Durability::Data);
    assert_eq!(lost, "old", "{what}: the test does not lose what it should");
    assert_eq!(flushed, "new", "{what}");
    before_ok(&disk, &what, Work::Replace, "O_TMPFILE", &[("old", &OLD), ("new", &NEW)]);
    before_ok(&disk, &what, Work::Prepend, "O_TMPFILE", &[("old", &OLD), ("new", &with_header())]);
}

#[test]
fn a_power_cut_leaves_old_or_new_with_the_defaults_of_ext4() {
    if testkit::portable("it makes other calls") {
        return;
    }
    survives("defaults");
}

#[test]
fn a_power_cut_leaves_old_or_new_without_auto_da_alloc() {
    if testkit::portable("it makes other calls") {
        return;
    }
    survives("noauto_da_alloc");
}

#[test]
fn a_power_cut_leaves_old_or_new_with_writeback() {
    if testkit::portable("it makes other calls") {
        return;
    }
    survives("data=writeback");
}

#[test]
fn what_was_changed_in_place_or_appended_is_there_after_ok() {
    if testkit::portable("it makes other calls") {
        return;
    }
    let Some(disk) = disk("a power cut after changes in place", "defaults") else { return };
    let (path, made) = (disk.path().join("file"), disk.path().join("made"));
    let head = HEADER.len() as u64;
    let (zeros, blocks) = (vec![0; BLOCK], vec![b'h'; BLOCK]);
    let (zeroed, inserted) = ([&zeros[..], &OLD].concat(), [&blocks[..], &OLD].concat());
    let versions = [("old", &OLD[..]), ("zeros", &zeroed), ("new", &inserted)];
    before_ok(&disk, "a power cut while inserting", Work::Insert, "fstatfs", &versions);
    let overwritten = [&HEADER[..], &OLD[HEADER.len()..]].concat();
    let appended = [&OLD[..], &HEADER].concat();
    for durability in [Durability::None, Durability::Data, Durability::Full] {
        let expect = if durability == Durability::None { "old" } else { "new" };
        let work = |strategy| Prepend::new(&path).strategy(strategy).durability(durability);
        restore(&disk);
        block_on(work(PrependStrategy::InPlace { reserved: head }).run(HEADER.clone())).unwrap();
        disk.cut_power(Cut::LogLost);
        assert_eq!(found(&path, &[("old", &OLD), ("new", &overwritten)]), expect, "in place, {durability:?}");
        restore(&disk);
        block_on(work(PrependStrategy::InsertRange).run(blocks.clone())).unwrap();
        disk.cut_power(Cut::LogLost);
        assert_eq!(found(&path, &versions), expect, "inserted, {durability:?}");
        restore(&disk);
        block_on(Append::new(&path).durability(durability).run(HEADER.clone())).unwrap();
        disk.cut_power(Cut::LogLost);
        assert_eq!(found(&path, &[("old", &OLD), ("new", &appended)]), expect, "appended, {durability:?}");
    }
    restore(&disk);
    block_on(append(&made, HEADER.clone())).unwrap();
    disk.cut_power(Cut::LogLost);
    holds(&made, &HEADER);
}

#[test]
fn without_durability_the_file_can_be_lost_as_documented() {
    let Some(disk) = disk("a power cut without durability", "noauto_da_alloc") else { return };
    assert_eq!(after_ok(&disk, Durability::None), ["empty", "old"]);
}
