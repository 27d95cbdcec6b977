//! Unit tests of `linger`.

use std::io::IoSlice;
use std::task::{Context, Waker};

use super::super::super::options::Options;
use super::*;
use crate::runtime::Turn;

/// Returns a connection with bytes that its socket does not take, and its peer.
async fn full() -> (Arc<Egress>, tokio::net::UnixStream) {
    let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
    let egress =
        Egress::new(ours.into_std().unwrap().into(), Turn::current(), Options::of_a_gathering_stream()).unwrap();
    let piece = [IoSlice::new(&[7; 16 << 10]); 64];
    assert!(egress.poll_write(&mut Context::from_waker(Waker::noop()), &piece).is_ready());
    assert!(poll_fn(|cx| std::task::Poll::Ready(egress.poll_drained(cx, Reason::Dropped))).await.is_pending());
    (egress, theirs)
}

#[tokio::test]
async fn a_peer_that_takes_nothing_in_time_is_given_up() {
    let (egress, _theirs) = full().await;
    let task = tokio::spawn(Lingering::new(Arc::clone(&egress)).run());
    let start = Instant::now();
    let mut watched = Watched { egress: Arc::downgrade(&egress), left: (usize::MAX, None), since: start };
    assert!(watched.goes_on(start), "bytes have moved");
    assert!(watched.goes_on(start + LINGER - CHECK));
    assert!(!watched.goes_on(start + LINGER));
    task.await.unwrap();
    assert_eq!(egress.queued(), 0);
    assert!(watched.goes_on(start + LINGER), "bytes have moved");
    drop(egress);
    assert!(!watched.goes_on(start + LINGER), "the stream has ended");
}

#[tokio::test]
async fn a_stream_that_waits_for_a_shared_rate_is_not_given_up() {
    let (egress, _theirs) = full().await;
    let start = Instant::now();
    let mut watched = Watched { egress: Arc::downgrade(&egress), left: (usize::MAX, None), since: start };
    assert!(watched.goes_on(start), "bytes have moved");
    egress.state().paced = true;
    assert!(watched.goes_on(start + LINGER));
    egress.state().paced = false;
    assert!(watched.goes_on(start + LINGER + LINGER - CHECK));
    assert!(!watched.goes_on(start + LINGER + LINGER));
}

/// The timers of a runtime may be paused: the thread has its own clock.
#[tokio::test(start_paused = true)]
async fn the_thread_gives_up_a_peer_that_takes_nothing() {
    let (egress, theirs) = full().await;
    let queued = egress.queued();
    assert!(queued > 0);
    tokio::spawn(Lingering::new(egress).run()).await.unwrap();
    let mut got = Vec::new();
    let mut theirs = theirs.into_std().unwrap();
    theirs.set_nonblocking(false).unwrap();
    std::io::Read::read_to_end(&mut theirs, &mut got).unwrap();
    assert_eq!(got.len(), (1 << 20) - queued, "only the bytes that the kernel held");
}
