//! Another process that changes a file while strace stands between it and the kernel.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::task::Poll;

use futures_util::stream::{self, Stream, StreamExt};
use millstream::fs::{Prepend, Replace, Strategy};
use tokio::sync::mpsc::{Receiver, channel};

use super::{HEADER, NEW, block_on, support};

const WORK: &str = "MILLSTREAM_TEST_WORK";

/// What a child is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Replaces the contents by [`NEW`].
    Replace,
    /// Prepends [`HEADER`].
    Prepend,
    /// Inserts a block.
    Insert,
    /// Replaces the contents by a stream, and drops the future when the first piece is written.
    Abandon,
}

/// The header [`Work::Insert`] inserts.
pub(crate) const BLOCK: usize = 4096;

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// What it said: `done`, or the error.
    pub(crate) said: String,
    /// The calls of the thread that worked, from the first on a file, as `name(arguments`.
    pub(crate) calls: Vec<String>,
    /// How many threads made such calls, closing what they had open aside.
    pub(crate) threads: usize,
}

/// Not a test: what the child does.
#[test]
fn child() {
    let Ok(work) = std::env::var(WORK) else { return };
    let (work, path) = work.split_once(' ').unwrap();
    println!("\nready");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    let done = block_on(async {
        match work {
            "Replace" => Replace::new(path).run(NEW.clone()).await,
            "Prepend" => Prepend::new(path).run(HEADER.clone()).await.map(drop),
            "Abandon" => {
                let (stream, mut told) = unfinished();
                tokio::select! {
                    done = Replace::new(path).run_stream(stream) => done.map(drop),
                    _ = told.recv() => Ok(()),
                }
            }
            _ => Prepend::new(path).strategy(Strategy::InsertRange).run(vec![b'h'; BLOCK]).await.map(drop),
        }
    });
    match done {
        Ok(()) => println!("said done"),
        Err(e) => println!("said {:?} {:?} {e}", e.step(), e.raw_os_error().unwrap_or_default()),
    }
}

/// A stream of one piece, and then nothing more; tells when that is waited for, and so the first was written.
pub(crate) fn unfinished() -> (impl Stream<Item = Result<Vec<u8>, Infallible>> + Send + 'static, Receiver<()>) {
    let (tell, told) = channel(1);
    let first = stream::iter([Ok(vec![1; 2 << 20])]);
    let rest = stream::poll_fn(move |_| {
        let _ = tell.try_send(());
        Poll::Pending
    });
    (first.chain(rest), told)
}

/// Runs a child that does `work` to `path`. `inject` are strace's injections, such as `fsync:error=EIO:when=2`; counts are
/// those of the one thread that works. `hidden` runs it where there is no `/proc`. `None` says that this machine cannot.
pub(crate) fn run(what: &str, work: Work, path: &Path, inject: &[String], hidden: bool) -> Option<Ended> {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(if hidden { Path::new("unshare") } else { &program });
    if hidden {
        command.args(["--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"]).arg(&program);
    }
    command.args(["--exact", "child::child", "--nocapture", "--test-threads=1"]);
    command.env(WORK, format!("{work:?} {}", path.display()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => Reaped(child),
        Err(e) => {
            support::skip(what, format_args!("unshare: {e}"));
            return None;
        }
    };
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    if !lines.any(|line| line == "ready") {
        assert!(hidden, "a child that did not start");
        let why = std::io::read_to_string(child.0.stderr.take().unwrap()).unwrap();
        support::skip(what, format_args!("a process without /proc: {why}"));
        return None;
    }
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut strace = attach(what, child.0.id(), inject, log.path())?;
    child.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let said = lines.find_map(|line| Some(line.strip_prefix("said ")?.to_owned())).unwrap_or_default();
    let status = child.0.wait().unwrap();
    strace.0.wait().unwrap();
    let (calls, threads) = calls(&std::fs::read_to_string(log.path()).unwrap());
    Some(Ended { status, said, calls, threads })
}

/// A process that does not outlive its test.
#[derive(Debug)]
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Attaches strace to a process and waits until it has.
fn attach(what: &str, pid: u32, inject: &[String], log: &Path) -> Option<Reaped> {
    let mut command = Command::new("strace");
    command.args(["-f", "-p", &pid.to_string(), "-o"]).arg(log).stderr(Stdio::piped());
    for inject in inject {
        command.arg("-e").arg(format!("inject={inject}"));
    }
    let mut strace = match command.spawn() {
        Ok(strace) => Reaped(strace),
        Err(e) => {
            support::skip(what, format_args!("strace: {e}"));
            return None;
        }
    };
    let mut line = String::new();
    let mut stderr = BufReader::new(strace.0.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    if !line.contains("attached") {
        support::skip(what, line.trim());
        return None;
    }
    // Nobody reads on, and there is little more to be said than a pipe holds.
    strace.0.stderr = Some(stderr.into_inner());
    Some(strace)
}

/// Calls that have to do with files; others may be made by any thread at any time.
const ABOUT_FILES: [&str; 23] = [
    "close",
    "copy_file_range",
    "fallocate",
    "fchmod",
    "fchown",
    "fdatasync",
    "fgetxattr",
    "flistxattr",
    "flock",
    "fsetxattr",
    "fstatfs",
    "fsync",
    "ioctl",
    "linkat",
    "newfstatat",
    "open",
    "openat",
    "pread64",
    "pwrite64",
    "pwritev",
    "renameat",
    "statx",
    "unlinkat",
];

/// The calls about files that strace has logged of the thread that opened a directory first, from then on, and how many
/// threads made any.
fn calls(log: &str) -> (Vec<String>, usize) {
    let calls: Vec<(&str, &str)> = log
        .lines()
        .filter_map(|line| line.split_once(' ').map(|(thread, call)| (thread, call.trim_start())))
        .filter(|(_, call)| ABOUT_FILES.contains(&name(call)))
        .collect();
    let working = calls.iter().filter(|(_, call)| name(call) != "close");
    let mut threads: Vec<_> = working.map(|(thread, _)| *thread).collect();
    threads.sort_unstable();
    threads.dedup();
    let worker = calls.iter().find(|(_, call)| call.contains("O_DIRECTORY")).map(|(thread, _)| *thread);
    let of_worker = calls.iter().filter(|(thread, _)| Some(*thread) == worker);
    (of_worker.map(|(_, call)| (*call).to_owned()).collect(), threads.len())
}

/// The name of a logged call.
pub(crate) fn name(call: &str) -> &str {
    call.split_once('(').map_or("", |(name, _)| name)
}

/// The injections that kill the worker before each of these calls, in order. What comes after the last that is no close
/// belongs to the end of the runtime.
pub(crate) fn kills(calls: &[String]) -> Vec<String> {
    let last = calls.iter().rposition(|call| name(call) != "close").unwrap();
    let nth = |n: usize| calls[..=n].iter().filter(|call| name(call) == name(&calls[n])).count();
    (0..=last).map(|n| format!("{}:signal=KILL:when={}", name(&calls[n]), nth(n))).collect()
}

/// A directory with [`OLD`](super::OLD) in `file`.
pub(crate) fn with_old() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, &*super::OLD).unwrap();
    (dir, path)
}
