//! System calls of commits.

use crate::{hub, kept, open, send, small};
use testkit::http::Flavour;
use testkit::{child, strace};

const NAME: &str = "calls::a_burst_is_one_write_and_one_sync";

/// In the child: sends with four hubs without letting them run, then one by one.
async fn burst() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path()).await;
    let hubs: Vec<_> = (0..4).map(|_| hub(&disk)).collect();
    tokio::task::yield_now().await;
    (0..1000).for_each(|n| send(&hubs[n % 4], n));
    disk.flush().await.unwrap();
    assert_eq!((disk.state().appended, disk.state().commits), (1000, 1));
    for n in 0..5 {
        send(&hubs[n % 4], n);
        disk.flush().await.unwrap();
    }
    assert_eq!((disk.state().appended, disk.state().commits), (1005, 6));
}

#[test]
fn a_burst_is_one_write_and_one_sync() {
    if child::task().is_some() {
        return Flavour::CurrentThread.runtime().block_on(burst());
    }
    let calls = "trace=pwrite64,pwritev,pwritev2,fdatasync,fsync";
    let Some(trace) = strace::run(&child::command(NAME, "x"), &["-e", calls]) else { return };
    // Directories are synced when the log is created.
    let calls: Vec<_> = trace.lines().skip_while(|line| !line.contains("pwrite")).collect();
    let count = |what: &str| calls.iter().filter(|line| line.contains(what)).count();
    assert_eq!((count("pwrite"), count("fdatasync("), count("fsync(")), (6, 6, 0), "{trace}");
}

#[test]
fn new_directories_are_synced() {
    const NAME: &str = "calls::new_directories_are_synced";
    if child::task().is_some() {
        return Flavour::CurrentThread.runtime().block_on(async {
            let dir = tempfile::tempdir().unwrap();
            open(&dir.path().join("a/b/c")).await;
            open(&dir.path().join("a/b/c")).await;
        });
    }
    let Some(trace) = strace::run(&child::command(NAME, "x"), &["-y", "-e", "trace=fsync"]) else { return };
    let synced = |end: &str| trace.lines().filter(|line| line.contains("fsync(") && line.contains(end)).count();
    // The parents once, the last one and the directory itself each time. The first one exists.
    assert_eq!((synced("/a>"), synced("/a/b>"), synced("/a/b/c>"), synced("fsync(")), (1, 2, 2, 7), "{trace}");
}

#[test]
fn a_new_segment_syncs_its_directory() {
    const NAME: &str = "calls::a_new_segment_syncs_its_directory";
    const SEGMENTS: usize = 7;
    if child::task().is_some() {
        return Flavour::CurrentThread.runtime().block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let disk = small(dir.path()).open().await.unwrap();
            let hub = hub(&disk);
            for _ in 0..SEGMENTS {
                send(&hub, "x".repeat(3000));
                disk.flush().await.unwrap();
            }
            assert_eq!(kept(&disk).await.len(), SEGMENTS);
        });
    }
    let calls = "trace=openat,openat2,pwrite64,fsync,fdatasync";
    let Some(trace) = strace::run(&child::command(NAME, "x"), &["-e", calls]) else { return };
    let new = |line: &&str| line.contains(".events\"") && line.contains("O_CREAT");
    let calls = trace.lines().skip_while(|line| !new(line)).filter_map(|line| {
        let is_data = line.contains("pwrite64") && line.contains("\":0");
        let all = [("openat", new(&line)), ("fsync(", true), ("pwrite64(", is_data), ("fdatasync(", true)];
        all.into_iter().find(|(name, counts)| line.contains(name) && *counts).map(|(name, _)| name)
    });
    let expected = ["openat", "fsync(", "pwrite64(", "fdatasync("].repeat(SEGMENTS);
    assert_eq!(calls.collect::<Vec<_>>(), expected, "{trace}");
}
