//! Unit tests of `ring_send`.

use super::super::super::options::Options;
use super::super::super::receive::Receive;
use super::*;
use crate::runtime::{Flush, Turn};
use std::io::IoSlice;
use std::task::{Context, Poll, Waker};
use tokio::io::AsyncReadExt;

#[tokio::test]
async fn while_bytes_are_away_nothing_overtakes_them() {
    let (ours, mut theirs) = tokio::net::UnixStream::pair().unwrap();
    let ours = ours.into_std().unwrap();
    let egress = Egress::new(ours.into(), Turn::current(), Options::of_a_gathering_stream()).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(egress.poll_write(&mut cx, &[IoSlice::new(b"first ")]).is_ready());
    let send_op = Arc::clone(&egress).begin().expect("something waits");
    assert!(egress.poll_write(&mut cx, &[IoSlice::new(b"second")]).is_ready());
    assert!(matches!(egress.poll_drained(&mut cx, Reason::Flushed), Poll::Pending));
    Arc::clone(&egress).flush();
    assert_eq!(egress.queued(), 12);
    // The ring did not accept the send: a plain call does it.
    Arc::clone(&egress).end(send_op);
    let mut got = [0; 12];
    theirs.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"first second");
}

#[tokio::test]
async fn streams_without_a_ring_do_not_join_batches() {
    let (ours, _theirs) = tokio::net::UnixStream::pair().unwrap();
    let options = Options { receive: Receive::Multishot, ..Options::default() };
    let egress = Egress::new(ours.into_std().unwrap().into(), Turn::current(), options).unwrap();
    let receives = usize::from(egress.receives_by_ring());
    for (strategy, joins) in [
        (SendStrategy::Auto, receives),
        (SendStrategy::Uring, usize::MAX),
        (SendStrategy::Epoll, 0),
        (SendStrategy::NoCork, receives),
    ] {
        egress.set_send_strategy(strategy);
        assert_eq!(egress.joins(), joins, "{strategy}");
    }
}
