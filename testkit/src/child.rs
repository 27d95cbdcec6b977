//! Runs a test of this program again in a child process, where state of the process (probed capabilities, limits,
//! seccomp filters) is still unset.
//!
//! ```text
//! #[test]
//! fn without_rings() {
//!     if let Some(what) = child::task() {
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

/// Timeout of every child.
const DEADLINE: Duration = Duration::from_secs(350);

/// Returns the argument of [`command`]; `None` outside of a child.
pub fn task() -> Option<String> {
    env::var(TOLD).ok()
}

/// Returns the command that runs the test `name` (its full path) alone in a child, with the argument `what`.
pub fn command(name: &str, what: &str) -> Command {
    let mut command = again(name);
    command.env(TOLD, what);
    command
}

/// Like [`command`], with an empty argument.
pub fn again(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command
}

/// Runs a [`command`] to its end. Prints its output, and returns it.
///
/// # Panics
///
/// Panics unless exactly one test ran and passed within a minute.
pub fn run(command: &mut Command) -> String {
    run_within(DEADLINE, command)
}

/// Like [`run`], within `deadline`.
pub fn run_within(deadline: Duration, command: &mut Command) -> String {
    // In its own process group, so that its children are killed with it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().unwrap();
    let group = Pid::from_child(&child);
    let (done, wait) = mpsc::channel();
    thread::spawn(move || done.send(child.wait_with_output()));
    let in_time = wait.recv_timeout(deadline);
    let hangs = in_time.is_err();
    let output = in_time.or_else(|_| {
        // The child may have just exited, which is still too late.
        let _ = kill_process_group(group, Signal::KILL);
        wait.recv_timeout(DEADLINE)
    });
    let output = output.expect("the killed child still runs").unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{stdout}");
    eprintln!("{stderr}");
    assert!(!hangs, "{command:?} did not end within {deadline:?}");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    assert!(
        stdout.contains("test result: ok. 1 passed; 0 failed; 0 ignored;"),
        "{command:?} did not run exactly one test"
    );
    stdout.into_owned()
}
