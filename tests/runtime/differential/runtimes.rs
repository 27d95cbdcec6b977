//! Runtimes that end, that are not driven, or whose threads are busy: bytes accepted by a stream reach the peer as they
//! do with tokio's stream. Only the order of events matters, so nothing here depends on timing.

use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use millstream::net;
use socket2::{SockRef, Socket};
use tokio::io::AsyncWriteExt;
use tokio::runtime::Runtime;

use super::peer::{Bytes, End, Peer, payload};
use super::{Subject, sockets};
use testkit::HANGS;
use testkit::http::{Flavour, watched};
use testkit::limits::drop_capabilities;

/// Runs a case on both of tokio's streams and on both of this crate's streams, on each kind of runtime.
macro_rules! cases {
    ($($case:ident,)+) => { $(
        #[test]
        fn $case() {
            watched(|| {
                for flavour in Flavour::BOTH {
                    // Shown only if the test fails.
                    println!("{flavour:?}");
                    cases::$case::<tokio::net::TcpStream>(flavour.runtime());
                    cases::$case::<tokio::net::UnixStream>(flavour.runtime());
                    println!("ours");
                    cases::$case::<net::TcpStream>(flavour.runtime());
                    cases::$case::<net::UnixStream>(flavour.runtime());
                }
            });
        }
    )+ };
}

cases! {
    what_was_flushed_is_sent_when_block_on_returns,
    what_was_written_arrives_after_block_on_has_returned,
    what_a_task_has_written_arrives_after_block_on_has_returned,
    a_task_that_blocks_holds_nothing_back,
    a_task_that_computes_holds_nothing_back,
    a_runtime_that_is_dropped_takes_nothing_along,
    a_full_stream_that_is_dropped_with_its_runtime_loses_nothing,
    a_full_stream_that_outlives_its_runtime_loses_nothing,
}

mod cases {
    use super::*;

    type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

    async fn two_writes<S: Subject>(stream: &mut S) {
        stream.write_all(&payload()[..3]).await.unwrap();
        stream.write_all(&payload()[3..7]).await.unwrap();
    }

    fn arrives(peer: Socket) {
        let mut peer = Peer::new(peer);
        peer.read(7);
        assert_eq!(peer.got, payload()[..7]);
    }

    pub(super) fn what_was_flushed_is_sent_when_block_on_returns<S: Subject>(runtime: Runtime) {
        let (_stream, peer) = runtime.block_on(async {
            let (mut stream, peer) = S::pair();
            two_writes(&mut stream).await;
            stream.flush().await.unwrap();
            (stream, peer)
        });
        peer.set_nonblocking(true).unwrap();
        let mut got = [0; 8];
        assert_eq!((&peer).read(&mut got).unwrap(), 7, "it waits to be read");
    }

    pub(super) fn what_was_written_arrives_after_block_on_has_returned<S: Subject>(runtime: Runtime) {
        let (_stream, peer) = runtime.block_on(async {
            let (mut stream, peer) = S::pair();
            two_writes(&mut stream).await;
            (stream, peer)
        });
        arrives(peer);
    }

    pub(super) fn what_a_task_has_written_arrives_after_block_on_has_returned<S: Subject>(runtime: Runtime) {
        for yields in 0..4 {
            let task = async move {
                let (mut stream, peer) = S::pair();
                two_writes(&mut stream).await;
                stream.flush().await.unwrap();
                for _ in 0..yields {
                    tokio::task::yield_now().await;
                }
                (stream, peer)
            };
            let (_stream, peer) = runtime.block_on(async { tokio::spawn(task).await.unwrap() });
            arrives(peer);
        }
    }

