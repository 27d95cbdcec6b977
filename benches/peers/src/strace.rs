//! System calls of a process, counted by strace(1).

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// strace, attached.
#[derive(Debug)]
pub(crate) struct Calls {
    strace: Child,
    output: BufReader<ChildStderr>,
}

impl Calls {
    /// Counts the calls of all threads of a process from now on. `None` where there is no strace, or it may not trace.
    pub(crate) fn of(pid: u32) -> io::Result<Option<Self>> {
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-U", "calls,name", "-p", &pid.to_string()]);
        let mut strace = match command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            spawned => spawned?,
        };
        let Some(output) = strace.stderr.take() else { unreachable!("piped") };
        let mut output = BufReader::new(output);
        // One line says that it is attached to the process and its threads; otherwise it says why not, and ends.
        let mut line = String::new();
        output.read_line(&mut line)?;
        if !line.contains("attached") {
            strace.wait()?;
            return Ok(None);
        }
        Ok(Some(Self { strace, output }))
    }

    /// Detaches. Gives the calls, without those that were still going on.
    pub(crate) fn stop(mut self) -> io::Result<Option<u64>> {
        let pid = Pid::from_child(&self.strace);
        kill_process(pid, Signal::INT)?;
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        self.strace.wait()?;
        let total = text.lines().rev().find_map(|line| line.trim().strip_suffix(" total"));
        Ok(total.and_then(|calls| calls.trim().parse().ok()))
    }
}
