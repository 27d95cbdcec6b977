//! Slow clients.

use std::error::Error;
use std::io;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body, Frame};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use millstream::net::{Accept, SharedPace, TcpListener, UnixListener};
use millstream::server::{Connection, Limits, RequestBody};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{length, many_descriptors, start, start_for, text};
use testkit::HANGS;
use testkit::http::{Answer, BoxError, Raw, boxed, h2, narrow, on_both, request, whole};
use testkit::serving::serve;

const LIMIT: Duration = Duration::from_secs(1);

fn limits() -> Limits {
    Limits::default().head_time(LIMIT).body_progress(LIMIT).write_stall(LIMIT).keep_alive(LIMIT * 2)
}

pub(crate) struct Endless(Arc<AtomicUsize>);

impl Endless {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;
    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; 8 << 10])))))
    }
}

pub(crate) async fn until(bodies: &AtomicUsize, wanted: usize) {
    let reached = async {
        while bodies.load(Ordering::Relaxed) != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let in_time = timeout(LIMIT + HANGS, reached).await;
    assert!(in_time.is_ok(), "{} bodies instead of {wanted}", bodies.load(Ordering::Relaxed));
}

/// Sends `begin` and then single bytes until the server closes; returns the response and the elapsed time.
async fn slowly(addr: std::net::SocketAddr, begin: &'static str) -> (Vec<u8>, Duration) {
    let (since, mut got) = (Instant::now(), Vec::new());
    // On a busy machine the server may have closed before this task runs again.
    let mut io = match tokio::net::TcpStream::connect(addr).await {
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return (got, since.elapsed()),
        connected => connected.unwrap(),
    };
    drop(io.write_all(begin.as_bytes()).await);
    loop {
        match timeout(LIMIT / 5, io.read_buf(&mut got)).await {
            Ok(Ok(0) | Err(_)) => return (got, since.elapsed()),
            Ok(Ok(_)) => {}
            Err(_) if !got.is_empty() => {}
            // Fails if the server has closed, which the next read reports.
            Err(_) => drop(io.write_all(b"x").await),
        }
    }
}

#[test]
fn hundreds_that_stall_are_closed_while_others_are_served() {
    many_descriptors();
    on_both(async || {
        let bodies = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&bodies);
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let counted = Arc::clone(&counted);
            async move {
                match request.uri().path() {
                    "/endless" => Ok::<Answer, BoxError>(Response::new(boxed(Endless::new(&counted)))),
                    "/upload" => length(request).await,
                    _ => Ok(text("hello")),
                }
            }
        });
        // On a busy machine the good client may pause for longer than the stalled ones may.
        let addr = start(limits().keep_alive(HANGS), service).await;
        let mut client = Raw::connect(addr).await;
        assert_eq!(client.get("/").await, (200, b"hello".to_vec()));
        let since = Instant::now();
        let mut stalled = Vec::new();
        for _ in 0..200 {
            let mut client = Raw::connect_narrow(addr).await;
            client.ask("/endless").await;
            stalled.push(client);
        }
        let mut slow = Vec::new();
        for n in 0..500 {
            let begin = match n % 2 {
                0 => "GET / HTTP/1.1\r\nX: ",
                _ => "POST /upload HTTP/1.1\r\nHost: mill\r\nContent-Length: 100000\r\n\r\n",
            };
            slow.push(tokio::spawn(timeout(LIMIT + HANGS, slowly(addr, begin))));
        }
        let done = Arc::new(AtomicBool::new(false));
        let enough = Arc::clone(&done);
        let good = tokio::spawn(async move {
            let mut times = Vec::new();
            while !enough.load(Ordering::Relaxed) {
                let asked = Instant::now();
                assert_eq!(client.get("/").await, (200, b"hello".to_vec()));
                times.push(asked.elapsed());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            times.sort();
            times
        });
        let (mut longest, mut answered) = (Duration::ZERO, 0);
        for slow in slow {
            let (said, after) = slow.await.unwrap().expect("closed in time");
            longest = longest.max(after);
            answered += usize::from(said.starts_with(b"HTTP/1.1 408 "));
            // On a busy machine a client may be closed before its first byte arrives; that needs no answer.
            assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 408 "), "{:?}", String::from_utf8_lossy(&said));
        }
        assert!(answered > 0, "nobody was answered");
        println!("the slow clients were closed after {longest:?} at most");
        until(&bodies, 0).await;
        println!("the stalled clients were closed {:?} after the first body", since.elapsed());
        done.store(true, Ordering::Relaxed);
        let times = good.await.unwrap();
        let p99 = times[times.len() * 99 / 100];
        println!("meanwhile {} answers, p99 {p99:?}", times.len());
        assert!(p99 < HANGS, "{p99:?}");
        drop(stalled);
    });
}

