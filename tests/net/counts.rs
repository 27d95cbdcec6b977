//! Numbers of system calls, copies and flushes. Counters are per process, so each test runs in its own.

use std::time::Duration;

use millstream::metrics::Snapshot;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;

use testkit::{alone, noise, pair, pair_with};

#[tokio::test]
async fn small_writes_leave_in_one_call() {
    if alone::ran_in_child() {
        return;
    }
    let (mut ours, mut theirs) = pair().await;
    let before = Snapshot::now();
    for _ in 0..100 {
        ours.write_all(b"data: {\"token\": \"hello world this is\"}\n\n").await.unwrap();
        yield_now().await;
    }
    let mut got = vec![0; 4000];
    theirs.read_exact(&mut got).await.unwrap();
    let counted = Snapshot::now().since(&before);
    assert_eq!(counted.writes, 1, "{counted}");
    assert_eq!(counted.gathered, 100, "{counted}");
}

#[tokio::test]
async fn an_answer_leaves_at_once_and_what_follows_gathers() {
    if alone::ran_in_child() {
        return;
    }
    let (mut ours, mut theirs) = pair().await;
    theirs.write_all(b"ask").await.unwrap();
    ours.read_exact(&mut [0; 3]).await.unwrap();
    let before = Snapshot::now();
    ours.write_all(b"answer").await.unwrap();
    assert_eq!(Snapshot::now().since(&before).writes, 1, "the response leaves at once");
    assert_eq!(ours.queued(), 0);
    for _ in 0..50 {
        ours.write_all(b" and more").await.unwrap();
    }
    assert_eq!(ours.queued(), 450);
    let mut got = vec![0; 456];
    theirs.read_exact(&mut got).await.unwrap();
    assert_eq!(Snapshot::now().since(&before).writes, 2);
    assert!(got.starts_with(b"answer and more"));
}

#[tokio::test]
async fn without_a_gather_limit_every_write_leaves_at_once() {
    if alone::ran_in_child() {
        return;
    }
    let (mut ours, mut theirs) = pair_with(Duration::ZERO).await;
    let before = Snapshot::now();
    for _ in 0..10 {
        ours.write_all(b"now").await.unwrap();
        assert_eq!(ours.queued(), 0);
    }
    theirs.read_exact(&mut [0; 30]).await.unwrap();
    let counted = Snapshot::now().since(&before);
    assert_eq!((counted.writes, counted.gathered), (10, 0), "{counted}");
}

#[tokio::test]
async fn long_slices_are_not_copied_and_leave_with_the_queue() {
    if alone::ran_in_child() {
        return;
    }
    let (mut ours, mut theirs) = pair().await;
    let long = noise(40_000);
    let before = Snapshot::now();
    ours.write_all(b"head").await.unwrap();
    let n = ours.write(&long).await.unwrap();
    let counted = Snapshot::now().since(&before);
    assert_eq!((counted.writes, counted.bytes_copied), (1, 4), "{counted}");
    let mut got = vec![0; 4 + n];
    theirs.read_exact(&mut got).await.unwrap();
    assert_eq!(&got[..4], b"head");
    assert!(got[4..] == long[..n]);
}

#[tokio::test]
async fn pool_memory_is_held_not_copied() {
    if alone::ran_in_child() {
        return;
    }
    let (mut ours, mut theirs) = pair().await;
    let mut lease = millstream::buf::lease(8000);
    lease.extend_from_slice(&noise(8000));
    let bytes = lease.freeze();
    let before = Snapshot::now();
    ours.write_all(b"head").await.unwrap();
    ours.write_all(&bytes).await.unwrap();
    drop(bytes);
    // The queue holds the block, so this lease must get another one.
    let mut other = millstream::buf::lease(8000);
    other.extend_from_slice(&[b'!'; 8000]);
    let mut got = vec![0; 8004];
    theirs.read_exact(&mut got).await.unwrap();
    let counted = Snapshot::now().since(&before);
    assert_eq!((counted.bytes_held, counted.bytes_copied, counted.writes), (8000, 4, 1), "{counted}");
    assert!(got[4..] == noise(8000));
}
