//! Clients that read responses slowly, and clients that stop reading.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::{Request, Response};
use millstream::metrics::Snapshot;
use millstream::net::TcpListener;
use millstream::server::{Limits, RequestBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::slow::{Endless, until};
use super::{many_descriptors, start, text};
use testkit::HANGS;
use testkit::http::{Answer, BoxError, Flavour, Raw, boxed, narrow, on_both};
use testkit::serving::serve;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n";

/// Starts a server of endless bodies, and returns how many have begun, and how many of the path `/stalled` there are.
async fn endless(limits: Limits) -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (begun, stalled) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let (counts, others) = ((begun.clone(), stalled.clone()), Arc::default());
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let body = Endless::new(if request.uri().path() == "/stalled" { &counts.1 } else { &others });
        counts.0.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok::<Answer, BoxError>(Response::new(boxed(body))))
    });
    (start(limits, service).await, begun, stalled)
}

/// An error that ended a reader.
struct Reset {
    why: String,
    when: Instant,
    /// When it had read.
    reads: Vec<Instant>,
}

/// Reads 1000 bytes every 10 ms until `enough`; returns an earlier error.
async fn steadily(addr: SocketAddr, receive_buffer: u32, enough: Arc<AtomicBool>) -> Result<(), Reset> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(receive_buffer).unwrap();
    let mut io = socket.connect(addr).await.unwrap();
    io.write_all(GET).await.unwrap();
    let (since, mut piece) = (Instant::now(), [0; 1000]);
    let mut reads = Vec::new();
    while !enough.load(Ordering::Relaxed) {
        let read = io.read_exact(&mut piece).await;
        read.map_err(|error| Reset {
            why: format!("SO_RCVBUF {receive_buffer}: {error} after {:?}", since.elapsed()),
            when: Instant::now(),
            reads: std::mem::take(&mut reads),
        })?;
        reads.push(Instant::now());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Uses the default limits for `MILLSTREAM_SLOW` seconds, at least 60, if set; short limits otherwise.
#[test]
fn steady_readers_are_never_reset_and_a_reader_that_takes_nothing_is() {
    if testkit::portable("the kernel is not asked about a connection") {
        return;
    }
    many_descriptors();
    let slow = std::env::var("MILLSTREAM_SLOW").ok().map(|seconds| Duration::from_secs(seconds.parse().unwrap()));
    let limit = if slow.is_some() { Duration::from_secs(30) } else { Duration::from_secs(2) };
    let time = slow.unwrap_or(limit * 3);
    Flavour::TwoWorkers.runtime().block_on(async {
        let (addr, begun, in_stalled) = endless(Limits::default().write_stall(limit)).await;
        let before = Snapshot::now();
        let enough = Arc::<AtomicBool>::default();
        let sizes = [4096, 8192, 16384, 24000, 32768, 65536];
        let readers: Vec<_> = sizes
            .into_iter()
            .flat_map(|size| [size; 16])
            .map(|size| tokio::spawn(steadily(addr, size, Arc::clone(&enough))))
            .collect();
        until(&begun, readers.len()).await;
        let since = Instant::now();
        let mut stalled: TcpStream = narrow(addr).await;
        stalled.write_all(b"GET /stalled HTTP/1.1\r\nHost: mill\r\n\r\n").await.unwrap();
        until(&begun, readers.len() + 1).await;
        while in_stalled.load(Ordering::Relaxed) > 0 {
            assert!(since.elapsed() < limit + HANGS, "the stalled reader is still connected");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        println!("the stalled reader was reset after {:?}", since.elapsed());
        assert!(since.elapsed() >= limit, "{:?}", since.elapsed());
        tokio::time::sleep(time.saturating_sub(since.elapsed())).await;
        enough.store(true, Ordering::Relaxed);
        let mut resets = Vec::new();
        for reader in readers {
            resets.extend(reader.await.unwrap().err());
        }
        println!("{} of {} readers were reset in {time:?}", resets.len(), 16 * sizes.len());
        // On a machine that is too busy, readers are not steady: 100 reads a second are meant. The kernel tells the server
        // of 64 KiB at once.
        resets.retain(|reset| {
            let lately = reset.reads.iter().filter(|&&read| reset.when - read < limit).count();
            println!("{}, {lately} reads in the last {limit:?}", reset.why);
            lately as f64 > 75.0 * limit.as_secs_f64()
        });
        assert!(resets.is_empty(), "{} steady readers were reset", resets.len());
        assert!(Snapshot::now().since(&before).writes_stalled >= 1);
    });
}

fn events() -> Answer {
    let ticks = tokio::time::interval(Duration::from_millis(200));
    let frames = futures_util::stream::unfold(ticks, |mut ticks| async move {
        ticks.tick().await;
        Some((Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"data: tick\n\n"))), ticks))
    });
    Response::new(boxed(StreamBody::new(Box::pin(frames))))
}

