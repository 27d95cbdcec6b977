//! Heap of connections that wait.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use hyper::{Request, Response};
use millstream::metrics::Snapshot;
use millstream::net::TcpListener;
use millstream::server::{Connection, HttpService, Limits, RequestBody, serve};
#[cfg(feature = "sse")]
use millstream::sse::Hub;
use tokio::time::{sleep, timeout};

use testkit::alone::ran_in_child;
use testkit::http::{Flavour, Raw, on_both};

const CONNECTIONS: usize = 1000;

/// Connects on another thread, whose heap is not counted.
fn connect(addr: SocketAddr, until: &'static [u8]) -> mpsc::Receiver<Vec<TcpStream>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let all = (0..CONNECTIONS).map(|_| {
            let mut client = TcpStream::connect(addr).unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n").unwrap();
            let mut got = Vec::new();
            while !got.ends_with(until) {
                let mut byte = [0];
                assert_eq!(client.read(&mut byte).unwrap(), 1);
                got.push(byte[0]);
            }
            client
        });
        sender.send(all.collect()).unwrap();
    });
    receiver
}

/// Returns the bytes that a connection may need at most: those `measured` with all features, and 4 %. hyper's state alone has
/// 10 000.
fn limit(measured: i64) -> i64 {
    measured + measured / 25
}

/// Starts a server, and returns the heap of each connection once `done`.
fn heap<S: HttpService>(service: S, until: &'static [u8], done: impl Fn() -> bool) -> i64 {
    let runtime = Flavour::CurrentThread.runtime();
    let addr = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, service).into_future());
        addr
    });
    let mut clients = None;
    let heap = measure(|| {
        runtime.block_on(async {
            let connected = connect(addr, until);
            while !done() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            clients = Some(connected.recv().unwrap());
        });
    });
    let each = heap.bytes_current / CONNECTIONS as i64;
    println!("{each} bytes each");
    each
}

#[cfg(feature = "sse")]
#[test]
fn a_reader_of_a_hub_needs_little() {
    if ran_in_child() {
        return;
    }
    // A comment that keeps a stream alive would fill the queues, if connecting takes as long.
    let hub = Hub::builder().keep_alive(Duration::from_secs(3600)).build();
    let subscribed = hub.clone();
    let service = tower::service_fn(move |request| {
        let answer = subscribed.subscribe(&request);
        async { Ok::<_, Infallible>(answer) }
    });
    let each = heap(service, b"\r\n\r\n", || hub.stats().direct == CONNECTIONS);
    assert!(each <= limit(2320), "{each} bytes each");
}

#[test]
fn a_pending_body_needs_little() {
    if ran_in_child() {
        return;
    }
    let service = tower::service_fn(|_: Request<RequestBody>| async {
        let pending = stream::pending::<Result<Frame<Bytes>, Infallible>>();
        Ok::<_, Infallible>(Response::new(StreamBody::new(pending)))
    });
    let before = Snapshot::now();
    let taken = || Snapshot::now().since(&before).responses_taken_over == CONNECTIONS as u64;
    let each = heap(service, b"\r\n\r\n", taken);
    assert!(each <= limit(1990), "{each} bytes each");
}

#[test]
fn a_connection_without_a_request_needs_little() {
    if ran_in_child() {
        return;
    }
    let service = tower::service_fn(|_: Request<RequestBody>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
    });
    let before = Snapshot::now();
    let rest = || Snapshot::now().since(&before).connections_hibernated == CONNECTIONS as u64;
    let each = heap(service, b"hello", rest);
    assert!(each <= limit(1930), "{each} bytes each");
}

#[test]
fn a_connection_that_rests_goes_on_with_its_next_byte() {
    on_both(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(|request: Request<RequestBody>| async move {
            // The extensions are freed during a rest, and made again.
            let connection = request.extensions().get::<Connection>().expect("each request has its connection");
            assert!(connection.peer().is_some());
            let text = request.uri().path().to_owned();
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
        });
        let limits = Limits::default().keep_alive(Duration::from_secs(8));
        let server = tokio::spawn(serve(listener, service).limits(limits).into_future());
        let (mut client, mut other) = (Raw::connect(addr).await, Raw::connect(addr).await);
        assert_eq!(other.get("/other").await, (200, b"/other".to_vec()));
        for path in ["/a", "/b"] {
            let before = Snapshot::now();
            assert_eq!(client.get(path).await, (200, path.as_bytes().to_vec()));
            while Snapshot::now().since(&before).connections_hibernated == 0 {
                sleep(Duration::from_millis(10)).await;
            }
        }
        // In pieces.
        client.send("GET /c HT").await;
        sleep(Duration::from_millis(20)).await;
        client.send("TP/1.1\r\nHost: mill\r\n\r\nGET /d HTTP/1.1\r\nHost: mill\r\n\r\n").await;
        for path in ["/c", "/d"] {
            let head = client.head().await;
            assert_eq!(client.body(head.content_length()).await.unwrap(), path.as_bytes());
        }
        // A connection that hibernates is ended by its limit, as any other.
        let ended = timeout(testkit::HANGS, other.drain()).await.expect("an end in time");
        assert_eq!(ended, b"");
        server.abort();
    });
}

/// Resident memory of this process in MiB.
#[cfg(all(target_os = "linux", target_env = "gnu", not(millstream_portable)))]
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    anonymous.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1024
}

/// 64 MiB of the heap are free, between blocks that stay. glibc keeps them until it is asked.
#[cfg(all(target_os = "linux", target_env = "gnu", not(millstream_portable)))]
#[test]
fn memory_returns_to_the_system_after_a_burst() {
    if ran_in_child() {
        return;
    }
    let runtime = Flavour::CurrentThread.runtime();
    runtime.block_on(async {
        for trims in [false, true] {
            let mut blocks: Vec<_> = (0..4608).map(|_| vec![1_u8; 16 << 10]).collect();
            let mut at = 0..;
            blocks.retain(|_| at.next().is_some_and(|at| at % 9 == 0));
            let before = resident();
            assert!(before >= 72, "{before} MiB");

            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let service = tower::service_fn(|_: Request<RequestBody>| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
            });
            let limits = Limits::default().trim_heap(trims);
            let server = tokio::spawn(serve(listener, service).limits(limits).into_future());
            let hibernated = Snapshot::now();
            let clients = connect(addr, b"hello");
            let rest = || Snapshot::now().since(&hibernated).connections_hibernated == CONNECTIONS as u64;
            while !rest() {
                sleep(Duration::from_millis(10)).await;
            }
            if trims {
                // The test runner ends a test that hangs.
                while resident() + 40 > before {
                    sleep(Duration::from_millis(10)).await;
                }
            } else {
                // Several checks.
                sleep(Duration::from_secs(2)).await;
                assert!(resident() + 4 > before, "{} MiB of {before}", resident());
            }
            drop((clients, blocks));
            server.abort();
        }
    });
}
