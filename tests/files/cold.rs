//! A file that is not in memory: its download blocks no other task of the same thread.
//!
//! Counters belong to the process, so the test runs in its own process.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use millstream::files::Files;
use millstream::metrics::Snapshot;
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags};
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use testkit::http::{Flavour, Raw, ask, pages, start, watched};
use testkit::{alone, skip};

const BLOCK: usize = 4 << 20;
const BLOCKS: usize = 64;
/// Attempts to drop a file from the page cache.
const DROPS: usize = 40;

/// Writes a file, drops it from the page cache, and returns its digest. `None` if the kernel keeps the pages.
fn cold_file(path: &Path) -> Option<[u8; 32]> {
    let mut block = pages(BLOCK);
    let mut sum = Sha256::new();
    let mut file = File::create_new(path).unwrap();
    for n in 0..BLOCKS {
        block[..8].copy_from_slice(&(n as u64).to_le_bytes());
        sum.update(&block);
        file.write_all(&block).unwrap();
    }
    file.sync_all().unwrap();
    // A page that the kernel is still moving between its lists is kept.
    let cold = (0..DROPS).any(|_| {
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let cold = is_cold(path);
        if !cold {
            std::thread::park_timeout(Duration::from_millis(50));
        }
        cold
    });
    cold.then(|| sum.finalize().into())
}

/// Returns whether the first, the middle and the last page of the file are not cached.
fn is_cold(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    [0, BLOCK * BLOCKS / 2, BLOCK * BLOCKS - 1].into_iter().all(|at| {
        let mut byte = [0];
        let mut slices = [std::io::IoSliceMut::new(&mut byte)];
        // With `RWF_NOWAIT`, a read succeeds only for cached pages.
        rustix::io::preadv2(&file, &mut slices, at as u64, ReadWriteFlags::NOWAIT) == Err(Errno::AGAIN)
    })
}

/// Counts the turns of the calling thread in which it can run other tasks.
async fn turns(mut stop: oneshot::Receiver<()>) -> u64 {
    let mut turns = 0;
    while stop.try_recv().is_err() {
        turns += 1;
        yield_now().await;
    }
    turns
}

/// Downloads the file on its own thread. Returns its digest.
fn download(addr: SocketAddr) -> [u8; 32] {
    Flavour::CurrentThread.runtime().block_on(async {
        let mut client = Raw::connect(addr).await;
        client.ask("/cold").await;
        let len = client.head().await.content_length();
        let first = client.buffered();
        let mut sum = Sha256::new_with_prefix(&first);
        let mut left = len - first.len();
        let mut buf = vec![0; 256 << 10];
        while left > 0 {
            let n = client.io.read(&mut buf).await.unwrap();
            assert!(n > 0, "the end {left} bytes too early");
            sum.update(&buf[..n]);
            left -= n;
        }
        sum.finalize().into()
    })
}

#[test]
fn a_cold_file_of_256_mib_holds_up_nobody() {
    if alone::ran_in_child() {
        return;
    }
    watched(download_cold);
}

/// Downloads a cold file, and counts how often the server's thread can run other tasks meanwhile.
fn download_cold() {
    let dir = tempfile::tempdir().unwrap();
    let Some(expected) = cold_file(&dir.path().join("cold")) else {
        return skip("a cold file", "this file system keeps pages that it was told to drop");
    };
    let before = Snapshot::now();
    let (got, turns) = Flavour::CurrentThread.runtime().block_on(async {
        let files = Files::new(dir.path()).unwrap();
        let addr = start(move |request| {
            let files = files.clone();
            async move { ask(&files, &request, |body| body).await }
        })
        .await;
        let (stop, stopped) = oneshot::channel();
        let turns = tokio::spawn(turns(stopped));
        let got = tokio::task::spawn_blocking(move || download(addr)).await.unwrap();
        stop.send(()).unwrap();
        (got, turns.await.unwrap())
    });
    assert_eq!(got, expected);
    let counted = Snapshot::now().since(&before);
    println!("{} steps were cold, {turns} turns", counted.cold_steps);
    // Each cold step is read elsewhere, while the thread runs other tasks.
    assert!(counted.cold_steps > 0 && turns >= counted.cold_steps, "{turns} turns\n{counted}");
}
