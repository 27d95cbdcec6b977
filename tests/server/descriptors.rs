//! Connections and runtimes that end at any point leak no descriptor and no body. Descriptors are per process, so each
//! test runs in its own.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::Response;
use hyper::body::{Body, Frame, SizeHint};
use millstream::body::FileBody;
use millstream::fs::File;
use millstream::metrics::Snapshot;
use millstream::net::{TcpListener, TcpStream};
use socket2::{Domain, SockAddr, Socket, Type};

use testkit::http::{AnyBody, BoxError, Flavour, Raw, boxed, pages, start, watched};
use testkit::{HANGS, alone, fds};

/// Waits until `fine` returns `true`, for at most [`HANGS`]; returns the elapsed time.
async fn soon(what: &str, fine: impl Fn() -> bool) -> Duration {
    let since = Instant::now();
    while !fine() {
        assert!(since.elapsed() < HANGS, "{what}: {:#?}", fds());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    since.elapsed()
}

struct Counted<B> {
    inner: Pin<Box<B>>,
    alive: Arc<AtomicUsize>,
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static> Counted<B> {
    fn boxed(inner: B, alive: &Arc<AtomicUsize>) -> AnyBody {
        alive.fetch_add(1, Ordering::Relaxed);
        boxed(Self { inner: Box::pin(inner), alive: Arc::clone(alive) })
    }
}

impl<B> Drop for Counted<B> {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<B: Body> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.inner.as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

fn events(len: usize, pause: Duration) -> impl Body<Data = Bytes, Error = io::Error> + Send {
    StreamBody::new(stream::unfold((), move |()| async move {
        match pause {
            Duration::ZERO => tokio::task::yield_now().await,
            pause => tokio::time::sleep(pause).await,
        }
        Some((Ok(Frame::data(Bytes::from(vec![b'e'; len]))), ()))
    }))
}

const FILE: usize = 8 << 20;

/// Serves a file and event streams of three rates; returns the address and the number of live bodies.
async fn server(dir: &tempfile::TempDir) -> (SocketAddr, Arc<AtomicUsize>) {
    let alive = Arc::new(AtomicUsize::new(0));
    let (count, path) = (Arc::clone(&alive), dir.path().join("file"));
    let addr = start(move |request| {
        let (alive, path) = (Arc::clone(&count), path.clone());
        async move {
            Response::new(match request.uri().path() {
                "/file" => Counted::boxed(FileBody::new(&File::open(path).await.unwrap(), ..).unwrap(), &alive),
                "/events" => Counted::boxed(events(100, Duration::from_millis(1)), &alive),
                "/flood" => Counted::boxed(events(1000, Duration::ZERO), &alive),
                _ => Counted::boxed(events(1, Duration::MAX), &alive),
            })
        }
    })
    .await;
    (addr, alive)
}

fn a_file() -> (tempfile::TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let bytes = pages(FILE);
    std::fs::write(dir.path().join("file"), &bytes).unwrap();
    (dir, bytes)
}

#[test]
fn a_reset_ends_what_it_hits_and_nothing_else() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        for flavour in Flavour::BOTH {
            println!("on {flavour:?}");
            flavour.runtime().block_on(resets());
        }
    });
}

/// Returns the descriptors of this process without rings: each worker creates one on first use and keeps it.
fn without_rings() -> Vec<String> {
    fds().into_iter().filter(|fd| !fd.contains("[io_uring]")).collect()
}

async fn resets() {
    let (dir, bytes) = a_file();
    let (addr, alive) = server(&dir).await;
    // Two other clients are in the middle of a download and of events.
    let mut download = Raw::connect_narrow(addr).await;
    download.ask("/file").await;
    let len = download.head().await.content_length();
    let mut got = download.body(1000).await.unwrap();
    let mut stream = Raw::connect(addr).await;
    stream.ask("/events").await;
    stream.head().await;
    stream.body(300).await.unwrap();
    let before = without_rings();
    let mut worst = Duration::ZERO;
    for n in 0..20 {
        let path = ["/file", "/events", "/flood", "/silence"][n % 4];
        let mut victim = Raw::connect_narrow(addr).await;
        victim.ask(path).await;
        victim.head().await;
        if path != "/silence" {
            victim.body(200).await.unwrap();
        }
        assert_eq!(alive.load(Ordering::Relaxed), 3);
        victim.reset();
        worst = worst.max(soon("the body outlives its client", || alive.load(Ordering::Relaxed) == 2).await);
        worst = worst.max(soon("a descriptor is still open", || without_rings() == before).await);
        stream.body(300).await.unwrap();
        got.extend(download.body(2000).await.unwrap());
    }
    println!("the slowest cleanup took {worst:?}");
    got.extend(download.body(len - got.len()).await.unwrap());
    assert!(got == bytes);
}

/// A client with small buffers that outlives the runtime.
fn client(addr: SocketAddr, path: &str) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(2048).unwrap();
    socket.connect(&SockAddr::from(addr)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: mill\r\n\r\n");
    assert_eq!(socket.send(request.as_bytes()).unwrap(), request.len());
    socket
}

#[test]
fn a_runtime_dropped_in_the_middle_of_everything_leaves_no_descriptor() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        // Opens descriptors that the process keeps.
        drop(Flavour::TwoWorkers.runtime());
        for flavour in [Flavour::CurrentThread, Flavour::TwoWorkers, Flavour::CurrentThread, Flavour::TwoWorkers] {
            println!("on {flavour:?}");
            let (dir, _) = a_file();
            let before = fds();
            let runtime = flavour.runtime();
            let (clients, kept) = runtime.block_on(fill(&dir));
            let since = Instant::now();
            drop(runtime);
            println!("dropped in {:?}", since.elapsed());
            // A stream that outlives its runtime keeps the driver's descriptors, and can be dropped with a full queue.
            drop(kept);
            // Another thread may hold a stream for a moment to flush it.
            let since = Instant::now();
            while fds().len() - before.len() != clients.len() {
                assert!(
                    since.elapsed() < Duration::from_secs(60),
                    "only the clients' descriptors may be open: {:#?}",
                    fds()
                );
                std::thread::yield_now();
            }
            drop(clients);
            assert_eq!(fds(), before);
        }
    });
}

/// Starts a server whose sockets are all full; returns its clients and the streams to drop after the runtime.
async fn fill(dir: &tempfile::TempDir) -> (Vec<Socket>, Vec<TcpStream>) {
    let (addr, alive) = server(dir).await;
    let before = Snapshot::now();
    let mut clients = Vec::new();
    for n in 0..40 {
        clients.push(client(addr, ["/file", "/flood", "/events", "/silence"][n % 4]));
    }
    // Files and floods fill their sockets; a millisecond later all transfers stall.
    while Snapshot::now().since(&before).would_block < 20 || alive.load(Ordering::Relaxed) < 40 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Streams outside of hyper with full queues: dropped here, by the runtime, and after it.
    let mut kept = Vec::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for n in 0..12 {
        clients.push(client(listener.local_addr().unwrap(), "/"));
        let (mut ours, _) = listener.accept().await.unwrap();
        socket2::SockRef::from(&ours).set_send_buffer_size(4096).unwrap();
        while ours.queued() < 40_000 {
            tokio::io::AsyncWriteExt::write_all(&mut ours, &[5; 1000]).await.unwrap();
        }
        match n % 3 {
            0 => drop(ours),
            1 => drop(tokio::spawn(async move { ours.flushed().await })),
            _ => kept.push(ours),
        }
    }
    (clients, kept)
}