#[test]
fn the_sweep_alone_closes_those_who_do_not_read() {
    on_both(async || {
        let bodies = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&bodies);
        let endless = tower::service_fn(move |_: Request<RequestBody>| {
            std::future::ready(Ok::<Answer, BoxError>(Response::new(boxed(Endless::new(&counted)))))
        });
        // Unix sockets have no `TCP_USER_TIMEOUT`.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).await.unwrap();
        tokio::spawn(serve(listener, endless.clone()).limits(limits()).into_future());
        let mut client = tokio::net::UnixStream::connect(&path).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n").await.unwrap();
        until(&bodies, 1).await;
        until(&bodies, 0).await;
        // An HTTP/2 client may read the connection but not the stream, which the kernel cannot see.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, endless).limits(limits()).into_future());
        let mut client = h2(addr).await;
        let answer = client.send_request(request("/")).await.unwrap();
        until(&bodies, 1).await;
        until(&bodies, 0).await;
        assert!(whole(answer).await.is_err());
        drop(client);
        // Pings and their answers do not count as progress.
        let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).keep_alive_interval(LIMIT / 10).keep_alive_while_idle(true);
        let (mut client, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let answer = client.send_request(request("/")).await.unwrap();
        until(&bodies, 1).await;
        until(&bodies, 0).await;
        assert!(whole(answer).await.is_err());
    });
}

#[test]
fn who_waits_for_our_own_rate_is_served() {
    on_both(async || {
        let pace = SharedPace::new(NonZeroU64::new(40_000).unwrap());
        let listener = TcpListener::builder().pace_all(&pace).bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(async |_| Ok::<_, BoxError>(text(vec![7; 60_000])));
        tokio::spawn(serve(listener, service).limits(Limits::default().write_stall(LIMIT / 4)).into_future());
        // The first response exhausts the pace, and the second waits for it.
        let mut client = Raw::connect(addr).await;
        for _ in 0..2 {
            let (status, body) = client.get("/").await;
            assert_eq!((status, body.len()), (200, 60_000));
        }
    });
}

/// Drains a server whose rate is used up. Returns how many connections it has cut off, once their tasks have ended.
async fn cut_off<L: Accept>(listener: L, mut client: impl AsyncWrite + Unpin) -> usize {
    let (served, gone) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let counts = (Arc::clone(&served), Arc::clone(&gone));
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let (served, gone) = counts.clone();
        let connection = request.extensions().get::<Connection>().unwrap().clone();
        tokio::spawn(async move {
            connection.gone().await;
            gone.fetch_add(1, Ordering::Relaxed);
        });
        let length = if served.fetch_add(1, Ordering::Relaxed) == 0 { 60_000 } else { 5 };
        std::future::ready(Ok::<_, BoxError>(text(vec![7; length])))
    });
    let (signal, signalled) = oneshot::channel::<()>();
    let ended = tokio::spawn(serve(listener, service).drain(signalled, LIMIT));
    // The first response leaves at once, and uses the rate up. The second one is short, so it is queued, and hyper ends.
    let requests = "GET / HTTP/1.1\r\nHost: mill\r\n\r\nGET / HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n";
    client.write_all(requests.as_bytes()).await.unwrap();
    until(&served, 2).await;
    signal.send(()).unwrap();
    let drained = ended.await.unwrap().unwrap();
    until(&gone, 2).await;
    drained.aborted
}

#[test]
fn who_waits_for_our_own_rate_is_cut_off_at_the_deadline() {
    on_both(async || {
        // No reset ends the wait for the rate, which is more than an hour.
        let pace = || SharedPace::new(NonZeroU64::new(10).unwrap());
        let listener = TcpListener::builder().pace_all(&pace()).bind("127.0.0.1:0").await.unwrap();
        let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert_eq!(cut_off(listener, client).await, 1);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::builder().pace_all(&pace()).bind(&path).await.unwrap();
        let client = tokio::net::UnixStream::connect(&path).await.unwrap();
        assert_eq!(cut_off(listener, client).await, 1);
    });
}

#[test]
fn who_reads_slowly_but_reads_is_served() {
    if testkit::portable("the kernel is not asked about a connection") {
        return;
    }
    on_both(async || {
        let bodies = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&bodies);
        let endless = tower::service_fn(move |_: Request<RequestBody>| {
            std::future::ready(Ok::<Answer, BoxError>(Response::new(boxed(Endless::new(&counted)))))
        });
        // Each pause is far below the limit, also on a busy machine; their sum is above it.
        let limit = LIMIT * 6;
        let addr = start(limits().write_stall(limit), endless).await;
        let mut io = narrow(addr).await;
        io.write_all(b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n").await.unwrap();
        let mut some = vec![0; 64 << 10];
        for _ in 0..15 {
            io.read_exact(&mut some).await.unwrap();
            tokio::time::sleep(limit / 12).await;
        }
        assert_eq!(bodies.load(Ordering::Relaxed), 1);
        drop(io);
        until(&bodies, 0).await;
    });
}

