//! Operations in flight when a runtime ends. Closing a ring does not stop the kernel: with only the ring closed, it
//! continued to write into buffers for tens of milliseconds in four of five runs. So the end of a runtime waits for the
//! kernel. Memory that the kernel does not release in time is leaked and never used again.

use std::fs;
use std::future::Future;
use std::io::{IoSlice, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use millstream::fs::File;
use millstream::fs::chain::{Chain, StepOutcome};
use millstream::metrics::Snapshot;
use millstream::runtime::{DriverBuilder, Io, driver_info};
use tokio::runtime::{Builder, Runtime};

use testkit::alone;

/// Counters and descriptors are those of the process: one test at a time.
/// Long enough that the kernel is busy with it while the runtime ends.
const LONG: usize = 128 << 20;

fn runtime(workers: usize) -> Runtime {
    let mut builder = if workers == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    let runtime = builder.worker_threads(workers).enable_all().build().unwrap();
    runtime.block_on(async { DriverBuilder::new().io(Io::Uring).install().unwrap() });
    runtime
}

fn has_ring(runtime: &Runtime) -> bool {
    runtime.block_on(async {
        Chain::new().on(Arc::new(tempfile::tempfile().unwrap())).sync().run().await.unwrap();
        let info = driver_info();
        if info.rings() == 0 {
            testkit::skip("in flight at the end of a runtime", info);
            return false;
        }
        true
    })
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[expect(clippy::disallowed_methods, reason = "gives the kernel time for writes it must not do")]
fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

#[test]
fn nothing_writes_into_memory_after_its_runtime_has_ended() {
    if alone::ran_in_child() {
        return;
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![1; LONG]).unwrap();
    let mut in_flight = 0;
    let start = Snapshot::now();
    for round in 0..10 {
        let runtime = runtime(1);
        if !has_ring(&runtime) {
            return;
        }
        let before = Snapshot::now();
        let was_pending = runtime.block_on(async {
            let file = File::open(file.path()).await.unwrap();
            // Owned by a task and dropped with the runtime, like the requests of a service.
            let read = tokio::spawn(async move { file.read_at(0, LONG).await });
            // Until both reads are submitted; how far the kernel gets differs from round to round.
            while Snapshot::now().since(&before).ring_submissions < 2 {
                tokio::task::yield_now().await;
            }
            pause(round % 3);
            !read.is_finished()
        });
        drop(runtime);
        // The allocator reuses the memory freed last, so a write by the kernel would show here.
        let fresh = vec![2u8; LONG];
        pause(100);
        assert!(fresh.iter().all(|&byte| byte == 2), "round {round}: the kernel wrote after the runtime had ended");
        in_flight += u32::from(was_pending);
    }
    let counts = Snapshot::now().since(&start);
    assert_eq!((counts.ring_submissions, counts.ring_leaks), (counts.ring_completions, 0));
    assert!(in_flight > 0, "no read was in flight when its runtime ended: this test has tested nothing");
}

#[test]
fn a_runtime_with_a_thousand_operations_in_flight_ends_and_leaves_nothing() {
    if alone::ran_in_child() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), testkit::noise(1 << 20)).unwrap();
    // The first runtime of a process creates descriptors that stay.
    drop(runtime(2));
    for workers in [1, 2] {
        let before = (descriptors(), Snapshot::now());
        let runtime = runtime(workers);
        if !has_ring(&runtime) {
            return;
        }
        // The peer reads nothing, so sends to it stay in flight until they are cancelled.
        let (full, peer) = UnixStream::pair().unwrap();
        full.set_nonblocking(true).unwrap();
        while rustix::io::writev(full.as_fd(), &[IoSlice::new(&[0; 4096])]).is_ok() {}
        let full = Arc::new(full);
        runtime.block_on(async {
            for n in 0..250u64 {
                let path = dir.path().join("file");
                let (one, two) = (path.clone(), dir.path().join(format!("new-{n}")));
                let full = Arc::clone(&full);
                tokio::spawn(Chain::new().on(full).send(vec![7; 100]).run());
                tokio::spawn(async move { File::open(&path).await?.read_at(n * 4096 % (1 << 20), 4096).await });
                tokio::spawn(async move { File::open(one).await?.read_at(0, 1 << 20).await });
                tokio::spawn(async move {
                    let file = File::create(two).await?;
                    file.write_at(0, vec![1; 10_000]).await?;
                    file.sync().await
                });
            }
            while Snapshot::now().since(&before.1).ring_submissions < 400 {
                tokio::task::yield_now().await;
            }
        });
        drop(runtime);
        drop((full, peer));
        let counts = Snapshot::now().since(&before.1);
        assert_eq!((counts.ring_submissions, counts.ring_leaks), (counts.ring_completions, 0), "{workers} workers");
        assert_eq!(descriptors(), before.0, "{workers} workers");
    }
}

#[test]
fn a_future_that_outlives_its_runtime_goes_on_or_ends() {
    if alone::ran_in_child() {
        return;
    }
    let (one, other) = (runtime(1), runtime(1));
    if !has_ring(&one) {
        return;
    }
    let (full, _peer) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while rustix::io::writev(full.as_fd(), &[IoSlice::new(&[0; 4096])]).is_ok() {}
    let mut send = Box::pin(Chain::new().on(Arc::new(full)).send(vec![7; 100]).run());
    one.block_on(async {
        assert!(send.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    });
    drop(one);
    // The end of its runtime cancelled the send; the rest of the chain waits on the other runtime until it is dropped.
    let ended = other.block_on(async { tokio::time::timeout(Duration::from_millis(50), &mut send).await });
    if let Ok(Ok(report)) = ended {
        assert!(!matches!(report.outcomes()[0], StepOutcome::Done(_)), "{report:?}");
    }
    drop(send);
    drop(other);
    assert_eq!(Snapshot::now().ring_leaks, 0, "both runtimes have waited for their cancelled sends");
}
