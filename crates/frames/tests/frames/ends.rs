//! Ends in the middle: processes that are killed, clients that leave, receivers that are dropped.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::Response;
use hyper::body::Frame;
use millstream::internal::Rewind;
use millstream::net::{UnixListener, UnixStream};
use millstream_frames::{FrameReceiver, FrameSender, SharedError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::peers::Peer;
use crate::{against_peer, connected, frames, open, soon};
use testkit::HANGS;
use testkit::http::{Flavour, Raw, boxed, on_both, start, watched};
use testkit::{alone, child, noise};

/// One piece, also where frames are not mapped.
const FRAME: usize = 200_000;

/// Starts a process that runs `act` on a connection to `socket`.
fn process(test: &str, act: &str, socket: &std::path::Path) -> Child {
    let mut command = child::command(&format!("ends::{test}"), &format!("{act} {}", socket.display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The work of such a process, until it is killed.
fn endlessly(task: &str) {
    let (act, socket) = task.split_once(' ').unwrap();
    let socket = PathBuf::from(socket);
    Flavour::CurrentThread.runtime().block_on(async {
        let stream = UnixStream::connect(&socket).await.unwrap();
        if act == "produce" {
            let mut sender = FrameSender::handshake(stream).await.unwrap();
            let bytes = noise(FRAME);
            while sender.send(&bytes[..]).await.is_ok() {}
        } else {
            let mut receiver = FrameReceiver::handshake(stream).await.unwrap();
            while let Some(Ok(_)) = receiver.next().await {}
        }
    });
}

/// Kills a process, which is one of ours, by its number.
async fn kill(mut process: Child) {
    process.kill().unwrap();
    tokio::task::spawn_blocking(move || process.wait().unwrap()).await.unwrap();
}

#[test]
fn a_producer_that_is_killed_leaves_nothing() {
    if let Some(task) = child::task() {
        return endlessly(&task);
    }
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("socket");
            let listener = UnixListener::bind(&socket).await.unwrap();
            let bytes = noise(FRAME);
            // The blocking pool and the reactor have their descriptors.
            tokio::task::spawn_blocking(|| {}).await.unwrap();
            let before = open();
            for after in 0..12 {
                let process = process("a_producer_that_is_killed_leaves_nothing", "produce", &socket);
                let (stream, _) = listener.accept().await.unwrap();
                let mut receiver = FrameReceiver::builder().frames(4).handshake(stream).await.unwrap();
                let mut held = Vec::new();
                for n in 0..after {
                    let frame = receiver.next().await.unwrap().unwrap();
                    assert!(frame == bytes, "frame {n} of {after}");
                    // Some are held beyond the end of the process.
                    held.push(frame);
                    held.truncate(2);
                }
                kill(process).await;
                let error = loop {
                    match timeout(HANGS, receiver.next()).await.unwrap() {
                        Some(Ok(frame)) => assert!(frame == bytes, "after {after} frames"),
                        Some(Err(error)) => break error,
                        None => panic!("a part was taken for the whole, after {after} frames"),
                    }
                };
                assert!(error.is_ended(), "{error}");
                assert!(held.iter().all(|frame| *frame == bytes), "frames of a process that has ended");
                drop((held, receiver));
                assert_eq!(frames(), (0, 0), "after {after} frames");
                soon("descriptors are left", || open() == before).await;
            }
        });
    });
}

#[test]
fn a_consumer_that_is_killed_leaves_nothing() {
    if let Some(task) = child::task() {
        return endlessly(&task);
    }
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("socket");
            let listener = UnixListener::bind(&socket).await.unwrap();
            let bytes = noise(FRAME);
            tokio::task::spawn_blocking(|| {}).await.unwrap();
            let before = open();
            for after in 0..8 {
                let process = process("a_consumer_that_is_killed_leaves_nothing", "consume", &socket);
                let (stream, _) = listener.accept().await.unwrap();
                let mut sender = FrameSender::handshake(stream).await.unwrap();
                for _ in 0..after {
                    sender.send(&bytes[..]).await.unwrap();
                }
                kill(process).await;
                let ended = async {
                    loop {
                        if let Err(error) = sender.send(&bytes[..]).await {
                            break error;
                        }
                    }
                };
                let error = timeout(HANGS, ended).await.unwrap();
                assert!(error.is_ended(), "{error}");
                drop(sender);
                assert_eq!(frames(), (0, 0), "after {after} frames");
                soon("descriptors are left", || open() == before).await;
            }
        });
    });
}

/// The HTTP client of a producer that ends must not take a part for the whole.
#[test]
fn a_producer_that_ends_early_cuts_the_response() {
    on_both(async || {
        for finishes in [true, false] {
            let addr = start(move |_| async move {
                let (mut sender, receiver) = connected(FrameReceiver::builder()).await;
                tokio::spawn(async move {
                    sender.send(&noise(100_000)[..]).await.unwrap();
                    if finishes {
                        sender.finish().await.unwrap();
                    }
                });
                Response::new(boxed(receiver))
            })
            .await;
            let mut client = Raw::connect(addr).await;
            client.send("GET / HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n").await;
            let got = timeout(HANGS, client.drain()).await.unwrap();
            assert!(got.len() > 100_000);
            assert_eq!(got.ends_with(b"\r\n0\r\n\r\n"), finishes);
        }
    });
}