#[test]
fn who_has_no_request_is_let_go_and_who_waits_for_an_answer_is_not() {
    on_both(async || {
        let service = |idle: Duration| {
            tower::service_fn(move |_: Request<RequestBody>| async move {
                tokio::time::sleep(idle + idle / 2).await;
                Ok::<_, BoxError>(text("hello"))
            })
        };
        let idle = LIMIT;
        let limits = Limits::default().keep_alive(idle);
        let requests = "GET /slow HTTP/1.1\r\nHost: mill\r\n\r\n".repeat(2);
        let mut client = start_for(requests, limits.head_time(idle), service(idle)).await;
        for _ in 0..2 {
            let head = client.head().await;
            assert_eq!((head.status, client.body(head.content_length()).await.unwrap()), (200, b"hello".to_vec()));
        }
        assert!(timeout(idle + HANGS, client.drain()).await.expect("closed").is_empty());
        // Long enough for the client to send its request, on a busy machine too.
        let idle = LIMIT * 4;
        let addr = start(Limits::default().keep_alive(idle).head_time(HANGS), service(idle)).await;
        let io = TokioIo::new(tokio::net::TcpStream::connect(addr).await.unwrap());
        let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        let ended = tokio::spawn(connection);
        let answer = client.send_request(request("/slow")).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hello");
        let ended = timeout(idle + HANGS, ended).await.expect("closed").unwrap();
        // By GOAWAY, or by a reset if this task was paused for longer than the server waits for it to close.
        let cause = ended.as_ref().err().and_then(|error| error.source()?.downcast_ref::<io::Error>());
        assert!(ended.is_ok() || cause.is_some_and(|e| e.kind() == io::ErrorKind::ConnectionReset), "{ended:?}");
    });
}

#[test]
fn a_body_that_streams_may_come_slowly_but_has_to_come() {
    on_both(async || {
        // Each pause is far below the limit, also on a busy machine; their sum is above it.
        let limit = LIMIT * 6;
        let limits = Limits::default().body_progress(limit).streaming_requests(|head| head.uri.path() == "/stream");
        let addr = start(limits, tower::service_fn(length)).await;
        let mut client = Raw::connect(addr).await;
        client.send("POST /stream HTTP/1.1\r\nHost: mill\r\nContent-Length: 12\r\n\r\n").await;
        for _ in 0..12 {
            tokio::time::sleep(limit / 10).await;
            client.send("x").await;
        }
        let head = client.head().await;
        assert_eq!((head.status, client.body(head.content_length()).await.unwrap()), (200, b"12".to_vec()));
        client.send("POST /stream HTTP/1.1\r\nHost: mill\r\nContent-Length: 12\r\n\r\n").await;
        assert_eq!(timeout(limit + HANGS, client.head()).await.expect("answered").status, 408);
    });
}

#[test]
fn a_last_frame_that_waits_for_windows_is_an_answer_still() {
    a_frame_that_waits_for_windows_is_an_answer_still(text);
}

#[test]
fn a_frame_behind_which_a_body_ends_is_an_answer_until_it_is_sent() {
    a_frame_that_waits_for_windows_is_an_answer_still(|frame| {
        Response::new(boxed(StreamBody::new(stream::iter([Ok::<_, BoxError>(Frame::data(frame))]))))
    });
}

fn a_frame_that_waits_for_windows_is_an_answer_still(answer: fn(Bytes) -> Answer) {
    on_both(move || async move {
        const WHOLE: usize = 1 << 20;
        // Long enough for the client to send its request, on a busy machine too.
        let idle = LIMIT * 4;
        let limits = Limits::default().keep_alive(idle).write_stall(HANGS);
        let service = tower::service_fn(move |_| std::future::ready(Ok::<_, BoxError>(answer(vec![7; WHOLE].into()))));
        let addr = start(limits, service).await;
        let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut client, connection) =
            builder.initial_stream_window_size(64 << 10).handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut body = client.send_request(request("/")).await.unwrap().into_body();
        // Takes nothing for longer than that time.
        tokio::time::sleep(idle + LIMIT).await;
        let mut got = 0;
        while let Some(piece) = body.frame().await {
            got += piece.expect("the body is complete").data_ref().map_or(0, Bytes::len);
            // Takes longer in total than the keep-alive time.
            tokio::time::sleep(LIMIT / 10).await;
        }
        assert_eq!(got, WHOLE);
    });
}

#[test]
fn limits_that_are_none_are_no_trouble() {
    on_both(async || {
        let (long, much) = (Duration::MAX, usize::MAX);
        let limits = Limits::default()
            .head_time(long)
            .body_progress(long)
            .write_stall(long)
            .keep_alive(long)
            .body_rate(u64::MAX)
            .body(u64::MAX)
            .fields(much)
            .uri(much)
            .connections(much)
            .per_address(much)
            .http2_stream_window(u32::MAX)
            .http2_connection_window(u32::MAX)
            .buffer(much)
            .budget(much);
        let addr = start(limits, tower::service_fn(length)).await;
        let mut client = Raw::connect(addr).await;
        client.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 4\r\n\r\nab").await;
        // The sweep runs twice in this time.
        tokio::time::sleep(LIMIT).await;
        client.send("cd").await;
        let head = client.head().await;
        assert_eq!((head.status, client.body(head.content_length()).await.unwrap()), (200, b"4".to_vec()));
        let answer = testkit::http::h2(addr).await.send_request(request("/")).await.unwrap();
        assert_eq!(whole(answer).await.unwrap(), "0");
    });
}
