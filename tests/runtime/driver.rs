//! io_uring missing, blocked, starved or failing: the blocking pool gives the same results, and the reason is reported.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;

use futures_util::future::join_all;
use millstream::Capabilities;
use millstream::fs::File;
use millstream::fs::chain::Chain;
use millstream::metrics::Snapshot;
use millstream::runtime::{DriverBuilder, DriverInfo, Io, RuntimeBuilderExt, driver_info};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use testkit::{alone, child, limits, seccomp, strace};

const SETUP: libc::c_long = 425;
const ENTER: libc::c_long = 426;
const REGISTER: libc::c_long = 427;

pub(super) fn runtime(builder: DriverBuilder) -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { builder.io(Io::Uring).install().unwrap() });
    runtime
}

/// Writes and reads 200 pieces of a file concurrently, and compares them.
pub(super) async fn two_hundred_operations() -> DriverInfo {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let bytes = testkit::noise(100 * 700);
    let file = File::options().read(true).write(true).create_new(true).open(&path).await.unwrap();
    let writes = bytes.chunks(700).zip(0u64..).map(|(chunk, n)| file.write_at(n * 700, chunk.to_vec()));
    join_all(writes).await.into_iter().for_each(|written| written.unwrap());
    file.sync().await.unwrap();
    assert!(fs::read(&path).unwrap() == bytes);
    for (read, chunk) in join_all((0..100).map(|n| file.read_at(n * 700, 700))).await.iter().zip(bytes.chunks(700)) {
        assert!(read.as_ref().unwrap()[..] == *chunk);
    }
    file.close().await.unwrap();
    driver_info()
}

/// Returns whether this machine has a ring.
pub(super) fn has_ring() -> bool {
    let support = Capabilities::get().io_uring();
    if !support.is_yes() {
        testkit::skip("io_uring that fails", support);
    }
    support.is_yes()
}

/// Runs in the child of a test that denies a call from the start.
fn blocked(call: libc::c_long, errno: &str) {
    let errno = Errno::from_raw_os_error(errno.parse().unwrap());
    seccomp::deny(call, errno);
    let info = runtime(DriverBuilder::new()).block_on(two_hundred_operations());
    assert_eq!(info.rings(), 0);
    let (reason, error) = (info.reason().unwrap(), std::io::Error::from(errno).to_string());
    assert!(reason.contains(&error) && reason.contains("blocking pool"), "{reason}");
    assert!(info.to_string().contains(reason));
    let counts = Snapshot::now();
    assert_eq!((counts.ring_submissions, counts.rings_refused), (0, 1));
    assert!(counts.pool_programs >= 200, "{counts}");
}

fn with_each_errno(test: &str) {
    for errno in [Errno::NOSYS, Errno::PERM, Errno::ACCESS, Errno::NOMEM, Errno::MFILE, Errno::INVAL] {
        child::run(&mut child::command(test, &errno.raw_os_error().to_string()));
    }
}

#[test]
fn without_setup() {
    match child::task() {
        Some(errno) => blocked(SETUP, &errno),
        None if testkit::portable("there is no io_uring") => {}
        None => with_each_errno("driver::without_setup"),
    }
}

#[test]
fn with_setup_and_without_enter() {
    match child::task() {
        Some(errno) => blocked(ENTER, &errno),
        None if has_ring() => with_each_errno("driver::with_setup_and_without_enter"),
        None => {}
    }
}

#[test]
fn without_register() {
    match child::task() {
        Some(errno) => blocked(REGISTER, &errno),
        None if has_ring() => with_each_errno("driver::without_register"),
        None => {}
    }
}

