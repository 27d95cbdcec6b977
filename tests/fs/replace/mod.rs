//! Files replaced, prepended to and appended to under faults: the old or the new contents, complete, and nothing left.

mod child;
mod errors;
mod futures;
mod kills;
mod power;
mod prepends;
mod targets;

use std::path::Path;
use std::sync::LazyLock;

use testkit::noise;

/// Old contents, unlike all others here.
static OLD: LazyLock<Vec<u8>> = LazyLock::new(|| noise(200_000));
static NEW: LazyLock<Vec<u8>> = LazyLock::new(|| noise(600_000).split_off(300_000));
static HEADER: LazyLock<Vec<u8>> = LazyLock::new(|| noise(20_000).split_off(12_345));

fn with_header() -> Vec<u8> {
    [&HEADER[..], &OLD].concat()
}

fn listing(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns the paths of this process's descriptors beneath `dir`, unnamed files included.
fn fds_beneath(dir: &Path) -> Vec<String> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(dir)).map(|target| target.display().to_string()).collect()
}

/// Asserts that `dir` holds only these files, and that this process has none of them open.
#[track_caller]
fn only(dir: &Path, names: &[&str]) {
    assert_eq!(listing(dir), names);
    assert_eq!(fds_beneath(dir), [""; 0], "left open");
}

/// Asserts the contents of a file without printing megabytes on a mismatch.
#[track_caller]
fn holds(path: &Path, expected: &[u8]) {
    let bytes = std::fs::read(path).unwrap();
    assert!(bytes == expected, "{}: {} bytes, expected {} others", path.display(), bytes.len(), expected.len());
}

fn block_on<F: Future>(work: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
