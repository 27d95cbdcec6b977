//! Frames shared with other processes: ours, Python's, and hostile ones.
#![cfg(not(millstream_portable))]

mod bytes;
mod credit;
mod ends;
mod hostile;
mod pages;
mod peers;
mod scripts;

use std::time::Duration;

use millstream::net::UnixStream;
use millstream_frames::{FrameReceiver, FrameReceiverBuilder, FrameSender};
use tokio::time::timeout;

use peers::Peer;
use testkit::HANGS;

/// Returns a sender and a receiver that are connected.
async fn connected(receiver: FrameReceiverBuilder) -> (FrameSender, FrameReceiver) {
    let (one, other) = UnixStream::pair().unwrap();
    let (sender, receiver) = tokio::join!(FrameSender::handshake(one), receiver.handshake(other));
    (sender.unwrap(), receiver.unwrap())
}

/// Returns a receiver, and its other end, which was greeted and sends messages of the test.
async fn against_peer(receiver: FrameReceiverBuilder) -> (Peer, FrameReceiver) {
    let (peer, stream) = Peer::pair();
    peer.say(b"MSF1", 0, 0);
    let receiver = receiver.handshake(stream).await.unwrap();
    assert_eq!(peer.hear().0, *b"MSF1");
    (peer, receiver)
}

/// Waits for a condition, for at most [`HANGS`].
async fn soon(what: &str, fine: impl Fn() -> bool) {
    let waiting = async {
        while !fine() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(timeout(HANGS, waiting).await.is_ok(), "{what}");
}

/// Returns the open descriptors, without those of the ring, which stays open once it is used.
fn open() -> Vec<String> {
    let is_ring = |fd: &String| fd.contains("[io_uring]") || fd.contains("[eventfd]");
    testkit::fds().into_iter().filter(|fd| !is_ring(fd)).collect()
}

/// Returns the descriptors and mappings of frames in this process.
fn frames() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_frame = |name: &str| name.contains("/memfd:");
    let fds = testkit::fds();
    (fds.iter().filter(|fd| is_frame(fd)).count(), maps.lines().filter(|line| is_frame(line)).count())
}
