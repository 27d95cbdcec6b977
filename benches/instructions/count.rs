//! Runs a server under valgrind or strace, and counts.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::{Server, Work};
use crate::keys;

/// The work of a server for one unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count {
    /// Instructions of user space, of all threads.
    pub(crate) instructions: f64,
    /// System calls by name, those that come at least once in 50 units.
    pub(crate) calls: BTreeMap<String, f64>,
}

#[derive(Clone, Copy)]
enum Tool {
    Callgrind,
    Strace,
}

/// Counts by the difference of a run and one twice as long.
pub(crate) fn count(server: &str, work: Work, connections: u32) -> Result<Count, String> {
    // Rounds that make the count of one connection repeat within 1 %.
    let rounds = if connections == 1 { 1500 } else { 30 };
    let units = f64::from(rounds * connections);
    let totals = |tool, rounds| totals(tool, server, work, connections, rounds);
    let difference = |tool| -> Result<BTreeMap<String, f64>, String> {
        let (one, two) = (totals(tool, rounds)?, totals(tool, rounds * 2)?);
        let less = |name: &String| one.get(name).copied().unwrap_or(0);
        Ok(two.iter().map(|(name, &n)| (name.clone(), (n as f64 - less(name) as f64) / units)).collect())
    };
    let instructions = difference(Tool::Callgrind)?.into_values().sum();
    let mut calls = difference(Tool::Strace)?;
    calls.retain(|_, n| n.abs() >= 0.02);
    Ok(Count { instructions, calls })
}

fn totals(
    tool: Tool,
    server: &str,
    work: Work,
    connections: u32,
    rounds: u32,
) -> Result<BTreeMap<String, u64>, String> {
    let dir = TempDir::with_prefix("millstream-instructions-").map_err(|e| format!("no temporary directory: {e}"))?;
    let out = dir.path().join("out");
    let running = Running::start(tool, server, &out)?;
    let worked = work.run(running.server, connections, rounds).map_err(|e| format!("{server}: {e}"));
    let ended = running.end();
    worked?;
    let text = std::fs::read_to_string(&out).map_err(|e| format!("{server} left no counts: {e}\n{ended}"))?;
    Ok(match tool {
        Tool::Callgrind => instructions_of(&text),
        Tool::Strace => calls_of(&text),
    })
}

/// The line `totals: N` of callgrind's output.
fn instructions_of(text: &str) -> BTreeMap<String, u64> {
    let totals = text.lines().filter_map(|line| line.strip_prefix("totals:")?.trim().parse().ok());
    totals.map(|n| ("instructions".to_owned(), n)).collect()
}

/// The rows of `strace -c`: share, seconds, microseconds a call, calls, errors if there are any, and the name.
fn calls_of(text: &str) -> BTreeMap<String, u64> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = *words.last()?;
        let calls = words.get(3)?.parse().ok()?;
        (name != "total").then(|| (name.to_owned(), calls))
    };
    text.lines().filter_map(row).collect()
}

struct Running {
    tool: Child,
    /// Of the server, which is strace's child.
    pid: Pid,
    server: Server,
    _out: BufReader<ChildStdout>,
}

impl Running {
    fn start(tool: Tool, server: &str, out: &Path) -> Result<Self, String> {
        let mut command = match tool {
            Tool::Callgrind => {
                let mut command = Command::new("valgrind");
                command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
                command
            }
            Tool::Strace => {
                let mut command = Command::new("strace");
                command.args(["-c", "-f", "-o"]).arg(out);
                command
            }
        };
        let this = std::env::current_exe().map_err(|e| format!("this program has no path: {e}"))?;
        keys::give(&mut command);
        command.arg(this).args(["serve", server]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut tool = command.spawn().map_err(|e| format!("{}: {e}", command.get_program().display()))?;
        let mut stdout = BufReader::new(tool.stdout.take().expect("it is piped"));
        let mut line = String::new();
        let read = stdout.read_line(&mut line).map_err(|e| format!("{server}: {e}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let parsed = match words[..] {
            [addr, control, pid] => {
                (|| Some((addr.parse().ok()?, control.parse().ok()?, Pid::from_raw(pid.parse().ok()?)?)))()
            }
            _ => None,
        };
        match (read, parsed) {
            (Ok(_), Some((addr, control, pid))) => {
                Ok(Self { tool, pid, server: Server { addr, control }, _out: stdout })
            }
            (read, _) => {
                let _ = tool.kill();
                let said = tool.wait_with_output().map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
                Err(format!("{server} did not start: {read:?} {line}{}", said.unwrap_or_default()))
            }
        }
    }

    /// Ends the server; its tool writes what it has counted. Returns what both printed.
    fn end(self) -> String {
        // It may have ended.
        let _ = kill_process(self.pid, Signal::TERM);
        let output = self.tool.wait_with_output();
        output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default()
    }
}
