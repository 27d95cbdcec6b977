//! `shutdown` ends a stream behind its queue, without waiting for the peer.

use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millstream::net::{SendStrategy, TcpStream, UnixStream};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::time::timeout;

use testkit::family::Family;

/// Of the paused clock: it passes only when no task can run.
const A_WHILE: Duration = Duration::from_millis(100);

/// Writes until the peer has to read first. Returns the number of bytes.
async fn fill<S: Family>(stream: &mut S) -> usize {
    let mut written = 0;
    while let Ok(n) = timeout(A_WHILE, stream.write(&[7; 2048])).await {
        written += n.unwrap();
    }
    written
}

fn shut_down<S: Family>(stream: &mut S) -> Poll<std::io::Result<()>> {
    Pin::new(stream).poll_shutdown(&mut Context::from_waker(Waker::noop()))
}

/// One task fills a relay, ends its stream, and reads the other end only then.
async fn joined<S: Family>(strategy: SendStrategy) {
    let (mut a, mut relay_a) = S::pair().await;
    let (mut relay_b, mut b) = S::pair().await;
    a.handle().set_send_strategy(strategy);
    relay_b.handle().set_send_strategy(strategy);
    let relay = tokio::spawn(async move { copy_bidirectional(&mut relay_a, &mut relay_b).await.unwrap() });
    let written = fill(&mut a).await;
    assert!(matches!(shut_down(&mut a), Poll::Ready(Ok(()))), "{strategy}");
    let mut got = Vec::new();
    b.read_to_end(&mut got).await.unwrap();
    assert_eq!(got.len(), written, "{strategy}");
    a.flushed().await.unwrap();
    assert_eq!(a.queued(), 0);
    b.shutdown().await.unwrap();
    assert_eq!(relay.await.unwrap(), (written as u64, 0), "{strategy}");
}

#[tokio::test(start_paused = true)]
async fn a_task_may_shut_down_before_it_reads_the_other_end_of_a_relay() {
    for &strategy in SendStrategy::ALL {
        joined::<TcpStream>(strategy).await;
        joined::<UnixStream>(strategy).await;
    }
}

/// Returns a stream that was shut down while bytes wait, and its other end.
async fn ending<S: Family>() -> (S, S::Theirs) {
    let (mut ours, theirs) = S::pair().await;
    SockRef::from(&ours).set_send_buffer_size(4096).unwrap();
    fill(&mut ours).await;
    assert!(matches!(shut_down(&mut ours), Poll::Ready(Ok(()))));
    assert!(ours.queued() > 0);
    (ours, theirs)
}

async fn refuses<S: Family>() {
    let (mut ours, mut theirs) = ending::<S>().await;
    let queued = ours.queued();
    assert_eq!(ours.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(ours.queued(), queued);
    ours.shutdown().await.unwrap();
    // The end is not sent before the bytes.
    assert!(timeout(A_WHILE, ours.flushed()).await.is_err());
    let (reader, flushed) = tokio::join!(
        async {
            theirs.read_to_end(&mut Vec::new()).await.unwrap();
            theirs
        },
        ours.flushed()
    );
    flushed.unwrap();
    let mut theirs = reader;
    theirs.write_all(b"still open").await.unwrap();
    ours.read_exact(&mut [0; 10]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn writes_after_a_shutdown_fail_and_reads_go_on() {
    refuses::<TcpStream>().await;
    refuses::<UnixStream>().await;
}

async fn fails<S: Family>() {
    let (mut ours, theirs) = ending::<S>().await;
    let waits = tokio::spawn(async move {
        let first = ours.flushed().await;
        (first, ours.flushed().await, ours.queued())
    });
    tokio::task::yield_now().await;
    drop(theirs);
    let (first, second, queued) = waits.await.unwrap();
    assert!(first.is_err() && second.is_err());
    assert_eq!(queued, 0);
}

#[tokio::test(start_paused = true)]
async fn a_failure_behind_a_shutdown_is_told_by_the_next_call() {
    fails::<TcpStream>().await;
    fails::<UnixStream>().await;
}
