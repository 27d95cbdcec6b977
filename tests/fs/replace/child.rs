//! A child process that changes a file under strace, which injects faults.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::task::Poll;

use futures_util::stream::{self, Stream, StreamExt};
use millstream::fs::{Prepend, PrependStrategy, Replace, append};
use tokio::sync::mpsc::{Receiver, channel};

use super::{HEADER, NEW};
use testkit::report::report;

const WORK: &str = "MILLSTREAM_TEST_WORK";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Replace,
    Prepend,
    Insert,
    Append,
    /// Replaces the contents by a stream, and drops the future after the first written piece.
    Abandon,
}

/// Length of the header of [`Work::Insert`].
pub(crate) const BLOCK: usize = 4096;

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Output of the child: `done`, or the error.
    pub(crate) said: String,
    /// File-related calls of the worker thread, as strace prints them.
    pub(crate) calls: Vec<String>,
    /// Number of threads that made such calls, not counting closes.
    pub(crate) threads: usize,
    /// Number of calls in between by which the worker woke or awaited other threads; a single job makes none.
    pub(crate) hops: usize,
}

/// Runs in the child only.
#[test]
fn child() {
    let Ok(work) = std::env::var(WORK) else { return };
    let (work, path) = work.split_once(' ').unwrap();
    println!("\nready");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    // One thread, so that any other thread with file calls belongs to the runtime.
    let done = runtime.enable_all().max_blocking_threads(1).build().unwrap().block_on(async {
        match work {
            "Replace" => Replace::new(path).run(NEW.clone()).await,
            "Prepend" => Prepend::new(path).run(HEADER.clone()).await.map(drop),
            "Append" => append(path, HEADER.clone()).await,
            "Abandon" => {
                let (stream, mut told) = unfinished();
                tokio::select! {
                    done = Replace::new(path).run_stream(stream) => panic!("{done:?}"),
                    _ = told.recv() => {}
                }
                // The pool runs its jobs in order, so the job of the dropped future has begun when this one has.
                tokio::task::spawn_blocking(|| ()).await.unwrap();
                Ok(())
            }
            _ => Prepend::new(path).strategy(PrependStrategy::InsertRange).run(vec![b'h'; BLOCK]).await.map(drop),
        }
    });
    match done {
        Ok(()) => println!("said done"),
        Err(e) => println!("said {:?} {:?} {}", e.step(), e.raw_os_error().unwrap_or_default(), report(&e)),
    }
}

/// Returns a stream of one piece that never ends, and a receiver that is signalled when the stream is polled again, so
/// after the first write.
pub(crate) fn unfinished() -> (impl Stream<Item = Result<Vec<u8>, Infallible>> + Send + 'static, Receiver<()>) {
    let (tell, told) = channel(1);
    let first = stream::iter([Ok(vec![1; 2 << 20])]);
    let rest = stream::poll_fn(move |_| {
        let _ = tell.try_send(());
        Poll::Pending
    });
    (first.chain(rest), told)
}

/// Whether a child can reach its descriptors through /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proc {
    Mounted,
    /// An unnamed file cannot get a name then, so temporary files have names from the start.
    Missing,
}

/// Runs a child that does `work` on `path`. `inject` are strace's injections, such as `fsync:error=EIO:when=2`; strace
/// counts calls of the worker thread only. Returns `None` if this machine cannot trace.
pub(crate) fn run(what: &str, work: Work, path: &Path, inject: &[String], proc: Proc) -> Option<Ended> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "replace::child::child", "--nocapture", "--test-threads=1"]);
    command.env(WORK, format!("{work:?} {}", path.display()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Reaped(command.spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "ready"));
    // The only call of its kind.
    let missing = (proc == Proc::Missing).then(|| "newfstatat:error=ENOENT".to_owned());
    let inject: Vec<_> = missing.iter().chain(inject).collect();
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut strace = attach(what, child.0.id(), &inject, log.path())?;
    child.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let said = lines.find_map(|line| Some(line.strip_prefix("said ")?.to_owned())).unwrap_or_default();
    let status = child.0.wait().unwrap();
    strace.0.wait().unwrap();
    let log = std::fs::read_to_string(log.path()).unwrap();
    let (calls, threads, hops) = read(&log);
    if work == Work::Insert && said.starts_with("Move 95 ") {
        testkit::skip(what, &said);
        return None;
    }
    Some(Ended { status, said, calls, threads, hops })
}

/// A process that is killed when its test ends.
#[derive(Debug)]
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Attaches strace to a process and waits until it is attached.
fn attach(what: &str, pid: u32, inject: &[&String], log: &Path) -> Option<Reaped> {
    let mut command = Command::new("strace");
    command.args(["-f", "-p", &pid.to_string(), "-o"]).arg(log).stderr(Stdio::piped());
    for inject in inject {
        command.arg("-e").arg(format!("inject={inject}"));
    }
    let mut strace = match command.spawn() {
        Ok(strace) => Reaped(strace),
        Err(e) => {
            testkit::skip(what, format_args!("strace: {e}"));
            return None;
        }
    };
    let mut line = String::new();
    let mut stderr = BufReader::new(strace.0.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    if !line.contains("attached") {
        testkit::skip(what, line.trim());
        return None;
    }
    // The rest of the output is shorter than a pipe's capacity, so it need not be read.
    strace.0.stderr = Some(stderr.into_inner());
    Some(strace)
}

/// Calls related to files; any thread may make others at any time.
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

/// Parses a log of strace. Returns the file calls of the thread that opened a directory, the number of threads with
/// such calls, and how often that thread woke or awaited others in between.
fn read(log: &str) -> (Vec<String>, usize, usize) {
    let all = log.lines().filter_map(|line| line.split_once(' ').map(|(thread, call)| (thread, call.trim_start())));
    let about_files = |call: &str| ABOUT_FILES.contains(&name(call));
    let works = |call: &str| about_files(call) && name(call) != "close";
    let mut threads: Vec<_> = all.clone().filter(|(_, call)| works(call)).map(|(thread, _)| thread).collect();
    let worker = all.clone().find(|(_, call)| call.contains("O_DIRECTORY")).map(|(thread, _)| thread);
    let of_worker: Vec<_> = all.filter(|(thread, _)| Some(*thread) == worker).map(|(_, call)| call).collect();
    let first = of_worker.iter().position(|call| call.contains("O_DIRECTORY")).unwrap_or_default();
    let last = of_worker.iter().rposition(|call| works(call)).unwrap_or_default();
    let between = of_worker.get(first..last).unwrap_or_default();
    let hops = between.iter().filter(|call| matches!(name(call), "futex" | "write" | "epoll_wait")).count();
    threads.sort_unstable();
    threads.dedup();
    let calls = of_worker.iter().filter(|call| about_files(call)).map(|call| (*call).to_owned());
    (calls.collect(), threads.len(), hops)
}

pub(crate) fn name(call: &str) -> &str {
    call.split_once('(').map_or("", |(name, _)| name)
}

/// Returns injections that kill the worker before each of these calls, in order. Closes at the end belong to the end of
/// the runtime and are left out.
pub(crate) fn kills(calls: &[String]) -> Vec<String> {
    let last = calls.iter().rposition(|call| name(call) != "close").unwrap();
    let nth = |n: usize| calls[..=n].iter().filter(|call| name(call) == name(&calls[n])).count();
    (0..=last).map(|n| format!("{}:signal=KILL:when={}", name(&calls[n]), nth(n))).collect()
}

/// Creates a directory with [`OLD`](super::OLD) in `file`.
pub(crate) fn with_old() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, &*super::OLD).unwrap();
    (dir, path)
}
