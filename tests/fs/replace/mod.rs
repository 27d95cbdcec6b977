//! Files that are replaced, prepended to and appended to while everything goes wrong: old or new, whole, and nothing left.

mod child;
mod errors;
mod futures;
mod kills;
mod power;
mod prepends;
mod targets;

use std::path::Path;
use std::sync::LazyLock;

use crate::support::noise;

/// What a file held before, unlike anything else here.
static OLD: LazyLock<Vec<u8>> = LazyLock::new(|| noise(200_000));
/// What it is to hold.
static NEW: LazyLock<Vec<u8>> = LazyLock::new(|| noise(600_000).split_off(300_000));
/// What is put before [`OLD`].
static HEADER: LazyLock<Vec<u8>> = LazyLock::new(|| noise(20_000).split_off(12_345));

fn with_header() -> Vec<u8> {
    [&HEADER[..], &OLD].concat()
}

/// The names in a directory, sorted.
fn listing(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What the descriptors of this process lead to beneath `dir`; a file without a name counts.
fn fds_beneath(dir: &Path) -> Vec<String> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(dir)).map(|target| target.display().to_string()).collect()
}

/// Asserts that `dir` holds these files and nothing else, and that this process has none of them open.
#[track_caller]
fn only(dir: &Path, names: &[&str]) {
    assert_eq!(listing(dir), names);
    assert_eq!(fds_beneath(dir), [""; 0], "left open");
}

/// So that a mismatch does not print megabytes.
#[track_caller]
fn holds(path: &Path, expected: &[u8]) {
    let bytes = std::fs::read(path).unwrap();
    assert!(bytes == expected, "{}: {} bytes, expected {} others", path.display(), bytes.len(), expected.len());
}

fn block_on<F: Future>(work: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
