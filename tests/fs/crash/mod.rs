//! Changes of files in a world that crashes: after each step, with each set of changes that may have reached the disk,
//! there is what was promised.

mod appends;
mod chains;
mod files;
mod replaces;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use millstream::fs::Durability;
use testkit::crash::{Confirm, Crash, FileItem, History, RecordedDisk, Tree};
use testkit::http::{Flavour, watched};
use testkit::ways::{WAYS, on_way};
use testkit::{lacks, noise};

const DURABILITIES: [Durability; 3] = [Durability::None, Durability::Data, Durability::Full];

/// Runs `test`, unless this machine or build cannot.
fn tested(test: impl FnOnce() + Send + 'static) {
    if !testkit::portable("it makes other calls") {
        // Without io_uring all drivers use the pool, which is reported and no failure.
        lacks("io_uring");
        watched(test);
    }
}

/// Runs `work` on a disk with `tree`, by each driver. Returns what it did, which is the same by each.
fn recorded<R>(tree: &Tree, work: impl Fn(PathBuf, Confirm) -> R) -> Option<History>
where
    R: Future<Output = ()> + Send + 'static,
{
    recorded_with(tree, true, work)
}

/// Like [`recorded`], on a disk that may not have unnamed files.
fn recorded_with<R>(tree: &Tree, unnamed_files: bool, work: impl Fn(PathBuf, Confirm) -> R) -> Option<History>
where
    R: Future<Output = ()> + Send + 'static,
{
    let mut first: Option<History> = None;
    for io in WAYS {
        let disk = RecordedDisk::mount(tree, unnamed_files)?;
        on_way(Flavour::CurrentThread, io, work(disk.path().to_owned(), disk.confirm()));
        let history = disk.history();
        assert_eq!(*first.get_or_insert_with(|| history.clone()), history, "{io}");
    }
    first
}

/// Old contents of a file, with permissions, an owner and an attribute of their own.
fn old(len: usize) -> FileItem {
    let attributes = BTreeMap::from([(b"user.of".to_vec(), b"the old file".to_vec())]);
    FileItem { mode: 0o640, owner: (1000, 1001), attributes, ..FileItem::new(noise(len)) }
}

/// Contents that differ from the old ones in each sector.
fn new(len: usize) -> Vec<u8> {
    noise(len).into_iter().map(|byte| !byte).collect()
}

/// Returns whether `found` is the beginning of `whole`, in which some sectors are zeros.
fn is_torn(found: &[u8], whole: &[u8]) -> bool {
    let sectors = found.chunks(512).zip(whole.chunks(512));
    found.len() <= whole.len()
        && sectors.into_iter().all(|(found, whole)| found == &whole[..found.len()] || is_torn_sector(found, whole))
}

/// A sector has what was written to it first, and zeros behind it.
fn is_torn_sector(found: &[u8], whole: &[u8]) -> bool {
    let written = found.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
    found[..written] == whole[..written]
}

/// Asserts that a directory has only these files, and leftovers of a killed writer of `file`.
fn only(crash: &Crash<'_>, dir: impl AsRef<Path>, names: &[&str]) {
    let all = crash.tree.names_in(dir);
    let is_left = |name: &str| name.starts_with(".file.millstream-");
    assert!(all.iter().all(|name| names.contains(name) || is_left(name)), "{crash}");
}