    /// Lets a task write, yield 0 to 3 times, and then keep its thread until the peer has read everything.
    fn busy<S: Subject>(runtime: &Runtime, keep: fn(mpsc::Receiver<()>, Arc<AtomicBool>)) {
        for yields in 0..4 {
            let (tell, told) = mpsc::channel();
            let flag = Arc::new(AtomicBool::new(false));
            let read = Arc::clone(&flag);
            let task: Boxed<_> = Box::pin(async move {
                let (mut stream, peer) = S::pair();
                let peer = std::thread::spawn(move || {
                    arrives(peer);
                    flag.store(true, Ordering::Relaxed);
                    let _ = tell.send(());
                });
                two_writes(&mut stream).await;
                for _ in 0..yields {
                    tokio::task::yield_now().await;
                }
                keep(told, read);
                peer.join().unwrap();
            });
            runtime.block_on(async { tokio::spawn(task).await.unwrap() });
        }
    }

    pub(super) fn a_task_that_blocks_holds_nothing_back<S: Subject>(runtime: Runtime) {
        busy::<S>(&runtime, |told, _| told.recv_timeout(HANGS).expect("the peer reads meanwhile"));
    }

    pub(super) fn a_task_that_computes_holds_nothing_back<S: Subject>(runtime: Runtime) {
        busy::<S>(&runtime, |_, read| {
            let since = Instant::now();
            while !read.load(Ordering::Relaxed) {
                assert!(since.elapsed() < HANGS, "the peer reads meanwhile");
                std::hint::spin_loop();
            }
        });
    }

    pub(super) fn a_runtime_that_is_dropped_takes_nothing_along<S: Subject>(runtime: Runtime) {
        let (wrote, wait) = mpsc::channel();
        let peer = runtime.block_on(async {
            let (mut stream, peer) = S::pair();
            tokio::spawn(async move {
                two_writes(&mut stream).await;
                wrote.send(()).unwrap();
                std::future::pending::<()>().await;
                drop(stream);
            });
            tokio::task::spawn_blocking(move || wait.recv().unwrap()).await.unwrap();
            peer
        });
        drop(runtime);
        let mut peer = Peer::new(peer);
        peer.read(usize::MAX);
        let seen = peer.seen(7);
        assert_eq!((seen.bytes, seen.end), (Bytes::All, End::Eof));
    }

    /// Writes until the stream accepts no more. Returns the number of bytes accepted.
    async fn fill<S: Subject>(stream: &mut S) -> usize {
        let mut taken = 0;
        let most = Duration::from_millis(50);
        while let Ok(n) = tokio::time::timeout(most, stream.write(&payload()[taken..][..1000])).await {
            taken += n.unwrap();
        }
        taken
    }

    fn ends(peer: Socket, taken: usize) {
        let mut peer = Peer::new(peer);
        peer.read(usize::MAX);
        let seen = peer.seen(taken);
        assert_eq!((seen.bytes, seen.end), (Bytes::All, End::Eof));
    }

    async fn narrow<S: Subject>() -> (S, Socket) {
        let (ours, peer) = sockets(S::TCP);
        SockRef::from(&ours).set_send_buffer_size(4096).unwrap();
        (S::adopt(ours), peer)
    }

    pub(super) fn a_full_stream_that_is_dropped_with_its_runtime_loses_nothing<S: Subject>(runtime: Runtime) {
        let (wrote, wait) = mpsc::channel();
        let (peer, taken) = runtime.block_on(async {
            let (mut stream, peer) = narrow::<S>().await;
            tokio::spawn(async move {
                wrote.send(fill(&mut stream).await).unwrap();
                std::future::pending::<()>().await;
                drop(stream);
            });
            (peer, tokio::task::spawn_blocking(move || wait.recv().unwrap()).await.unwrap())
        });
        drop(runtime);
        ends(peer, taken);
    }

    pub(super) fn a_full_stream_that_outlives_its_runtime_loses_nothing<S: Subject>(runtime: Runtime) {
        let (stream, peer, taken) = runtime.block_on(async {
            let (mut stream, peer) = narrow::<S>().await;
            let taken = fill(&mut stream).await;
            (stream, peer, taken)
        });
        drop(runtime);
        drop(stream);
        ends(peer, taken);
    }
}

