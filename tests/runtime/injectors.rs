//! Tests of the fault injectors themselves, without any of our code in between.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, Probe};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::capabilities;

use testkit::{child, limits, seccomp, skip, strace};

/// Returns whether this machine supports rings.
fn rings() -> bool {
    let ring = IoUring::new(8);
    if let Err(why) = &ring {
        skip("faults of io_uring", why);
    }
    ring.is_ok()
}

fn errno<T>(result: std::io::Result<T>) -> Result<T, Errno> {
    result.map_err(|e| Errno::from_io_error(&e).unwrap())
}

/// Returns the results of the three io_uring calls: setup, enter and register.
fn answers() -> [Result<(), Errno>; 3] {
    let made = errno(IoUring::new(8));
    let Ok(ring) = &made else { return [made.map(drop), Ok(()), Ok(())] };
    let entered = errno(ring.submitter().submit_and_wait(0)).map(drop);
    let registered = errno(ring.submitter().register_probe(&mut Probe::new()));
    [Ok(()), entered, registered]
}

#[test]
fn a_denied_call_fails_with_that_errno_on_every_thread() {
    const CALLS: [libc::c_long; 3] = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
    const ERRNOS: [Errno; 6] = [Errno::NOSYS, Errno::PERM, Errno::ACCESS, Errno::NOMEM, Errno::MFILE, Errno::INVAL];
    if let Some(what) = child::task() {
        let (call, refusal) = what.split_once(' ').unwrap();
        let (call, refusal): (usize, usize) = (call.parse().unwrap(), refusal.parse().unwrap());
        assert_eq!(answers(), [Ok(()); 3], "before");
        let (go, wait) = mpsc::channel::<()>();
        let early = thread::spawn(move || {
            wait.recv().unwrap();
            answers()
        });
        seccomp::deny(CALLS[call], ERRNOS[refusal]);
        go.send(()).unwrap();
        let mut expected = [Ok(()); 3];
        expected[call] = Err(ERRNOS[refusal]);
        assert_eq!(answers(), expected, "on the thread that asked for it");
        assert_eq!(early.join().unwrap(), expected, "on one that ran before");
        assert_eq!(thread::spawn(answers).join().unwrap(), expected, "on one started later");
        return;
    }
    if rings() {
        for call in 0..CALLS.len() {
            for refusal in 0..ERRNOS.len() {
                let what = format!("{call} {refusal}");
                child::run(&mut child::command(
                    "injectors::a_denied_call_fails_with_that_errno_on_every_thread",
                    &what,
                ));
            }
        }
    }
}

#[test]
fn without_locked_memory_a_large_ring_is_refused() {
    let large = || errno(IoUring::new(1024)).map(drop);
    if child::task().is_some() {
        assert_eq!(large(), Ok(()), "before");
        limits::drop_memlock();
        // Checked separately, because a kernel that does not count the memory would not show remaining capabilities.
        let left = capabilities(None).unwrap();
        assert!(left.effective.is_empty() && left.permitted.is_empty(), "{left:?}");
        assert_eq!(getrlimit(Resource::Memlock).maximum, Some(0));
        match large() {
            Ok(()) => {
                skip("a ring without locked memory", "this kernel does not count its memory (Linux 5.12 to 6.13)")
            }
            refused => assert_eq!(refused, Err(Errno::NOMEM)),
        }
        assert_eq!(thread::spawn(large).join().unwrap(), large(), "on a thread started later");
        return;
    }
    match large() {
        Ok(()) => drop(child::run(&mut child::command("injectors::without_locked_memory_a_large_ring_is_refused", ""))),
        Err(why) => skip("a ring without locked memory", why),
    }
}

#[test]
fn a_fault_by_strace_arrives_at_the_call_it_is_for() {
    const NAME: &str = "injectors::a_fault_by_strace_arrives_at_the_call_it_is_for";
    if child::task().is_some() {
        let ring = IoUring::new(8).unwrap();
        let failed: Vec<usize> = (1..10)
            .filter(|_| {
                let entered = errno(ring.submitter().submit_and_wait(0));
                assert!(matches!(entered, Ok(0) | Err(Errno::AGAIN)), "{entered:?}");
                entered.is_err()
            })
            .collect();
        assert_eq!(failed, [2, 5, 8]);
        return;
    }
    let options = ["-e", "trace=io_uring_enter", "-e", "inject=io_uring_enter:error=EAGAIN:when=2+3"];
    if rings()
        && let Some(trace) = strace::run(&child::command(NAME, ""), &options)
    {
        assert_eq!((trace.lines().count(), trace.matches("EAGAIN").count()), (9, 3), "{trace}");
        assert_eq!(trace.matches("(INJECTED)").count(), 3, "{trace}");
    }
}

/// Returns the output of a child that [`child::run`] accepts, else its panic message.
fn verdict(deadline: Duration, command: &mut Command) -> Result<String, String> {
    let run = AssertUnwindSafe(|| child::run_within(deadline, command));
    catch_unwind(run).map_err(|panic| *panic.downcast::<String>().unwrap())
}

#[test]
fn a_child_runs_one_test_to_its_end_or_fails() {
    const NAME: &str = "injectors::a_child_runs_one_test_to_its_end_or_fails";
    match child::task().as_deref() {
        Some("fail") => panic!("as requested"),
        Some("hang") => loop {
            thread::park();
        },
        Some("leave") => std::process::exit(0),
        Some(what) => return println!("told {what}"),
        None => {}
    }
    let minute = Duration::from_secs(60);
    let passed = verdict(minute, &mut child::command(NAME, "a word")).unwrap();
    assert!(passed.contains("told a word"), "{passed}");
    let failed = verdict(minute, &mut child::command(NAME, "fail")).unwrap_err();
    assert!(failed.ends_with("exit status: 101"), "{failed}");
    for (name, what) in [("no_test_of_this_program", ""), (NAME, "leave")] {
        let none = verdict(minute, &mut child::command(name, what)).unwrap_err();
        assert!(none.ends_with("did not run exactly one test"), "{none}");
    }
    // Under a shell, which is in the same process group and waits for the child.
    let mut shell = Command::new("sh");
    let program = std::env::current_exe().unwrap();
    shell.args(["-c", "\"$0\" \"$@\"; true"]).arg(program).args(child::command(NAME, "").get_args());
    let hanging = verdict(Duration::from_millis(300), shell.env("MILLSTREAM_TEST_CHILD", "hang")).unwrap_err();
    assert!(hanging.ends_with("did not end within 300ms"), "{hanging}");
}

#[test]
fn a_skip_is_told_and_fails_where_all_is_required() {
    const NAME: &str = "injectors::a_skip_is_told_and_fails_where_all_is_required";
    if child::task().is_some() {
        return skip("a test", "it is about this");
    }
    let mut child = child::command(NAME, "");
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("skipped: a test: it is about this");
    let counted = tempfile::NamedTempFile::new().unwrap();
    child.env("MILLSTREAM_SKIPS", counted.path());
    let skipped = child.env_remove("MILLSTREAM_REQUIRE").output().unwrap();
    assert!(skipped.status.success() && said(&skipped), "{skipped:?}");
    let expected = format!("runtime\t{NAME}\ta test: it is about this\n");
    assert_eq!(std::fs::read_to_string(&counted).unwrap(), expected);
    let required = child.env("MILLSTREAM_REQUIRE", "all").output().unwrap();
    // The portable build lacks what cannot be had there.
    assert_eq!((required.status.success(), said(&required)), (cfg!(millstream_portable), true), "{required:?}");
}
