//! Credit bounds the frames, and is returned when they are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::Response;
use millstream_frames::FrameReceiver;
use tokio::time::timeout;

use crate::{against_peer, connected, frames, soon};
use testkit::HANGS;
use testkit::http::{Raw, boxed, on_both, start_with};
use testkit::{alone, noise};

#[test]
fn a_frame_counts_until_its_last_slice_is_dropped() {
    on_both(async || {
        for len in [1000, 100_000] {
            let (peer, mut receiver) = against_peer(FrameReceiver::builder().frames(2)).await;
            let bytes = noise(len);
            peer.frame(&bytes);
            let frame = receiver.next().await.unwrap().unwrap();
            let (head, copy) = (frame.slice(..10), frame.clone());
            drop(frame);
            drop(copy);
            peer.0.set_nonblocking(true).unwrap();
            let none = std::io::Read::read(&mut &peer.0, &mut [0; 16]).unwrap_err();
            assert_eq!(none.kind(), std::io::ErrorKind::WouldBlock, "{len}: credit for a frame that is held");
            peer.0.set_nonblocking(false).unwrap();
            assert_eq!(head, bytes[..10]);
            // Anywhere, and whether or not the receiver is polled.
            std::thread::spawn(move || drop(head)).join().unwrap();
            assert_eq!(peer.hear(), (*b"CRED", 1, len as u64));
        }
    });
}

#[test]
fn a_sender_waits_for_credit() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        const LEN: usize = 100_000;
        let builder = FrameReceiver::builder().frames(1000).bytes(5 * LEN as u64);
        let (mut sender, mut receiver) = connected(builder).await;
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let bytes = noise(LEN);
        let copy = bytes.clone();
        let sending = tokio::spawn(async move {
            for _ in 0..20 {
                sender.send(&copy[..]).await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
            sender.finish().await.unwrap();
        });
        let mut held = Vec::new();
        while held.len() < 5 {
            held.push(receiver.next().await.unwrap().unwrap());
        }
        let more = timeout(Duration::from_millis(100), receiver.next()).await;
        assert!(more.is_err(), "a sixth frame");
        // The sixth was written, and waits in the sender.
        // The sender keeps its descriptors until the credit comes back.
        let is_mapped = millstream::Capabilities::get().mapping().is_yes();
        let left = if is_mapped { (11, 5) } else { (6, 0) };
        assert_eq!((sent.load(Ordering::Relaxed), frames()), (5, left));
        for _ in 5..20 {
            held.remove(0);
            held.push(timeout(HANGS, receiver.next()).await.unwrap().unwrap().unwrap());
            assert!(held.iter().all(|frame| *frame == bytes));
        }
        assert!(receiver.next().await.is_none());
        sending.await.unwrap();
        drop((held, receiver));
        assert_eq!(frames(), (0, 0));
    });
}

/// A client that reads slowly stops the producer, and gets every byte.
#[test]
fn a_slow_reader_holds_the_producer_up() {
    on_both(async || {
        const LEN: usize = 1 << 20;
        const FRAMES: usize = 8;
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let addr = start_with(Some(64 << 10), move |_| {
            let count = Arc::clone(&count);
            async move {
                let (mut sender, receiver) = connected(FrameReceiver::builder().frames(2)).await;
                tokio::spawn(async move {
                    let bytes = noise(LEN * FRAMES);
                    for piece in bytes.chunks(LEN) {
                        sender.send(piece).await.unwrap();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    sender.finish().await.unwrap();
                });
                let mut response = Response::new(boxed(receiver));
                response.headers_mut().insert("content-length", (LEN * FRAMES).into());
                response
            }
        })
        .await;
        let mut client = Raw::connect_narrow(addr).await;
        client.ask("/").await;
        let head = client.head().await;
        soon("two frames are sent", || sent.load(Ordering::Relaxed) == 2).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(sent.load(Ordering::Relaxed), 2, "without a reader");
        let got = timeout(HANGS, client.body(head.content_length())).await.unwrap().unwrap();
        assert!(got == noise(LEN * FRAMES));
    });
}

/// A peer that does not read its credit gets all of it when it does.
#[test]
fn credit_that_finds_the_socket_full_is_returned_later() {
    on_both(async || {
        const FRAMES: usize = 2000;
        let (peer, mut receiver) = against_peer(FrameReceiver::builder().frames(FRAMES as u32)).await;
        let sending = std::thread::spawn(move || {
            for _ in 0..FRAMES {
                peer.frame(b"x");
            }
            peer
        });
        let mut held = Vec::new();
        while held.len() < FRAMES {
            held.push(receiver.next().await.unwrap().unwrap());
        }
        let peer = sending.join().unwrap();
        let waiting = tokio::spawn(async move { receiver.next().await.map(|next| next.unwrap_err().to_string()) });
        // One message for each, as long as the socket has room.
        drop(held);
        let heard = tokio::task::spawn_blocking(move || {
            let (mut frames, mut bytes, mut messages) = (0, 0, 0);
            while frames < FRAMES as u32 {
                let (kind, more, of) = peer.hear();
                assert_eq!(kind, *b"CRED");
                (frames, bytes, messages) = (frames + more, bytes + of, messages + 1);
            }
            (frames, bytes, messages)
        });
        let (frames, bytes, messages) = timeout(HANGS, heard).await.unwrap().unwrap();
        assert_eq!((frames as usize, bytes as usize), (FRAMES, FRAMES));
        assert!(messages < FRAMES, "the socket was never full");
        // The peer has gone.
        assert!(waiting.await.unwrap().is_some());
    });
}
