//! Counts the system calls of a server for a moment, by strace or perf.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::interrupt::Interrupt;
use super::process::Server;

/// How long the counter may take to attach, and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the pass is extended, and for how many requests.
const EXTENDED: Duration = Duration::from_secs(3);
const ENOUGH: f64 = 50.0;

#[derive(Clone, Copy, Debug)]
pub(super) enum Counter {
    Strace,
    Perf,
}

type Counted = (BTreeMap<String, u64>, u64, f64);

impl Counter {
    /// Returns a counter that works here.
    pub(super) fn find() -> Result<Self, String> {
        let works = |program: &str, arguments: &[&str]| {
            let tried = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
            tried.is_ok_and(|status| status.success())
        };
        if works("strace", &["-c", "-f", "true"]) {
            Ok(Self::Strace)
        } else if works("perf", &["stat", "-e", "raw_syscalls:sys_enter", "true"]) {
            Ok(Self::Perf)
        } else {
            Err("neither strace nor perf is installed and permitted".to_owned())
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Strace => "strace",
            Self::Perf => "perf",
        }
    }

    /// Returns calls by name, their sum, and how far `done` has come meanwhile.
    pub(super) fn count(
        self,
        server: &Server,
        cpus: &[usize],
        time: Duration,
        interrupt: &Interrupt,
        done: &mut impl FnMut() -> f64,
    ) -> Result<Counted, String> {
        let pids: Vec<String> = server.tree().iter().map(u32::to_string).collect();
        let mut command = vec![self.name().to_owned()];
        match self {
            Self::Strace => {
                command.extend(["-c", "-f"].map(str::to_owned));
                command.extend(pids.iter().flat_map(|pid| ["-p".to_owned(), pid.clone()]));
            }
            Self::Perf => command
                .extend(["stat", "-x", ";", "-e", "raw_syscalls:sys_enter", "-p", &pids.join(",")].map(str::to_owned)),
        }
        let mut tracer = Tracer::start(&command, cpus)?;
        match self {
            // It names each process that it has attached to; the table follows at the end.
            Self::Strace => {
                let attached = |line: &str| line.contains("attached");
                tracer.wait_for(pids.len(), attached, interrupt)?;
            }
            // It says nothing until it ends.
            Self::Perf => drop(interrupt.wait(Duration::from_millis(100), || None::<()>)?),
        }
        let before = done();
        interrupt.wait(time, || None::<()>)?;
        // A traced server is slow.
        interrupt.wait(EXTENDED, || (done() - before >= ENOUGH).then_some(()))?;
        let done = done() - before;
        let text = tracer.stop(interrupt)?;
        let named = match self {
            Self::Strace => table(&text),
            Self::Perf => perf(&text),
        };
        let all = named.values().sum();
        if all == 0 {
            return Err(format!("{} counted nothing: {}", self.name(), text.lines().next().unwrap_or_default()));
        }
        Ok((if let Self::Perf = self { BTreeMap::new() } else { named }, all, done))
    }
}

/// A tracer, which ends when this is dropped, or this process ends.
struct Tracer {
    child: Child,
    lines: mpsc::Receiver<String>,
    ended: bool,
}

impl Tracer {
    fn start(command: &[String], cpus: &[usize]) -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|e| format!("this program has no path: {e}"))?;
        let list = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut wrapped = Command::new(Path::new(&this));
        wrapped.args(["exec", "--cpus", &list, "--parent", &std::process::id().to_string(), "--"]).args(command);
        wrapped.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = wrapped.spawn().map_err(|e| format!("{}: {e}", command[0]))?;
        let err = child.stderr.take();
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(err?).lines() {
                sender.send(line.ok()?).ok()?;
            }
            Some(())
        });
        Ok(Self { child, lines, ended: false })
    }

    fn wait_for(&mut self, mut count: usize, is: impl Fn(&str) -> bool, interrupt: &Interrupt) -> Result<(), String> {
        let found = interrupt.wait(PATIENCE, || {
            loop {
                match self.lines.try_recv() {
                    Ok(line) if is(&line) => count -= 1,
                    Ok(line) => return Some(Err(line)),
                    Err(mpsc::TryRecvError::Empty) => return None,
                    Err(mpsc::TryRecvError::Disconnected) => return Some(Err("the tracer has ended".to_owned())),
                }
                if count == 0 {
                    return Some(Ok(()));
                }
            }
        })?;
        found.ok_or("the tracer did not attach")?
    }

    /// Ends the tracer. Returns what it has printed since.
    fn stop(&mut self, interrupt: &Interrupt) -> Result<String, String> {
        self.signal(Signal::INT);
        let mut text = String::new();
        let ended = interrupt.wait(PATIENCE, || {
            loop {
                match self.lines.try_recv() {
                    Ok(line) => text = std::mem::take(&mut text) + &line + "\n",
                    Err(mpsc::TryRecvError::Empty) => return None,
                    Err(mpsc::TryRecvError::Disconnected) => return Some(()),
                }
            }
        })?;
        ended.ok_or("the tracer did not end")?;
        let _ = self.child.wait();
        self.ended = true;
        Ok(text)
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if !self.ended {
            // SIGKILL would leave threads of the server stopped on old kernels.
            self.signal(Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

/// Reads the table of `strace -c`: share, seconds, microseconds for each, calls, perhaps errors, name.
fn table(text: &str) -> BTreeMap<String, u64> {
    let row = |line: &str| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let calls = columns.get(3)?.parse().ok()?;
        let name = *columns.last()?;
        columns[0].parse::<f64>().ok()?;
        (name != "total" && columns.len() >= 5).then(|| (name.to_owned(), calls))
    };
    text.lines().filter_map(row).collect()
}

/// Reads the lines of `perf stat -x ;`.
fn perf(text: &str) -> BTreeMap<String, u64> {
    let row = |line: &str| {
        let mut columns = line.split(';');
        let calls = columns.next()?.parse().ok()?;
        Some((columns.nth(1)?.to_owned(), calls))
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_strace_and_perf_are_read() {
        let text = "\
strace: Process 12 detached
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 61.50    0.001200           3       400           sendmsg
 38.50    0.000751           1       500        20 recvfrom
  0.00    0.000000           0         1           total_like
------ ----------- ----------- --------- --------- ----------------
100.00    0.001951           2       901        20 total
";
        let expected = [("sendmsg", 400), ("recvfrom", 500), ("total_like", 1)];
        let expected = expected.map(|(name, calls)| (name.to_owned(), calls)).into_iter().collect();
        assert_eq!(table(text), expected);
        assert_eq!(table("strace: attach: ptrace(PTRACE_SEIZE, 1): Operation not permitted"), BTreeMap::new());
        let counted = perf("1234;;raw_syscalls:sys_enter;500000;100.00;;\n<not counted>;;x;0;0;;\n");
        assert_eq!(counted, [("raw_syscalls:sys_enter".to_owned(), 1234)].into_iter().collect());
    }
}
