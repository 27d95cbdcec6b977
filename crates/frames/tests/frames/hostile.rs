//! Processes that break the protocol: each loses its connection, and nothing else is affected.

use std::os::fd::AsFd;
use std::time::Duration;

use millstream_frames::{FrameReceiver, FrameSender, FrameSenderBuilder, SharedError};
use rustix::fs::{MemfdFlags, SealFlags};
use tokio::time::timeout;

use crate::peers::{FIXED, Peer, memfd, message};
use crate::{against_peer, connected, frames, soon};
use testkit::HANGS;
use testkit::http::on_both;
use testkit::{alone, fds, noise};

/// Acts of a peer after its greeting, and the expected error.
type Act = (&'static str, &'static str, fn(&Peer));

const ACTS: &[Act] = &[
    ("no descriptor", "a frame without a descriptor", |peer| peer.say(b"FRAM", 1, 5)),
    ("no seals", "not sealed", |peer| frame_of(peer, 5, SealFlags::empty())),
    ("no seal against writing", "not sealed", |peer| frame_of(peer, 5, FIXED.difference(SealFlags::WRITE))),
    ("future writes only", "not sealed", |peer| {
        frame_of(peer, 5, FIXED.difference(SealFlags::WRITE) | SealFlags::FUTURE_WRITE)
    }),
    ("no seal against shrinking", "not sealed", |peer| frame_of(peer, 5, FIXED.difference(SealFlags::SHRINK))),
    ("no seal against growing", "not sealed", |peer| frame_of(peer, 5, FIXED.difference(SealFlags::GROW))),
    ("longer than its memfd", "another length", |peer| frame_of(peer, 6, FIXED)),
    ("shorter than its memfd", "another length", |peer| frame_of(peer, 4, FIXED)),
    ("no bytes", "wrong numbers", |peer| frame_of(peer, 0, FIXED)),
    ("more than the credit", "without credit", |peer| {
        let file = memfd(&vec![1; (1 << 20) + 1], FIXED);
        peer.send(&message(b"FRAM", 1, (1 << 20) + 1), &[file.as_fd()]);
    }),
    ("a length beyond all", "without credit", |peer| frame_of(peer, u64::MAX, FIXED)),
    ("a file", "not a memfd", |peer| {
        let file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut &file, b"hello").unwrap();
        peer.send(&message(b"FRAM", 1, 5), &[file.as_fd()]);
    }),
    ("a pipe", "not a memfd", |peer| {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        peer.send(&message(b"FRAM", 1, 5), &[reader.as_fd()]);
    }),
    ("its own socket", "not a memfd", |peer| peer.send(&message(b"FRAM", 1, 5), &[peer.0.as_fd()])),
    ("huge pages", "huge pages", |peer| {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let Ok(file) = rustix::fs::memfd_create(c"peer", flags) else {
            return frame_of_huge(peer);
        };
        rustix::fs::ftruncate(&file, 2 << 20).unwrap();
        rustix::fs::fcntl_add_seals(&file, FIXED).unwrap();
        peer.send(&message(b"FRAM", 1, 5), &[file.as_fd()]);
    }),
    ("two descriptors", "descriptor", |peer| {
        let file = memfd(b"hello", FIXED);
        peer.send(&message(b"FRAM", 1, 5), &[file.as_fd(), file.as_fd()]);
    }),
    ("a flood of descriptors", "too many descriptors", |peer| {
        let file = memfd(b"hello", FIXED);
        peer.send(&message(b"FRAM", 1, 5), &[file.as_fd(); 250]);
    }),
    ("descriptors in parts of a message", "descriptor", |peer| {
        let file = memfd(b"hello", FIXED);
        for byte in &message(b"FRAM", 1, 5)[..15] {
            peer.send(&[*byte], &[file.as_fd()]);
        }
    }),
    ("a descriptor with the end", "a descriptor without a frame", |peer| {
        let file = memfd(b"hello", FIXED);
        peer.send(&message(b"DONE", 1, 100_000), &[file.as_fd()]);
    }),
    ("half a message", "inside a message", |peer| {
        peer.send(&message(b"FRAM", 1, 5)[..7], &[]);
        peer.0.shutdown(std::net::Shutdown::Write).unwrap();
    }),
    ("half a message, and a descriptor", "inside a message", |peer| {
        let file = memfd(b"hello", FIXED);
        peer.send(&message(b"FRAM", 1, 5)[..7], &[file.as_fd()]);
        peer.0.shutdown(std::net::Shutdown::Write).unwrap();
    }),
    ("another greeting", "only a receiver", |peer| peer.say(b"MSF1", 0, 0)),
    ("credit", "only a receiver", |peer| peer.say(b"CRED", 1, 1)),
    ("an end with more frames", "wrong numbers", |peer| peer.say(b"DONE", 2, 100_000)),
    ("an end with other bytes", "wrong numbers", |peer| peer.say(b"DONE", 1, 99_999)),
    ("an unknown kind", "no known kind", |peer| peer.say(b"NOPE", 0, 0)),
    ("another protocol", "no known kind", |peer| peer.send(b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n", &[])),
];

fn frame_of(peer: &Peer, claimed: u64, seals: SealFlags) {
    let file = memfd(b"hello", seals);
    peer.send(&message(b"FRAM", 1, claimed), &[file.as_fd()]);
}

/// Where the kernel has no huge pages.
fn frame_of_huge(peer: &Peer) {
    peer.send(b"huge pages are", &[]);
    peer.0.shutdown(std::net::Shutdown::Write).unwrap();
}

fn said(error: &SharedError) -> String {
    error.to_string()
}

#[test]
fn each_lie_costs_its_own_connection_and_no_descriptor() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        // Open all the time, and not affected.
        let (mut sender, mut receiver) = connected(FrameReceiver::builder()).await;
        let bytes = noise(100_000);
        // The sender keeps frames that were returned until it sends again.
        let others = || fds().into_iter().filter(|fd| !fd.contains("memfd:millstream")).collect::<Vec<_>>();
        let before = others();
        for (what, says, act) in ACTS {
            let (peer, mut victim) = against_peer(FrameReceiver::builder().bytes(1 << 20)).await;
            // Good frames before it stay good.
            peer.frame(&bytes);
            let good = victim.next().await.unwrap().unwrap();
            act(&peer);
            let next = timeout(HANGS, victim.next()).await.unwrap_or_else(|_| panic!("{what}: nothing happens"));
            let error = next.unwrap_or_else(|| panic!("{what}: taken for the end")).expect_err(what);
            let is_absent = *what == "huge pages" && said(&error).contains("inside a message");
            assert!(error.is_violation() && (said(&error).contains(says) || is_absent), "{what}: {error}");
            assert!(victim.next().await.is_none(), "{what}: goes on");
            assert!(peer.is_left(), "{what}: still connected");
            assert!(good == bytes, "{what}: an earlier frame has changed");
            drop((good, victim, peer));
            soon(&format!("{what}: descriptors are left: {:?}", fds()), || others() == before).await;
            sender.send(&bytes[..]).await.unwrap();
            assert!(receiver.next().await.unwrap().unwrap() == bytes, "{what}: another stream is affected");
        }
        drop((sender, receiver));
        soon("frames are left", || frames() == (0, 0)).await;
    });
}

