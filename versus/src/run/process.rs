//! A server as a process: its CPU time, its memory, and its end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use measuring::cpus;
use measuring::socket::Reserved;
use rustix::process::{Pid, Signal, kill_process_group};

use super::interrupt::Interrupt;

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// How to start a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) variables: Vec<(String, String)>,
    /// Where it will listen. `None` if it prints its address as its first line.
    pub(super) address: Option<Reserved>,
}

/// A running server, which ends when this is dropped, or this process ends.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    pub(super) address: SocketAddr,
    /// Kept open: a server may print.
    _out: Option<ChildStdout>,
}

/// Returns an address of 127.0.0.1, for servers that cannot choose one themselves.
pub(super) fn reserve() -> Result<Reserved, String> {
    Reserved::new().map_err(|e| format!("no free port: {e}"))
}

impl Server {
    /// Starts a server on these CPUs, and waits until it listens.
    ///
    /// Call it on a thread that lives on: the kernel ends the server with the thread that has started it.
    pub(super) fn start(launch: &Launch, cpus: &[usize], interrupt: &Interrupt) -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|e| format!("this program has no path: {e}"))?;
        let list = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut command = Command::new(this);
        command.args(["exec", "--cpus", &list, "--parent", &std::process::id().to_string(), "--"]);
        command.arg(&launch.program).args(&launch.arguments).envs(launch.variables.iter().cloned());
        // A group of its own: Ctrl-C is for this process, and its end is for the whole group.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", launch.program.display()))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let errors = drain(err);
        let mut server = Self { child, address: ([127, 0, 0, 1], 0).into(), _out: None };
        let listens = match &launch.address {
            Some(Reserved { addr, .. }) => interrupt.wait(PATIENCE, || {
                if server.has_ended() {
                    return Some(Err(String::new()));
                }
                TcpStream::connect(addr).ok().map(|_| Ok(*addr))
            }),
            None => {
                let (sender, first) = mpsc::channel();
                let mut out = BufReader::new(out.ok_or("no output")?);
                thread::spawn(move || {
                    let mut line = String::new();
                    let _ = out.read_line(&mut line);
                    let _ = sender.send((line, out.into_inner()));
                });
                interrupt.wait(PATIENCE, || {
                    let (line, out) = first.try_recv().ok()?;
                    server._out = Some(out);
                    Some(line.trim().parse().map_err(|_| line))
                })
            }
        };
        match listens? {
            Some(Ok(address)) => {
                server.address = address;
                Ok(server)
            }
            Some(Err(line)) => {
                // What it has printed says why; the pipe ends with it.
                let said = errors.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
                Err(format!("ended before it listened: {line}{}", said.trim()))
            }
            None => Err(format!("did not listen within {PATIENCE:?}")),
        }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process and its descendants.
    pub(super) fn tree(&self) -> Vec<u32> {
        let mut all = vec![self.pid()];
        let mut next = 0;
        while let Some(pid) = all.get(next) {
            next += 1;
            for task in tasks(*pid) {
                let children = fs::read_to_string(format!("{task}/children")).unwrap_or_default();
                all.extend(children.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
            }
        }
        all
    }

    pub(super) fn cpu(&self) -> CpuTime {
        let mut time = CpuTime::default();
        for pid in self.tree() {
            for task in tasks(pid) {
                // proc_pid_schedstat: the first number is the time on a CPU in nanoseconds.
                let text = fs::read_to_string(format!("{task}/schedstat")).unwrap_or_default();
                if let Some(Ok(nanos)) = text.split(' ').next().map(str::parse) {
                    time.exact.insert(task, nanos);
                }
            }
            time.ticks += cpus::of_process(pid).unwrap_or_default().as_nanos() as u64;
        }
        time
    }

    /// Returns the proportional set size of all processes in KiB: a page that several of them map counts once.
    pub(super) fn pss_kib(&self) -> Option<u64> {
        self.tree().into_iter().map(|pid| pss(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)).sum()
    }
}

/// Reads the Pss of proc_pid_smaps_rollup. The kernel divides each page by the number of processes that map it.
fn pss(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(group) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) else { return };
        // SIGTERM first, for servers with workers. Those that do not listen to it, and late workers, are killed.
        let _ = kill_process_group(group, Signal::TERM);
        let end = Instant::now() + Duration::from_secs(2);
        while !self.has_ended() && Instant::now() < end {
            thread::park_timeout(Duration::from_millis(1));
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Collects what a server prints to stderr, at most a few lines of it, and sends them at its end.
fn drain(err: Option<std::process::ChildStderr>) -> mpsc::Receiver<String> {
    let (sender, errors) = mpsc::channel();
    thread::spawn(move || {
        let mut said = String::new();
        for line in BufReader::new(err?).lines() {
            let line = line.ok()?;
            if said.len() < 2000 {
                said = said + &line + "\n";
            }
        }
        sender.send(said).ok()
    });
    errors
}

fn tasks(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().to_string_lossy().into_owned()).collect()
}

/// Nanoseconds of a tick.
fn tick() -> u64 {
    cpus::tick().as_nanos() as u64
}

/// CPU time of a server at one moment.
#[derive(Debug, Default)]
pub(super) struct CpuTime {
    /// Of each thread.
    exact: BTreeMap<String, u64>,
    ticks: u64,
}

impl CpuTime {
    /// Returns the time that has passed, in nanoseconds. Threads that have ended meanwhile show in ticks only, which
    /// count if they exceed the exact time by more than they can be wrong.
    pub(super) fn since(&self, before: &Self) -> u64 {
        let used = |(task, now): (&String, &u64)| now.saturating_sub(before.exact.get(task).copied().unwrap_or(0));
        let exact: u64 = self.exact.iter().map(used).sum();
        let coarse = self.ticks.saturating_sub(before.ticks);
        // The share of user and system time is sampled; two ticks for each thread are its error.
        let error = 2 * tick() * (self.exact.len() as u64).max(1);
        if coarse > exact + error + exact / 20 { coarse } else { exact }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_end_are_not_lost() {
        let time = |exact: &[(&str, u64)], ticks| CpuTime {
            exact: exact.iter().map(|&(task, nanos)| (task.to_owned(), nanos)).collect(),
            ticks,
        };
        let second = 1_000_000_000;
        let before = time(&[("a", 5), ("b", 7)], 0);
        assert_eq!(time(&[("a", 9), ("b", 7), ("c", 3)], 0).since(&before), 7);
        // A tick of difference is noise, a second is a thread.
        assert_eq!(time(&[("a", 9)], tick()).since(&before), 4);
        assert_eq!(time(&[("a", 9)], second).since(&before), second);
    }

    #[test]
    fn pages_are_counted_once() {
        let text = "5600-7ffe ---p 00000000 00:00 0    [rollup]\nRss:   9000 kB\nPss:    1572 kB\nPss_Dirty:  3 kB\n";
        assert_eq!(pss(text), Some(1572));
        assert_eq!(pss(""), None);
    }

    #[test]
    fn a_server_that_ends_says_why() {
        // In place of this program, whose tests have no subcommand `exec`.
        let launch = Launch { program: "/nonexistent/server".into(), ..Launch::default() };
        let error = Server::start(&launch, &[0], &Interrupt::default()).unwrap_err();
        assert!(error.contains("ended before it listened"), "{error}");
    }
}
