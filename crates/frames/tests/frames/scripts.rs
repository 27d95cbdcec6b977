//! Scripts of messages, in order and not, cut anywhere: the frames before the first fault arrive, and no others.

use std::os::fd::AsFd;

use millstream_frames::FrameReceiver;
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::fs::SealFlags;
use tokio::time::timeout;

use crate::against_peer;
use crate::peers::{FIXED, Peer, memfd, message};
use testkit::HANGS;
use testkit::http::Flavour;
use testkit::noise;

#[derive(Clone, Debug)]
enum Act {
    /// A frame that is in order.
    Frame(usize),
    Unsealed,
    /// A frame that claims another length.
    Longer,
    Bare,
    /// Any message, perhaps with a descriptor.
    Any([u8; 16], bool),
    Done,
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => (1..80_000usize).prop_map(Act::Frame),
        1 => Just(Act::Unsealed),
        1 => Just(Act::Longer),
        1 => Just(Act::Bare),
        2 => Just(Act::Done),
        1 => (any::<[u8; 4]>(), any::<u32>(), any::<u64>(), any::<bool>())
            .prop_map(|(kind, frames, bytes, right)| Act::Any(message(&kind, frames, bytes), right)),
        1 => (prop_oneof![Just(*b"CRED"), Just(*b"MSF1"), Just(*b"DONE")], 20..30u32, 0..3u64, any::<bool>())
            .prop_map(|(kind, frames, bytes, right)| Act::Any(message(&kind, frames, bytes), right)),
    ]
}

/// Sends a message in two parts. The descriptor goes with the first, which has at least one byte.
fn send(peer: &Peer, message: [u8; 16], file: Option<&std::os::fd::OwnedFd>, cut: usize) {
    let (first, rest) = message.split_at(cut.clamp(1, 16));
    let fds: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    peer.send(first, &fds);
    if !rest.is_empty() {
        peer.send(rest, &[]);
    }
}

fn play(peer: &Peer, script: &[(Act, usize)], bytes: &[u8]) {
    let mut sent = (0, 0);
    for (act, cut) in script {
        match act {
            Act::Frame(len) => {
                sent = (sent.0 + 1, sent.1 + *len as u64);
                send(peer, message(b"FRAM", 1, *len as u64), Some(&memfd(&bytes[..*len], FIXED)), *cut);
            }
            Act::Unsealed => {
                send(peer, message(b"FRAM", 1, 5), Some(&memfd(&bytes[..5], SealFlags::SHRINK)), *cut);
            }
            Act::Longer => send(peer, message(b"FRAM", 1, 6), Some(&memfd(&bytes[..5], FIXED)), *cut),
            // Of a length that no descriptor of another message has.
            Act::Bare => send(peer, message(b"FRAM", 1, 80_001), None, *cut),
            Act::Any(message, right) => {
                let file = right.then(|| memfd(&bytes[..5], FIXED));
                send(peer, *message, file.as_ref(), *cut);
            }
            Act::Done => send(peer, message(b"DONE", sent.0, sent.1), None, *cut),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn frames_before_the_first_fault_arrive_and_nothing_else(
        script in vec((acts(), 1..=16usize), 0..15),
        tail in vec(any::<u8>(), 0..16),
    ) {
        let bytes = noise(80_000);
        Flavour::CurrentThread.runtime().block_on(async {
            let (peer, mut receiver) = against_peer(FrameReceiver::builder()).await;
            let (copy, acts, end) = (bytes.clone(), script.clone(), tail.clone());
            let playing = std::thread::spawn(move || {
                play(&peer, &acts, &copy);
                peer.send(&end, &[]);
                peer.0.shutdown(std::net::Shutdown::Write).unwrap();
                peer
            });
            let mut due = script.iter().map(|(act, _)| act).peekable();
            let mut got = 0;
            let end = loop {
                match timeout(HANGS, receiver.next()).await.expect("it hangs") {
                    Some(Ok(piece)) => {
                        let Some(Act::Frame(len)) = due.peek() else { panic!("{:?} was taken for a frame", due.peek()) };
                        assert!(piece == bytes[got..got + piece.len()]);
                        got += piece.len();
                        if got == *len {
                            (got, _) = (0, due.next());
                        }
                    }
                    Some(Err(error)) => break Some(error),
                    None => break None,
                }
            };
            assert_eq!(got, 0, "part of a frame");
            match (due.next(), end) {
                (Some(Act::Done), None) => {}
                (None, Some(error)) => assert!(error.is_ended() == tail.is_empty(), "{error}"),
                (Some(Act::Unsealed | Act::Longer | Act::Bare | Act::Any(..)), Some(error)) => {
                    assert!(error.is_violation(), "{error}");
                }
                (act, end) => panic!("{act:?} is followed by {end:?}"),
            }
            drop(receiver);
            playing.join().unwrap();
        });
    }
}