/// tokio's stream can no longer be written to: it waits for a driver that has ended. This crate's stream sends as long
/// as the socket has room.
#[test]
fn a_stream_that_outlives_its_runtime_sends() {
    fn one<S: Subject>(runtime: Runtime) {
        let (mut stream, peer) = runtime.block_on(async { S::pair() });
        drop(runtime);
        let peer = Flavour::CurrentThread.runtime().block_on(async {
            stream.write_all(&payload()[..3]).await.unwrap();
            stream.write_all(&payload()[3..7]).await.unwrap();
            let mut peer = Peer::new(peer);
            peer.read(7);
            let mut taken = 7;
            let error = loop {
                match stream.write(&payload()[taken..][..1000]).await {
                    Ok(n) => taken += n,
                    Err(e) => break e,
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::Other, "{error}");
            assert!(error.to_string().contains("shut down"), "{error}");
            drop(stream);
            peer.read(usize::MAX);
            peer.seen(taken)
        });
        assert_eq!((peer.bytes, peer.end), (Bytes::All, End::Eof));
    }
    watched(|| {
        for flavour in Flavour::BOTH {
            one::<net::TcpStream>(flavour.runtime());
            one::<net::UnixStream>(flavour.runtime());
        }
    });
}

/// If the kernel allows no larger buffer, the remaining bytes are sent after the end of the runtime.
#[test]
fn what_the_kernel_does_not_take_outlives_the_runtime() {
    fn one<S: Subject>() {
        let runtime = Flavour::CurrentThread.runtime();
        let (peer, taken) = runtime.block_on(async {
            let (ours, peer) = sockets(S::TCP);
            SockRef::from(&ours).set_send_buffer_size(1 << 30).unwrap();
            let mut stream = S::adopt(ours);
            let mut taken = 0;
            let most = Duration::from_millis(100);
            while let Ok(n) = tokio::time::timeout(most, stream.write(&payload()[taken..][..10_000])).await {
                taken += n.unwrap();
            }
            assert!(stream.waits() > 0, "more than the kernel has taken");
            (peer, taken)
        });
        drop(runtime);
        let mut peer = Peer::new(peer);
        peer.read(usize::MAX);
        let seen = peer.seen(taken);
        assert_eq!((seen.bytes, seen.end), (Bytes::All, End::Eof));
    }
    watched(|| {
        // The capabilities of this thread: with them a buffer may have any size.
        drop_capabilities();
        one::<net::TcpStream>();
        one::<net::UnixStream>();
    });
}

/// A peer that has closed only one direction cannot end a stream. A task that has written and now reads has to learn
/// that its write has failed.
#[test]
fn a_write_that_fails_later_wakes_the_task_that_reads() {
    watched(|| {
        for flavour in Flavour::BOTH {
            flavour.runtime().block_on(async {
                let task = async {
                    let (mut stream, peer) = <net::UnixStream as Subject>::pair();
                    peer.shutdown(std::net::Shutdown::Read).unwrap();
                    stream.write_all(b"nobody reads this").await.unwrap();
                    let error = std::future::poll_fn(|cx| {
                        use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
                        // hyper does the same: after any wake-up it flushes and reads.
                        if let std::task::Poll::Ready(Err(e)) = Pin::new(&mut stream).poll_flush(cx) {
                            return std::task::Poll::Ready(e);
                        }
                        let mut buf = [0; 8];
                        assert!(Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut buf)).is_pending());
                        std::task::Poll::Pending
                    });
                    assert_eq!(error.await.kind(), io::ErrorKind::BrokenPipe);
                    drop(peer);
                };
                tokio::time::timeout(HANGS, tokio::spawn(task)).await.expect("woken").unwrap();
            });
        }
    });
}