#[test]
fn enter_is_denied_while_the_ring_is_in_use() {
    if alone::ran_in_child() {
        return;
    }
    if !has_ring() {
        return;
    }
    let runtime = runtime(DriverBuilder::new());
    assert_eq!(runtime.block_on(two_hundred_operations()).rings(), 1);
    seccomp::deny(ENTER, Errno::PERM);
    let info = runtime.block_on(two_hundred_operations());
    assert_eq!(info.rings(), 0);
    assert!(info.reason().unwrap().starts_with("io_uring_enter: "), "{info}");
    drop(runtime);
    let counts = Snapshot::now();
    assert_eq!((counts.rings_closed, counts.ring_leaks), (1, 0));
    assert_eq!(counts.ring_submissions, counts.ring_completions);
}

#[test]
fn without_locked_memory() {
    if child::task().is_none() {
        if has_ring() {
            child::run(&mut child::command("driver::without_locked_memory", ""));
        }
        return;
    }
    limits::drop_memlock();
    let info = runtime(DriverBuilder::new()).block_on(two_hundred_operations());
    // Kernels before about 6.14 do not count the memory of rings; then there is a ring.
    assert!(info.reason().is_none_or(|reason| reason.contains("ulimit -l")), "{info}");
}

#[test]
fn a_kernel_that_is_busy_now_and_then() {
    const TEST: &str = "driver::a_kernel_that_is_busy_now_and_then";
    if child::task().is_some() {
        let runtime = runtime(DriverBuilder::new().entries(32));
        for _ in 0..5 {
            runtime.block_on(two_hundred_operations());
        }
        drop(runtime);
        let counts = Snapshot::now();
        assert_eq!((counts.ring_submissions, counts.ring_leaks), (counts.ring_completions, 0));
        println!("ENTERS {} {}", counts.ring_enters, counts.rings_closed + counts.rings_refused);
        return;
    }
    if !has_ring() {
        return;
    }
    for errno in ["EAGAIN", "EBUSY", "EINTR", "ENOMEM"] {
        for every in [2, 3, 10] {
            let mut run = child::command(TEST, "");
            run.env("MILLSTREAM_IO", "uring");
            let inject = format!("inject=io_uring_enter:error={errno}:when={every}+{every}");
            let Some(trace) = strace::run(&run, &["-e", "trace=io_uring_enter", "-e", &inject]) else { return };
            assert!(trace.contains(errno), "nothing was injected");
        }
    }
}

#[test]
fn ten_thousand_operations_on_the_smallest_ring() {
    if !has_ring() {
        return;
    }
    let runtime = runtime(DriverBuilder::new().entries(32));
    runtime.block_on(async {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&testkit::noise(100_000), 0).unwrap();
        let file = File::from_std(file).unwrap();
        let reads = join_all((0..10_000).map(|n| file.read_at(n, 8))).await;
        let expected = testkit::noise(100_000);
        for (n, read) in reads.into_iter().enumerate() {
            assert_eq!(read.unwrap()[..], expected[n..n + 8]);
        }
    });
}

#[test]
fn a_process_out_of_descriptors_says_so_and_goes_on() {
    if alone::ran_in_child() {
        return;
    }
    for io in [Io::Uring, Io::Epoll] {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            DriverBuilder::new().io(io).install().unwrap();
            let path = std::env::current_exe().unwrap();
            let held = File::open(&path).await.unwrap();
            // Open descriptors stay open, and no number is left for a new one.
            let next = tempfile::tempfile().unwrap().as_raw_fd() as u64;
            let limit = getrlimit(Resource::Nofile);
            let mut low = limit;
            low.current = Some(next);
            setrlimit(Resource::Nofile, low).unwrap();
            let error = File::open(&path).await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()), "{io}: {error}");
            assert_eq!(held.read_at(0, 4).await.unwrap()[..], *b"\x7fELF");
            setrlimit(Resource::Nofile, limit).unwrap();
            File::open(&path).await.unwrap();
        });
    }
}

