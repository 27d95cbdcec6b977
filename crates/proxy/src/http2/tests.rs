//! Unit tests of `http2`.

use super::*;
use hyper_util::rt::TokioIo;
use std::task::{Context, Waker};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

#[tokio::test(start_paused = true)]
async fn a_host_that_vanishes_is_noticed() {
    let (ours, mut theirs) = duplex(1 << 16);
    let http2 = Http2::new(WIDE);
    let Ok(sender) = http2.begin(TokioIo::new(ours), 1000, None).await else { panic!("no connection") };
    // Settings and their acknowledgement, and no more.
    theirs.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0]).await.unwrap();
    let swallowing = tokio::spawn(async move { theirs.read_to_end(&mut Vec::new()).await });
    let request = Request::get("http://mill/").body(OutBody::empty()).unwrap();
    let sending = tokio::time::timeout(Duration::from_secs(3600), send(sender, request));
    let failed = sending.await.expect("no response in an hour");
    assert!(failed.is_err_and(|failed| failed.message().is_none()), "it was sent");
    assert!(http2.current(Duration::MAX).is_none(), "the connection is used no more");
    swallowing.abort();
}

/// Lets the other tasks run until a condition holds. Returns whether it does.
async fn comes_true(holds: impl Fn() -> bool) -> bool {
    for _ in 0..1000 {
        if holds() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn a_request_that_waits_keeps_no_sender() {
    let (ours, _theirs) = duplex(1 << 16);
    let http2 = Http2::new(WIDE);
    let Ok(sender) = http2.begin(TokioIo::new(ours), 1000, None).await else { panic!("no connection") };
    let number = sender.number;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let request = Request::get("http://mill/").body(OutBody::empty()).unwrap();
    let mut sending = std::pin::pin!(send(sender, request));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(sending.as_mut().poll(&mut cx).is_pending());
    assert!(comes_true(|| tasks() == 3).await, "one for requests, one for frames, one for the response");
    http2.forget(number);
    assert!(comes_true(|| tasks() == 2).await, "the task that takes requests ends with the last sender");
    assert!(sending.poll(&mut cx).is_pending(), "the response is waited for");
}

#[tokio::test]
async fn a_connection_that_ends_leaves_no_sender() {
    let (ours, theirs) = duplex(1 << 16);
    let http2 = Http2::new(WIDE);
    assert!(http2.begin(TokioIo::new(ours), 1000, None).await.is_ok());
    assert!(http2.lock().sender.is_some());
    drop(theirs);
    assert!(comes_true(|| http2.lock().sender.is_none()).await);
}

#[tokio::test]
async fn a_request_that_fails_late_gives_up_its_own_connection() {
    let http2 = Http2::new(WIDE);
    let mut connections = Vec::new();
    for _ in 0..2 {
        let (ours, theirs) = duplex(1 << 16);
        let Ok(sender) = http2.begin(TokioIo::new(ours), 1000, None).await else { panic!("no connection") };
        connections.push((sender.number, theirs));
    }
    http2.forget(connections[0].0);
    assert_eq!(http2.current(Duration::MAX).map(|current| current.number), Some(connections[1].0));
    http2.forget(connections[1].0);
    assert!(http2.current(Duration::MAX).is_none());
}
