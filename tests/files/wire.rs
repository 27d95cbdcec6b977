//! Guarantees of the stream towards its surroundings: memory, thread, file, and the bytes accepted before a drop.

use std::future::poll_fn;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::Response;
use hyper::body::Frame;
use millstream::body::FileBody;
use millstream::fs::File;
use millstream::net::{TcpListener, TcpStream};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use testkit::http::{Flavour, boxed, h1, h2, narrow, on_both, pages, request, sha256, start, watched, whole};
use testkit::tree::truncate;
use testkit::{lacks, noise, pair};

#[test]
fn pool_memory_that_waits_to_be_sent_is_not_leased_anew() {
    const FRAME: usize = 3000;
    const FRAMES: usize = 2000;
    on_both(async || {
        let bytes = noise(FRAME * FRAMES);
        let sent = bytes.clone();
        let addr = start(move |_| {
            let sent = sent.clone();
            let frames = stream::unfold(0, move |n| {
                let piece = (n < FRAMES).then(|| {
                    let mut lease = millstream::buf::lease(FRAME);
                    lease.extend_from_slice(&sent[n * FRAME..(n + 1) * FRAME]);
                    lease.freeze()
                });
                // Every frame is written separately, and hyper drops it.
                async move {
                    tokio::task::yield_now().await;
                    Some((Ok::<_, io::Error>(Frame::data(piece?)), n + 1))
                }
            });
            std::future::ready(Response::new(boxed(StreamBody::new(Box::pin(frames)))))
        })
        .await;
        let answer = h1(addr).await.send_request(request("/")).await.unwrap();
        assert_eq!(sha256(whole(answer).await.unwrap()), sha256(&bytes));
        let answer = h2(addr).await.send_request(request("/")).await.unwrap();
        assert_eq!(sha256(whole(answer).await.unwrap()), sha256(&bytes));
    });
}

/// Returns a connection of ours with small buffers, and its other end.
async fn narrow_pair() -> (TcpStream, tokio::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let theirs = narrow(listener.local_addr().unwrap()).await;
    let (ours, _) = listener.accept().await.unwrap();
    SockRef::from(&ours).set_send_buffer_size(4096).unwrap();
    (ours, theirs)
}

/// Returns the bytes of a file as one frame of its body.
async fn frame(file: &File, len: usize) -> Bytes {
    let frame = FileBody::new(file, ..).unwrap().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame.len(), len);
    frame
}

#[test]
fn a_torn_file_ends_a_stream_by_a_reset() {
    if lacks("mapping") {
        return;
    }
    const QUEUED: usize = 65 << 10;
    on_both(async || {
        // Sent from the file, from the mapping, and copied while queued.
        for len in [1 << 20, 100 << 10, QUEUED] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            std::fs::write(&path, pages(len)).unwrap();
            let frame = frame(&File::open(&path).await.unwrap(), len).await;
            let (mut ours, mut theirs) = pair().await;
            truncate(&path, 0);
            let written = match len {
                QUEUED => ours.write_all(&frame[..1000]).await,
                _ => ours.write_all(&frame).await,
            };
            // Other streams of this thread are not affected.
            let (mut other, mut peer) = pair().await;
            other.write_all(b"unharmed").await.unwrap();
            let mut got = [0; 8];
            peer.read_exact(&mut got).await.unwrap();
            // Queued bytes fail when they are sent.
            let error = match written {
                Ok(()) => ours.flushed().await.expect_err("the file is gone"),
                Err(e) => e,
            };
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{len}: {error}");
            // The length is not announced, so the end must not look orderly.
            let error = theirs.read_to_end(&mut Vec::new()).await.expect_err("no orderly end");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{len}");
        }
    });
}

#[test]
fn a_fast_peer_does_not_keep_the_thread_of_others() {
    if lacks("sendfile") {
        return;
    }
    /// Bytes that a task sends in one poll, plus one more call.
    const MOST: usize = (2 << 20) + (2 << 20);
    const TOTAL: usize = 1 << 30;
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("file"), pages(4 << 20)).unwrap();
            let frame = frame(&File::open(dir.path().join("file")).await.unwrap(), 4 << 20).await;
            let (mut ours, theirs) = pair().await;
            // The peer reads fast, so that the socket is rarely full.
            let mut theirs = theirs.into_std().unwrap();
            theirs.set_nonblocking(false).unwrap();
            SockRef::from(&theirs).set_recv_buffer_size(64 << 20).unwrap();
            let reader = std::thread::spawn(move || {
                let mut buf = vec![0; 1 << 20];
                let mut all = 0;
                while let n @ 1.. = theirs.read(&mut buf).unwrap() {
                    all += n;
                }
                all
            });
            let (mut all, mut worst) = (0, 0);
            while all < TOTAL {
                let run = poll_fn(|cx| Poll::Ready(run(&mut ours, cx, &frame))).await;
                worst = worst.max(run);
                all += run;
                tokio::task::yield_now().await;
            }
            println!("at most {worst} bytes in one go");
            assert!(worst <= MOST, "{worst} bytes in one go");
            ours.shutdown().await.unwrap();
            drop(ours);
            assert_eq!(reader.join().unwrap(), all);
        });
    });
}

/// Writes until the stream is pending. Returns the number of bytes.
fn run(ours: &mut TcpStream, cx: &mut Context<'_>, frame: &Bytes) -> usize {
    let mut all = 0;
    while let Poll::Ready(n) = Pin::new(&mut *ours).poll_write(cx, frame) {
        all += n.unwrap();
    }
    all
}

#[test]
fn a_stream_dropped_by_its_handler_delivers_what_it_took() {
    const LEN: usize = 64 << 10;
    on_both(async || {
        for len in [1, 1000, LEN] {
            // Another thread may send the bytes first, that of the backstop too.
            let mut queued = 0;
            for _ in 0..100 {
                let (mut ours, mut theirs) = narrow_pair().await;
                let bytes = noise(len);
                // In pieces, so that they are queued, and without waiting.
                for piece in bytes.chunks(900) {
                    ours.write_all(piece).await.unwrap();
                }
                queued = ours.queued();
                drop(ours);
                let mut got = Vec::new();
                theirs.read_to_end(&mut got).await.unwrap();
                assert!(got == bytes, "{} of {len}", got.len());
                if queued > 0 {
                    break;
                }
            }
            assert!(queued > 0, "{len}");
        }
    });
}

#[test]
fn a_stream_that_gathers_is_never_left_with_bytes_and_nobody_to_send_them() {
    // Two tasks share a stream whose peer stops and resumes. The task that is woken must wake the other.
    on_both(async || {
        let (ours, mut theirs) = narrow_pair().await;
        let bytes = noise(600_000);
        let sent = bytes.clone();
        let (mut from, mut to) = tokio::io::split(ours);
        let writer = tokio::spawn(async move {
            let mut rest = &sent[..];
            for n in 0.. {
                let (piece, after) = rest.split_at(rest.len().min([100, 5000, 1, 40_000][n % 4]));
                to.write_all(piece).await.unwrap();
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            to
        });
        let asker = tokio::spawn(async move { from.read_to_end(&mut Vec::new()).await.unwrap() });
        let mut got = vec![0; bytes.len()];
        for piece in got.chunks_mut(7000) {
            // A message from the peer makes the next write leave at once.
            theirs.write_all(b"go on").await.unwrap();
            theirs.read_exact(piece).await.unwrap();
        }
        assert!(got == bytes);
        drop(theirs);
        asker.await.unwrap();
        drop(writer.await.unwrap());
    });
}