#[test]
fn capabilities_probed_without_descriptors_are_probed_again() {
    if alone::ran_in_child() {
        return;
    }
    if testkit::portable("nothing is probed") {
        return;
    }
    let limit = getrlimit(Resource::Nofile);
    let mut low = limit;
    low.current = Some(tempfile::tempfile().unwrap().as_raw_fd() as u64);
    setrlimit(Resource::Nofile, low).unwrap();
    let (sendfile, ring) = (Capabilities::get().sendfile().clone(), Capabilities::get().io_uring().clone());
    setrlimit(Resource::Nofile, limit).unwrap();
    // A capability that is turned off, or that the kernel lacks, has another reason, and keeps it.
    let now = Capabilities::get();
    for (then, now) in [(&sendfile, now.sendfile()), (&ring, now.io_uring())] {
        assert_eq!(then.to_string().contains("os error 24"), now.is_yes(), "{then}; {now}");
    }
    assert!(now.sendfile().is_yes() || now.io_uring().is_yes() || testkit::lacks("sendfile"), "{now}");
}

#[test]
fn a_program_that_is_started_gets_no_ring() {
    if !has_ring() {
        return;
    }
    let runtime = runtime(DriverBuilder::new());
    assert_eq!(runtime.block_on(two_hundred_operations()).rings(), 1);
    let ours = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let rings = ours.filter(|fd| fs::read_link(fd.path()).is_ok_and(|link| link.ends_with("anon_inode:[io_uring]")));
    assert!(rings.count() > 0, "a ring of this process");
    let theirs = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let theirs = String::from_utf8(theirs.stdout).unwrap();
    assert!(theirs.contains(" 0 -> ") && !theirs.contains("io_uring"), "{theirs}");
    assert_eq!(runtime.block_on(two_hundred_operations()).rings(), 1);
}

#[test]
fn operations_that_block_do_not_make_threads_without_bound() {
    if alone::ran_in_child() {
        return;
    }
    if !has_ring() {
        return;
    }
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let runtime = runtime(DriverBuilder::new().file_workers(4).other_workers(4));
    let before = threads();
    runtime.block_on(async {
        // Splices from pipes without data: each would hold a kernel thread.
        let pipes: Vec<_> = (0..100).map(|_| std::io::pipe().unwrap()).collect();
        let (_, sink) = std::io::pipe().unwrap();
        let sink = Arc::new(sink);
        let mut writers = Vec::new();
        for (reader, writer) in pipes {
            writers.push(writer);
            tokio::spawn(Chain::new().on(Arc::clone(&sink)).splice_from(Arc::new(reader), 100).run());
        }
        while Snapshot::now().ring_submissions < 100 {
            tokio::task::yield_now().await;
        }
        // The kernel starts threads one by one, as it finds the existing ones blocked.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        assert!(threads() <= before + 9, "{} threads for 100 operations that block", threads() - before);
    });
}

#[test]
fn a_ring_of_one_thread_serves_that_thread_and_no_other() {
    if !has_ring() {
        return;
    }
    let runtime = runtime(DriverBuilder::new().single_thread(true));
    for _ in 0..3 {
        let info = runtime.block_on(two_hundred_operations());
        assert!(info.rings() == 1 && info.to_string().contains("DEFER_TASKRUN"), "{info}");
    }
    // Violates the single-thread promise: another thread runs the runtime.
    let (runtime, info) = std::thread::spawn(move || {
        let info = runtime.block_on(two_hundred_operations());
        (runtime, info)
    })
    .join()
    .unwrap();
    assert_eq!(info.rings(), 0, "{info}");
    assert!(info.reason().unwrap().starts_with("io_uring_enter: "), "{info}");
    drop(runtime);
}

#[test]
fn hooks_change_no_answer() {
    if !has_ring() {
        return;
    }
    for workers in [1, 2] {
        let mut builder = if workers == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
        let runtime = builder.enable_all().worker_threads(workers).drive_rings_at_park().build().unwrap();
        runtime.block_on(async {
            DriverBuilder::new().io(Io::Uring).install().unwrap();
            for _ in 0..3 {
                let info = tokio::spawn(two_hundred_operations()).await.unwrap();
                assert!(info.rings() >= 1 && info.reason().is_none(), "{info}");
            }
        });
    }
}