#[test]
fn no_sender_exceeds_its_credit() {
    on_both(async || {
        let (peer, mut victim) = against_peer(FrameReceiver::builder().frames(2)).await;
        for _ in 0..3 {
            peer.frame(b"hello");
        }
        let held = [victim.next().await.unwrap().unwrap(), victim.next().await.unwrap().unwrap()];
        assert_eq!(held, ["hello", "hello"]);
        let error = victim.next().await.unwrap().unwrap_err();
        assert!(error.is_violation() && said(&error).contains("without credit"), "{error}");
        // Bytes count too.
        let (peer, mut victim) = against_peer(FrameReceiver::builder().bytes(9)).await;
        peer.frame(b"hello");
        peer.frame(b"hello");
        let _held = victim.next().await.unwrap().unwrap();
        let error = victim.next().await.unwrap().unwrap_err();
        assert!(error.is_violation() && said(&error).contains("without credit"), "{error}");
    });
}

#[test]
fn a_wrong_greeting_is_refused() {
    on_both(async || {
        for greeting in [*b"MSF2", *b"FRAM", *b"GET "] {
            let (peer, stream) = Peer::pair();
            peer.say(&greeting, 0, 0);
            let error = FrameReceiver::handshake(stream).await.unwrap_err();
            assert!(error.is_violation(), "{greeting:?}: {error}");
            let (peer, stream) = Peer::pair();
            peer.say(&greeting, 1, 1);
            let error = FrameSender::handshake(stream).await.unwrap_err();
            assert!(error.is_violation(), "{greeting:?}: {error}");
        }
        // Two of the same kind.
        let (peer, stream) = Peer::pair();
        peer.say(b"MSF1", 1, 1);
        assert!(FrameReceiver::handshake(stream).await.unwrap_err().is_violation());
        let (peer, stream) = Peer::pair();
        peer.say(b"MSF1", 0, 0);
        assert!(FrameSender::handshake(stream).await.unwrap_err().is_violation());
    });
}

/// Returns a sender whose peer grants two frames.
async fn sender() -> (Peer, FrameSender) {
    let (peer, stream) = Peer::pair();
    peer.say(b"MSF1", 2, 100);
    let builder = FrameSender::builder().silence(Duration::from_secs(1));
    (peer, builder.handshake(stream).await.unwrap())
}