#[test]
fn a_dropped_receiver_is_noticed_at_once_and_its_slices_stay() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let before = open();
        let bytes = noise(FRAME);
        let (peer, stream) = Peer::pair();
        peer.say(b"MSF1", 0, 0);
        // Another descriptor of the connection, which stays open.
        let duplicate = std::os::fd::AsFd::as_fd(&stream).try_clone_to_owned().unwrap();
        let mut receiver = FrameReceiver::handshake(stream).await.unwrap();
        for _ in 0..5 {
            peer.frame(&bytes);
        }
        let held = receiver.next().await.unwrap().unwrap();
        // Four frames are in the socket.
        drop(receiver);
        assert!(peer.is_left(), "the connection is open because a frame is held");
        assert!(held == bytes);
        drop((held, peer, duplicate));
        assert_eq!(frames(), (0, 0));
        soon("descriptors are left", || open() == before).await;
        // A sender that waits for its body notices it too.
        let (mut sender, receiver) = connected(FrameReceiver::builder()).await;
        let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, std::io::Error>>());
        let sending = tokio::spawn(async move { sender.send_body(never).await });
        drop(receiver);
        let error = timeout(HANGS, sending).await.unwrap().unwrap().unwrap_err();
        assert!(error.is_ended(), "{error}");
    });
}

/// A client that leaves stops the producer, whatever of its frames is under way.
#[test]
fn a_client_that_leaves_stops_the_producer() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let ended: Arc<Mutex<Option<SharedError>>> = Arc::default();
        let sent = Arc::new(AtomicUsize::new(0));
        let (told, count) = (Arc::clone(&ended), Arc::clone(&sent));
        let addr = start(move |_| {
            let (told, count) = (Arc::clone(&told), Arc::clone(&count));
            async move {
                let (mut sender, receiver) = connected(FrameReceiver::builder().frames(3)).await;
                tokio::spawn(async move {
                    let bytes = noise(FRAME);
                    let error = loop {
                        match sender.send(&bytes[..]).await {
                            Ok(()) => count.fetch_add(1, Ordering::Relaxed),
                            Err(error) => break error,
                        };
                    };
                    *told.lock().unwrap() = Some(error);
                });
                Response::new(boxed(receiver))
            }
        })
        .await;
        let mut client = Raw::connect_narrow(addr).await;
        client.ask("/").await;
        client.head().await;
        client.body(1000).await.unwrap();
        soon("the producer sends", || sent.load(Ordering::Relaxed) >= 3).await;
        client.reset();
        soon("the producer goes on", || ended.lock().unwrap().is_some()).await;
        assert!(ended.lock().unwrap().as_ref().unwrap().is_ended());
        soon("frames are left", || frames() == (0, 0)).await;
    });
}

/// After the end, credit and the end of the connection may come in any order.
#[test]
fn the_end_is_confirmed_when_all_frames_were_received() {
    on_both(async || {
        let (peer, mut receiver) = against_peer(FrameReceiver::builder()).await;
        peer.frame(b"hello");
        peer.say(b"DONE", 1, 5);
        let held = receiver.next().await.unwrap().unwrap();
        assert!(receiver.next().await.is_none());
        assert!(http_body::Body::is_end_stream(&receiver));
        assert_eq!(peer.hear(), (*b"DONE", 1, 5));
        drop(held);
        assert!(peer.is_left());
        // A peer that does not wait for it.
        let (peer, mut receiver) = against_peer(FrameReceiver::builder()).await;
        peer.frame(b"hello");
        peer.say(b"DONE", 1, 5);
        drop(peer);
        assert_eq!(receiver.next().await.unwrap().unwrap(), "hello");
        assert!(receiver.next().await.is_none());
        // A receiver that wants no more, after all frames and before that.
        for (taken, is_all) in [(3, true), (2, false)] {
            let (mut sender, mut receiver) = connected(FrameReceiver::builder()).await;
            for _ in 0..3 {
                sender.send(&b"hello"[..]).await.unwrap();
            }
            for _ in 0..taken {
                assert_eq!(receiver.next().await.unwrap().unwrap(), "hello");
            }
            drop(receiver);
            let finished = timeout(HANGS, sender.finish()).await.unwrap();
            assert_eq!(finished.is_ok(), is_all, "{finished:?}");
            assert!(is_all || finished.unwrap_err().is_ended());
        }
        // A receiver that confirms nothing.
        let (peer, stream) = Peer::pair();
        peer.say(b"MSF1", 2, 100);
        let sender = FrameSender::builder().silence(Duration::from_millis(100)).handshake(stream).await.unwrap();
        assert!(timeout(HANGS, sender.finish()).await.unwrap().unwrap_err().is_timeout());
    });
}

#[test]
fn a_stream_with_bytes_that_were_given_back_is_refused() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("frames");
        let listener = UnixListener::bind(&path).await.unwrap();
        let mut client = tokio::net::UnixStream::connect(&path).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        client.write_all(b"two").await.unwrap();
        let first = stream.read_u8().await.unwrap();
        stream.unread(&[first]);
        let error = timeout(HANGS, FrameReceiver::handshake(stream)).await.expect("at once").unwrap_err();
        assert!(error.to_string().contains("use the connection"), "{error}");
    });
}