#[test]
fn a_drip_reader_is_reset_and_a_quiet_event_stream_is_not() {
    on_both(async || {
        let limit = Duration::from_secs(1);
        let bodies = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&bodies);
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            std::future::ready(Ok::<Answer, BoxError>(match request.uri().path() {
                "/events" => events(),
                _ => Response::new(boxed(Endless::new(&counted))),
            }))
        });
        let addr = start(Limits::default().write_stall(limit).write_rate(1 << 20), service).await;
        let mut quiet = Raw::connect(addr).await;
        quiet.ask("/events").await;
        assert_eq!(quiet.head().await.status, 200);
        // 100 kB per second is progress, but a tenth of `write_rate`.
        let drip = timeout(limit + HANGS, steadily(addr, 8192, Arc::default())).await;
        assert!(drip.expect("the drip reader is still connected").is_err());
        until(&bodies, 0).await;
        for _ in 0..20 {
            quiet.body(b"C\r\ndata: tick\n\n\r\n".len()).await.expect("an event");
        }
    });
}

#[test]
fn a_reader_that_takes_nothing_of_what_the_kernel_holds_is_reset() {
    if testkit::portable("the kernel is not asked about a connection") {
        return;
    }
    on_both(async || {
        let limit = Duration::from_secs(1);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (tell, mut told) = tokio::sync::mpsc::channel(4);
        // The kernel takes the whole response, so HTTP has finished it.
        let service = tower::service_fn(async |_| Ok::<_, BoxError>(text(vec![7; 60_000])));
        let server = serve(listener, service)
            .limits(Limits::default().write_stall(limit))
            .on_connection(move |_, accepted, _| tell.try_send(accepted.handle().clone()).unwrap());
        tokio::spawn(server.into_future());
        let mut stalled = narrow(addr).await;
        stalled.write_all(GET).await.unwrap();
        let handle = told.recv().await.unwrap();
        let closed = async {
            while handle.stats().is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(limit + HANGS, closed).await.expect("reset");
        // The peer sees the reset after it has read its buffer.
        let read = stalled.read_to_end(&mut Vec::new()).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_reader_that_takes_nothing_of_the_last_response_is_reset() {
    if testkit::portable("the kernel is not asked about a connection") {
        return;
    }
    on_both(async || {
        let limit = Duration::from_secs(1);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // The end of the response waits in the stream when HTTP has finished it and has shut the stream down: the stream
        // queues short frames. A stream that was dropped then would leave them to the kernel.
        socket2::SockRef::from(&listener).set_send_buffer_size(4096).unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(async |_| {
            let frames = [&[7; 1000]; 50].map(|data| Ok::<_, BoxError>(Frame::data(Bytes::from_static(data))));
            Ok::<_, BoxError>(Response::new(boxed(StreamBody::new(futures_util::stream::iter(frames)))))
        });
        let (tell, mut told) = tokio::sync::mpsc::channel(4);
        let server = serve(listener, service)
            .limits(Limits::default().write_stall(limit))
            .on_connection(move |_, accepted, _| tell.try_send(accepted.handle().clone()).unwrap());
        tokio::spawn(server.into_future());
        let mut stalled = narrow(addr).await;
        stalled.write_all(b"GET / HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n").await.unwrap();
        let handle = told.recv().await.unwrap();
        let closed = async {
            while handle.stats().is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(limit + HANGS, closed).await.expect("ended by the limit");
        let read = stalled.read_to_end(&mut Vec::new()).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}
