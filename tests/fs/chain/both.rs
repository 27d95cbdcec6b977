//! Runs one scenario by io_uring and by the blocking pool, each on its own runtime.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millstream::fs::OpenOptions;
use millstream::fs::chain::StepOutcome;
use millstream::fs::chain::{Chain, ChainPath, ChainReport};
use millstream::runtime::{DriverBuilder, Io};
use rustix::io::Errno;
use testkit::HANGS;

/// Environment of a scenario: a driver and an empty directory.
pub(crate) struct Place {
    io: Io,
    dir: tempfile::TempDir,
}

/// Outcomes and buffers read.
pub(crate) type Ended = (Vec<StepOutcome>, Vec<Bytes>);

impl Place {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn has_ring(&self) -> bool {
        self.io == Io::Uring
    }

    /// Runs a chain to its end, success or failure.
    pub(crate) async fn run(&self, chain: Chain) -> Ended {
        let report = match tokio::time::timeout(HANGS, chain.run()).await.expect("it ends") {
            Ok(report) => report,
            Err(error) => {
                assert!(error.step().is_some(), "{error}");
                error.into_report()
            }
        };
        self.check_way(&report);
        (report.outcomes().to_vec(), report.into_reads())
    }

    /// Like `run`, for the outcomes alone.
    pub(crate) async fn outcomes(&self, chain: Chain) -> Vec<StepOutcome> {
        self.run(chain).await.0
    }

    pub(crate) fn check_way(&self, report: &ChainReport) {
        let expected = if self.has_ring() { ChainPath::Ring } else { ChainPath::Pool };
        assert_eq!(report.path(), expected);
    }

    /// Returns names and contents of the files in the directory.
    pub(crate) fn files(&self) -> Vec<(String, Bytes)> {
        let entries = fs::read_dir(self.dir()).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries
            .filter(|path| path.is_file())
            .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap().into()))
            .collect();
        files.sort();
        files
    }

    /// Waits until this many files are open, in this process and in its rings: the kernel closes some a little later.
    pub(crate) async fn opened(&self, files: usize) {
        self.until(&format!("{files} files are open"), || open_files() == files).await;
    }

    pub(crate) async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < HANGS, "timeout: {what}; open are {:#?}", list());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Runs a scenario both ways, checks that nothing is left open and that the results are equal, and returns them.
pub(crate) fn both<T: Debug + PartialEq>(scenario: impl AsyncFn(&Place) -> T) -> T {
    let mut ended: Vec<T> = ways().into_iter().map(|io| on(io, &scenario)).collect();
    let last = ended.pop().unwrap();
    assert!(ended.iter().all(|other| *other == last), "by ring {ended:?}, by the blocking pool {last:?}");
    last
}

/// Returns the ways available on this machine.
pub(crate) fn ways() -> Vec<Io> {
    if testkit::lacks("io_uring") { vec![Io::Epoll] } else { vec![Io::Uring, Io::Epoll] }
}

pub(crate) fn on<T>(io: Io, scenario: impl AsyncFn(&Place) -> T) -> T {
    // tokio keeps the descriptors of its signal handler for ever.
    drop(tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    let before = list();
    let place = Place { io, dir: tempfile::tempdir().unwrap() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(async {
        DriverBuilder::new().io(io).install().unwrap();
        scenario(&place).await
    });
    drop(runtime);
    let after = list();
    assert_eq!(after.len(), before.len(), "descriptors after {io}: {after:#?}, before: {before:#?}");
    ended
}

/// Counts the descriptors of this process and the files in the tables of its rings.
pub(crate) fn open_files() -> usize {
    list().len()
}

fn list() -> Vec<String> {
    let fds: Vec<_> = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path()).collect();
    let mut list = Vec::new();
    for path in fds {
        let Ok(to) = fs::read_link(&path).map(|to| to.display().to_string()) else { continue };
        // glibc reads /proc briefly when a thread ends.
        if to.starts_with("/proc/") {
            continue;
        }
        if to.contains("[io_uring]") {
            let info = fs::read_to_string(path.to_str().unwrap().replace("/fd/", "/fdinfo/")).unwrap_or_default();
            let ring = info.lines().find(|line| line.starts_with("ino:")).unwrap_or_default();
            // Format: "UserFiles: 256", then a line for each open file, "  255: name".
            let lines = info.lines().skip_while(|line| !line.starts_with("UserFiles:")).skip(1);
            let lines = lines.take_while(|line| line.starts_with(' '));
            // Up to Linux 6.12 the table lists empty places too.
            list.extend(lines.filter(|line| !line.ends_with("<none>")).map(|line| format!("{ring} {line}")));
        }
        list.push(format!("{} {to}", path.display()));
    }
    // A ring has two descriptors with the same table.
    list.sort();
    list.dedup();
    list
}

pub(crate) fn failed(errno: Errno) -> StepOutcome {
    StepOutcome::Failed(errno.raw_os_error())
}

/// Options for a file that must not exist yet.
pub(crate) fn new_file() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create_new(true)
}

pub(crate) fn reading() -> OpenOptions {
    OpenOptions::new().read(true)
}