#[test]
fn a_receiver_that_lies_is_refused() {
    on_both(async || {
        for (what, kind, frames, bytes) in [
            ("more frames than were sent", b"CRED", 3, 5),
            ("more bytes than were sent", b"CRED", 1, 11),
            ("a frame", b"FRAM", 1, 5),
            ("another greeting", b"MSF1", 2, 100),
        ] {
            let (peer, mut sender) = sender().await;
            sender.send(&b"hello"[..]).await.unwrap();
            sender.send(&b"world"[..]).await.unwrap();
            peer.say(kind, frames, bytes);
            let error = sender.send(&b"again"[..]).await.unwrap_err();
            assert!(error.is_violation(), "{what}: {error}");
        }
    });
}

#[test]
fn a_receiver_that_returns_no_credit_is_given_up() {
    on_both(async || {
        let (_peer, mut sender) = sender().await;
        sender.send(&b"hello"[..]).await.unwrap();
        sender.send(&b"world"[..]).await.unwrap();
        let error = timeout(HANGS, sender.send(&b"again"[..])).await.unwrap().unwrap_err();
        assert!(error.is_timeout(), "{error}");
    });
}

/// Returns a sender whose peer grants all that a greeting can say.
async fn lavished(builder: FrameSenderBuilder) -> (Peer, FrameSender) {
    let (peer, stream) = Peer::pair();
    peer.say(b"MSF1", u32::MAX, u64::MAX);
    (peer, builder.silence(Duration::from_secs(1)).handshake(stream).await.unwrap())
}

#[test]
fn a_receiver_that_grants_everything_and_returns_nothing_holds_the_limits_of_the_sender() {
    on_both(async || {
        for (builder, held) in [
            (FrameSender::builder(), 16),
            (FrameSender::builder().frames(3), 3),
            (FrameSender::builder().bytes(5 * 99 + 98), 5),
        ] {
            let (_peer, mut sender) = lavished(builder).await;
            for n in 0..held {
                let sent = timeout(HANGS, sender.send(&[7; 99][..])).await.unwrap();
                sent.unwrap_or_else(|e| panic!("frame {n} of {held}: {e}"));
            }
            let error = timeout(HANGS, sender.send(&[7; 99][..])).await.unwrap().expect_err("more than the limit");
            assert!(error.is_timeout(), "{error}");
        }
    });
}

#[test]
fn a_receiver_that_returns_other_bytes_than_frames_holds_the_limits_of_the_sender() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        const LEN: u32 = 64 << 10;
        let builder = FrameSender::builder().frames(100).bytes(4 * u64::from(LEN));
        let (peer, mut sender) = lavished(builder).await;
        let bytes = noise(LEN as usize);
        for _ in 0..10 {
            for _ in 0..4 {
                sender.send(&bytes[..]).await.unwrap();
            }
            peer.say(b"CRED", 1, 4 * u64::from(LEN));
        }
        sender.send(&bytes[..]).await.unwrap();
        assert!(frames().0 <= 4, "{} frames are kept", frames().0);
    });
}

#[test]
fn a_sender_that_is_silent_is_given_up_unless_it_may_wait_for_credit() {
    on_both(async || {
        let builder = FrameReceiver::builder().silence(Duration::from_millis(200));
        let (peer, mut receiver) = against_peer(builder.clone()).await;
        peer.frame(b"hello");
        let held = receiver.next().await.unwrap().unwrap();
        let silent = timeout(Duration::from_millis(700), receiver.next()).await;
        assert!(silent.is_err(), "given up although a frame is held: {silent:?}");
        drop(held);
        let error = timeout(HANGS, receiver.next()).await.unwrap().unwrap().unwrap_err();
        assert!(error.is_timeout(), "{error}");
        // Before the greeting too.
        let (_peer, stream) = Peer::pair();
        let error = timeout(HANGS, builder.handshake(stream)).await.unwrap().unwrap_err();
        assert!(error.is_timeout(), "{error}");
    });
}

#[tokio::test(start_paused = true)]
async fn time_in_which_a_frame_was_held_is_no_silence() {
    const LIMIT: Duration = Duration::from_secs(10);
    let (peer, mut receiver) = against_peer(FrameReceiver::builder().silence(LIMIT)).await;
    peer.frame(b"hello");
    let held = receiver.next().await.unwrap().unwrap();
    assert!(timeout(LIMIT * 9 / 10, receiver.next()).await.is_err());
    drop(held);
    let released = tokio::time::Instant::now();
    let error = receiver.next().await.unwrap().unwrap_err();
    let took = released.elapsed();
    assert!(error.is_timeout() && took >= LIMIT && took < LIMIT * 11 / 10, "{error} after {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_keeps_the_last_frames_is_not_given_up() {
    for confirms in [true, false] {
        let (peer, mut sender) = sender().await;
        sender.send(&b"hello"[..]).await.unwrap();
        let mut finishing = std::pin::pin!(sender.finish());
        let early = timeout(Duration::from_secs(10), finishing.as_mut()).await;
        assert!(early.is_err(), "given up although a frame is out: {early:?}");
        if confirms {
            peer.say(b"DONE", 1, 5);
            finishing.await.unwrap();
        } else {
            peer.say(b"CRED", 1, 5);
            let error = finishing.await.unwrap_err();
            assert!(error.is_timeout(), "{error}");
        }
    }
}
