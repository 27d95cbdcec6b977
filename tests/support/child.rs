//! A test of this program, run again in a process of its own, where what belongs to a process (capabilities that were found
//! out, limits, filters of system calls) is still to be settled.
//!
//! ```text
//! #[test]
//! fn without_rings() {
//!     if let Some(what) = child::told() {
//!         return with_the_call_denied(&what);
//!     }
//!     child::run(&mut child::command("without_rings", "ENOSYS"));
//! }
//! ```

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

const TOLD: &str = "MILLSTREAM_TEST_CHILD";

/// No child runs longer, whatever goes wrong in it.
const DEADLINE: Duration = Duration::from_secs(60);

/// What this process was told by [`command`]; `None` if it is no child.
pub fn told() -> Option<String> {
    env::var(TOLD).ok()
}

/// The command that runs the test `name`, by its full path and alone, in a child that is told `what`.
pub fn command(name: &str, what: &str) -> Command {
    let mut command = again(name);
    command.env(TOLD, what);
    command
}

/// As [`command`], told nothing.
pub fn again(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command
}

/// Runs a [`command`] to its end and gives what it printed, which is printed here as well.
///
/// Panics unless exactly one test ran, within a minute, and passed.
pub fn run(command: &mut Command) -> String {
    run_within(DEADLINE, command)
}

/// As [`run`], within `deadline`.
pub fn run_within(deadline: Duration, command: &mut Command) -> String {
    // In a group of its own, so that what it started is ended with it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().unwrap();
    let group = Pid::from_child(&child);
    let (done, wait) = mpsc::channel();
    thread::spawn(move || done.send(child.wait_with_output()));
    let in_time = wait.recv_timeout(deadline);
    let hangs = in_time.is_err();
    let output = in_time.or_else(|_| {
        // It may have ended just now, which is as late.
        let _ = kill_process_group(group, Signal::KILL);
        wait.recv_timeout(DEADLINE)
    });
    let output = output.expect("killed, and still there").unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{stdout}");
    eprintln!("{stderr}");
    assert!(!hangs, "{command:?} did not end within {deadline:?}");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    assert!(stdout.contains("test result: ok. 1 passed; 0 failed; 0 ignored;"), "{command:?} ran not exactly one test");
    stdout.into_owned()
}
