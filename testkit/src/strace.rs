//! Fault injection at the n-th call, with strace(1).

use std::process::Command;

use tempfile::NamedTempFile;

use crate::{child, skip};

/// Runs `child` ([`child::command`]) under strace with `options`, like [`child::run`]. Returns the log of strace, one
/// line for each call. Reports a skip and returns `None` if this machine cannot trace.
///
/// `["-e", "trace=io_uring_enter", "-e", "inject=io_uring_enter:error=EAGAIN:when=10+10"]` makes every tenth call of
/// each thread fail; strace counts per thread. Calls not in `trace=` are not logged.
pub fn run(child: &Command, options: &[&str]) -> Option<String> {
    if let Err(why) = works() {
        skip("faults injected by strace", why);
        return None;
    }
    let trace = NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(trace.path()).args(options).arg(child.get_program()).args(child.get_args());
    for (name, value) in child.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    child::run(&mut command);
    Some(std::fs::read_to_string(trace.path()).unwrap())
}

fn works() -> Result<(), String> {
    match Command::new("strace").args(["-o", "/dev/null", "true"]).output() {
        Ok(tried) if tried.status.success() => Ok(()),
        Ok(tried) => Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned()),
        Err(e) => Err(format!("strace: {e}")),
    }
}
