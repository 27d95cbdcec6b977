//! `server::serve`: both protocols on one port, its limits, and the isolation of failures.

use std::convert::Infallible;
use std::io;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::net::TcpListener;
use millstream::server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::over::OF_OURS;
use testkit::http::{Flavour, frame};
use testkit::noise;
use testkit::serving::serve;

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

async fn start<F, R>(handler: F) -> (SocketAddr, JoinHandle<io::Result<()>>)
where
    F: Fn(Request<server::RequestBody>) -> R + Clone + Send + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let service = tower::service_fn(move |request| {
        let answer = handler(request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    (addr, tokio::spawn(serve(listener, service).into_future()))
}

fn boxed<B>(body: B) -> UnsyncBoxBody<Bytes, io::Error>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    body.map_err(io::Error::other).boxed_unsync()
}

fn text(text: impl Into<Bytes>) -> Answer {
    Response::new(boxed(Full::new(text.into())))
}

type H1 = hyper::client::conn::http1::SendRequest<Empty<Bytes>>;
type H2 = hyper::client::conn::http2::SendRequest<Empty<Bytes>>;

/// Connects without Nagle's algorithm, which would delay window updates until the server's delayed ACKs.
async fn connect(addr: SocketAddr) -> TokioIo<TcpStream> {
    let stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    TokioIo::new(stream)
}

async fn h1(addr: SocketAddr) -> H1 {
    let io = connect(addr).await;
    let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

async fn h2(addr: SocketAddr) -> H2 {
    let io = connect(addr).await;
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).header(header::HOST, "mill").body(Empty::new()).unwrap()
}

async fn whole(answer: Response<Incoming>) -> Bytes {
    answer.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn both_protocols_are_spoken_on_one_port() {
    let (addr, _server) =
        start(async |request| text(format!("{:?} {}", request.version(), request.uri().path()))).await;
    let mut one = h1(addr).await;
    let mut two = h2(addr).await;
    for _ in 0..3 {
        assert_eq!(whole(one.send_request(get("/a")).await.unwrap()).await, "HTTP/1.1 /a");
        assert_eq!(whole(two.send_request(get("/b")).await.unwrap()).await, "HTTP/2.0 /b");
    }
}

#[tokio::test]
async fn responses_over_http2_have_no_content_where_http_forbids_it() {
    let (addr, _server) = start(async |request| {
        let mut answer = match request.uri().path() {
            "/stream" => {
                Response::new(boxed(StreamBody::new(stream::iter([Ok::<_, io::Error>(Frame::data("a".into()))]))))
            }
            _ => text("hello"),
        };
        match request.uri().path() {
            "/none" => *answer.status_mut() = StatusCode::NO_CONTENT,
            "/same" => *answer.status_mut() = StatusCode::NOT_MODIFIED,
            _ => {}
        }
        answer
    })
    .await;
    let (mut one, mut two) = (h1(addr).await, h2(addr).await);
    for (method, path) in [("HEAD", "/"), ("HEAD", "/stream"), ("GET", "/none"), ("GET", "/same")] {
        let request =
            || Request::builder().method(method).uri(path).header(header::HOST, "mill").body(Empty::new()).unwrap();
        let answer = two.send_request(request()).await.unwrap();
        let reference = one.send_request(request()).await.unwrap();
        let length = |answer: &Response<Incoming>| answer.headers().get(header::CONTENT_LENGTH).cloned();
        if method == "HEAD" {
            assert_eq!(length(&answer), length(&reference), "{path}");
        }
        assert_eq!(answer.into_body().collect().await.expect(path).to_bytes(), "", "{method} {path}");
    }
    // The connection and its limits go on.
    assert_eq!(whole(two.send_request(get("/")).await.unwrap()).await, "hello");
}

#[tokio::test]
async fn a_body_frame_larger_than_every_buffer_arrives_whole() {
    let body = Bytes::from(noise(9 << 20));
    let sent = body.clone();
    let (addr, _server) = start(move |_| std::future::ready(text(sent.clone()))).await;
    let answer = h1(addr).await.send_request(get("/")).await.unwrap();
    assert_eq!(answer.headers()[header::CONTENT_LENGTH], (9 << 20).to_string());
    assert!(whole(answer).await == body);
    assert!(whole(h2(addr).await.send_request(get("/")).await.unwrap()).await == body);
}

#[tokio::test]
async fn streams_of_frames_of_all_sizes_do_not_stall_each_other() {
    // Below, at and above the size of the send buffer.
    const SIZES: [usize; 7] = [1, 300, 70_000, 17, 64 << 10, 1000, 200_000];
    let all = Bytes::from(noise(1 << 20));
    let sent = all.clone();
    let (addr, _server) = start(move |_| {
        let mut rest = sent.clone();
        let frames = SIZES.into_iter().cycle().map_while(move |size| {
            let len = size.min(rest.len());
            (len > 0).then(|| Ok::<_, io::Error>(Frame::data(rest.split_to(len))))
        });
        std::future::ready(Response::new(boxed(StreamBody::new(stream::iter(frames)))))
    })
    .await;
    // The stream window is small enough that the unread streams cannot exhaust the connection's window.
    let io = connect(addr).await;
    let (mut client, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(4 << 20)
        .handshake(io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(client.send_request(get("/")).await.unwrap());
    }
    // The first response is read last, so its window stays exhausted while the others proceed.
    for answer in answers.into_iter().rev() {
        assert!(whole(answer).await == all);
    }
}

#[tokio::test]
async fn an_upgraded_connection_is_handed_over() {
    let (addr, _server) = start(async |mut request| {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgrade.await.unwrap());
            let mut line = [0; 5];
            io.read_exact(&mut line).await.unwrap();
            line.reverse();
            io.write_all(&line).await.unwrap();
            io.shutdown().await.unwrap();
        });
        let mut answer = text("");
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        answer.headers_mut().insert(header::UPGRADE, "mirror".parse().unwrap());
        answer.headers_mut().insert(header::CONNECTION, "upgrade".parse().unwrap());
        answer
    })
    .await;
    let mut request = get("/");
    request.headers_mut().insert(header::UPGRADE, "mirror".parse().unwrap());
    request.headers_mut().insert(header::CONNECTION, "upgrade".parse().unwrap());
    let answer = h1(addr).await.send_request(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut io = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    io.write_all(b"hello").await.unwrap();
    let mut back = String::new();
    io.read_to_string(&mut back).await.unwrap();
    assert_eq!(back, "olleh");
}

#[tokio::test]
async fn dropping_the_server_closes_the_listener_and_leaves_connections_running() {
    let go_on = Arc::new(Notify::new());
    let waited_for = Arc::clone(&go_on);
    let (addr, server) = start(move |_| {
        let go_on = Arc::clone(&waited_for);
        let last = stream::once(async move {
            go_on.notified().await;
            Ok::<_, io::Error>(Frame::data(Bytes::from("and the rest")))
        });
        let first = stream::iter([Ok(Frame::data(Bytes::from("the first ")))]);
        let body = StreamBody::new(futures_util::StreamExt::chain(first, last));
        std::future::ready(Response::new(boxed(body)))
    })
    .await;
    let mut client = h1(addr).await;
    let mut answer = client.send_request(get("/")).await.unwrap();
    assert_eq!(answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "the first ");

    server.abort();
    assert!(server.await.unwrap_err().is_cancelled());
    // A child that another test starts has the socket, too, until it begins its program.
    let refused = async {
        loop {
            match TcpStream::connect(addr).await {
                Ok(_) => tokio::task::yield_now().await,
                Err(refused) => return refused.kind(),
            }
        }
    };
    assert_eq!(timeout(testkit::HANGS, refused).await.expect("it is closed"), io::ErrorKind::ConnectionRefused);

    go_on.notify_one();
    assert_eq!(whole(answer).await, "and the rest");
}

struct Bomb(bool);

impl Body for Bomb {
    type Data = Bytes;
    type Error = io::Error;
    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        assert!(!std::mem::replace(&mut self.0, true), "panic of the test's body");
        Poll::Ready(Some(Ok(Frame::data(Bytes::from("tick ")))))
    }
}

#[tokio::test]
async fn a_panic_ends_its_own_connection_only() {
    let (addr, _server) = start(async |request| match request.uri().path() {
        "/service" => panic!("panic of the test's service"),
        "/body" => Response::new(boxed(Bomb(false))),
        _ => text("fine"),
    })
    .await;
    let mut bystander_one = h1(addr).await;
    let mut bystander_two = h2(addr).await;
    for path in ["/service", "/body"] {
        let mut victim = h1(addr).await;
        if let Ok(answer) = victim.send_request(get(path)).await {
            assert_eq!(path, "/body");
            assert!(answer.into_body().collect().await.is_err(), "the body must not end normally");
        }
        assert!(victim.ready().await.is_err(), "the connection must be closed");

        if let Ok(answer) = bystander_two.send_request(get(path)).await {
            assert_eq!(path, "/body");
            assert!(answer.into_body().collect().await.is_err());
        }
        assert_eq!(whole(bystander_one.send_request(get("/")).await.unwrap()).await, "fine");
        assert_eq!(whole(bystander_two.send_request(get("/")).await.unwrap()).await, "fine");
        assert_eq!(whole(h1(addr).await.send_request(get("/")).await.unwrap()).await, "fine");
    }
}

#[tokio::test]
async fn a_response_that_fails_never_looks_complete() {
    for (takeover, panics) in [(true, false), (false, false), (true, true), (false, true)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(move |request: Request<_>| async move {
            let frames = stream::unfold(0, move |n| async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                assert!(n < 3 || !panics, "panic of the test's body");
                let frame = Frame::data(Bytes::from_static(b"part"));
                Some((if n < 3 { Ok(frame) } else { Err(io::Error::other("lost")) }, n + 1))
            });
            let mut response = Response::new(boxed(StreamBody::new(frames)));
            if request.uri().path() == "/old" {
                *response.version_mut() = hyper::Version::HTTP_10;
            }
            Ok::<_, Infallible>(response)
        });
        tokio::spawn(serve(listener, service).takeover(takeover).into_future());
        let ask = async |head: &str| {
            let mut client = TcpStream::connect(addr).await.unwrap();
            client.write_all(head.as_bytes()).await.unwrap();
            let mut got = Vec::new();
            let ended = timeout(testkit::HANGS, client.read_to_end(&mut got)).await.expect("an end");
            (ended, String::from_utf8(got).unwrap())
        };
        let may_end = testkit::portable("a reset may show as an end");
        for head in ["GET / HTTP/1.0\r\n\r\n", "GET /old HTTP/1.1\r\nHost: mill\r\n\r\n"] {
            let (ended, got) = ask(head).await;
            assert!(got.contains("part"), "takeover {takeover}, panics {panics}: {got:?}");
            assert!(
                may_end || ended.is_err(),
                "takeover {takeover}, panics {panics}: only a reset tells that {got:?} is not complete"
            );
        }
        let (_, got) = ask("GET / HTTP/1.1\r\nHost: mill\r\n\r\n").await;
        assert!(got.contains("part"), "takeover {takeover}, panics {panics}: {got:?}");
        assert!(!got.ends_with("\r\n0\r\n\r\n"), "takeover {takeover}, panics {panics}: {got:?}");
    }
}

#[test]
fn a_response_that_is_dropped_with_its_runtime_never_looks_complete() {
    for takeover in [true, false] {
        let runtime = Flavour::TwoWorkers.runtime();
        let addr = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let service = tower::service_fn(async |_| {
                let first = stream::once(async { Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"part"))) });
                Ok::<_, Infallible>(Response::new(StreamBody::new(first.chain(stream::pending()).boxed())))
            });
            tokio::spawn(serve(listener, service).takeover(takeover).into_future());
            addr
        });
        let mut client = std::net::TcpStream::connect(addr).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        // Its reads go on when the process was stopped and continued: signal(7) names those with a timeout.
        let mut client = io::BufReader::new(client);
        let mut got = Vec::new();
        while !got.ends_with(b"part") {
            let mut byte = [0];
            client.read_exact(&mut byte).expect("no end");
            got.push(byte[0]);
        }
        drop(runtime);
        let ended = client.read_to_end(&mut Vec::new());
        let may_end = testkit::portable("a reset may show as an end");
        assert!(may_end || ended.is_err(), "takeover {takeover}: only a reset tells that {got:?} is not complete");
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

#[tokio::test]
async fn http2_clients_are_told_the_limits() {
    let (addr, _server) = start(async |_| text("")).await;
    let mut io = TcpStream::connect(addr).await.unwrap();
    io.write_all(&[PREFACE, EMPTY_SETTINGS].concat()).await.unwrap();
    let (kind, _, settings) = frame(&mut io).await.unwrap();
    assert_eq!(kind, 4, "SETTINGS come first");
    let value = |id: u16| {
        let found = settings.chunks(6).find(|entry| entry[..2] == id.to_be_bytes());
        found.map(|entry| u32::from_be_bytes(entry[2..].try_into().unwrap()))
    };
    assert_eq!(value(3), Some(100), "MAX_CONCURRENT_STREAMS");
    assert_eq!(value(4), Some(3 << 20), "INITIAL_WINDOW_SIZE");
    assert_eq!(value(6), Some(16 << 10), "MAX_HEADER_LIST_SIZE");
    // The connection's window starts at 65 535 bytes; WINDOW_UPDATE opens it.
    let window = loop {
        if let (8, _, increment) = frame(&mut io).await.unwrap() {
            break 65_535 + u32::from_be_bytes(increment.try_into().unwrap());
        }
    };
    assert_eq!(window, 4 << 20);
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused() {
    let called = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let count = Arc::clone(&called);
    let service = tower::service_fn(move |_: Request<server::RequestBody>| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Result<Answer, Infallible>>()
    });
    let limits = server::Limits::default().http2_streams(2);
    let _server = tokio::spawn(serve(listener, service).limits(limits).into_future());
    let mut io = TcpStream::connect(addr).await.unwrap();
    io.write_all(&[PREFACE, EMPTY_SETTINGS].concat()).await.unwrap();
    for stream in [1, 3, 5, 7] {
        // HEADERS with END_STREAM and END_HEADERS: `GET / http`, authority `a` (RFC 7541 appendix A).
        io.write_all(&[0, 0, 6, 1, 5, 0, 0, 0, stream, 0x82, 0x86, 0x84, 0x41, 1, b'a']).await.unwrap();
    }
    for _ in 0..2 {
        let code = loop {
            let next = timeout(testkit::HANGS, frame(&mut io)).await;
            if let (3, _, code) = next.expect("a stream is refused").unwrap() {
                break code;
            }
        };
        assert_eq!(code, 7u32.to_be_bytes(), "REFUSED_STREAM");
    }
    assert_eq!(called.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_request_head_beyond_the_limit_is_refused() {
    let (addr, _server) = start(async |_| text("reached")).await;
    let with = |len: usize| {
        let mut request = get("/");
        request.headers_mut().insert("x-long", "x".repeat(len).parse().unwrap());
        request
    };
    assert_eq!(h1(addr).await.send_request(with(15 << 10)).await.unwrap().status(), StatusCode::OK);
    assert_eq!(h2(addr).await.send_request(with(12 << 10)).await.unwrap().status(), StatusCode::OK);

    // The response may be lost: the connection closes while the rest of the head is unread.
    let refused =
        [h1(addr).await.send_request(with(20 << 10)).await, h2(addr).await.send_request(with(20 << 10)).await];
    for answer in refused {
        let status = answer.map(|answer| answer.status());
        let too_large = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        assert!(status.as_ref().map_or(true, |status| *status == too_large), "{status:?}");
    }
}

/// Reads to the end of the stream. The paused clock jumps to the next timer when all tasks wait: the server's timer, if
/// any, or this timeout, which is later.
async fn closed_by_server(io: &mut TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    let end = timeout(Duration::from_secs(600), io.read_to_end(&mut got)).await;
    // A close with unread bytes causes a reset, which counts as an end.
    let _: Result<usize, io::Error> = end.expect("the server kept the connection");
    got
}

#[tokio::test(start_paused = true)]
async fn a_client_that_brings_no_request_is_closed() {
    let (addr, _server) = start(async |_| text("")).await;
    for sent in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nHost: mi"] {
        let mut io = TcpStream::connect(addr).await.unwrap();
        io.write_all(sent).await.unwrap();
        closed_by_server(&mut io).await;
    }
    // Part of the second request arrived with the first.
    let mut io = TcpStream::connect(addr).await.unwrap();
    io.write_all(b"GET / HTTP/1.1\r\nHost: mill\r\n\r\nGET / HT").await.unwrap();
    assert!(closed_by_server(&mut io).await.starts_with(b"HTTP/1.1 200 OK\r\n"));
    // An HTTP/2 client receives GOAWAY.
    let mut io = TcpStream::connect(addr).await.unwrap();
    io.write_all(&[PREFACE, EMPTY_SETTINGS].concat()).await.unwrap();
    let got = closed_by_server(&mut io).await;
    let mut rest = &got[..];
    let mut kinds = Vec::new();
    while let [a, b, c, kind, ..] = *rest {
        kinds.push(kind);
        rest = &rest[9 + u32::from_be_bytes([0, a, b, c]) as usize..];
    }
    assert!(kinds.contains(&7), "frames of types {kinds:?}");
}

/// Bytes between requests that are no request let the connection end in order, once it has been idle.
#[tokio::test(start_paused = true)]
async fn an_idle_client_that_has_sent_an_empty_line_or_part_of_a_head_is_closed_in_order() {
    for (takeover, over) in [true, false].into_iter().flat_map(|takeover| OF_OURS.map(|over| (takeover, over))) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(async |_| Ok::<_, Infallible>(text("hello")));
        // The paused clock outruns the kernel's acknowledgements.
        let limits = server::Limits::default().write_stall(Duration::MAX);
        let server = serve(listener, service).limits(limits).takeover(takeover);
        tokio::spawn(over.secured(server).into_future());
        // Bytes in one piece with the request, bytes after its response, and bytes once the connection hibernates.
        for (with, after, later) in [("\r\n", "", ""), ("GET / HT", "", ""), ("", "\r\n", ""), ("", "", "\r\n")] {
            let mut io = over.client(TcpStream::connect(addr).await.unwrap()).await;
            let mut send = async |bytes: &str| {
                io.write_all(bytes.as_bytes()).await.unwrap();
                io.flush().await.unwrap();
            };
            send(&format!("GET / HTTP/1.1\r\nHost: mill\r\n\r\n{with}")).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            send(after).await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            send(later).await;
            let (since, mut got) = (Instant::now(), Vec::new());
            let ended = timeout(Duration::from_secs(600), io.read_to_end(&mut got)).await.expect("an end");
            let case = format!("takeover {takeover}, {over:?}: {with:?} {after:?} {later:?}");
            assert!(ended.is_ok(), "{case}: {ended:?}");
            assert!(got.ends_with(b"hello"), "{case}: {}", String::from_utf8_lossy(&got));
            assert!(since.elapsed() > Duration::from_secs(60), "{case}: ended after {:?}", since.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_a_slow_answer_is_not() {
    let (addr, _server) = start(async |request| {
        // The paused clock outruns the kernel's acknowledgements, so HTTP/2 waits less than `write_stall`.
        let two = request.version() == hyper::Version::HTTP_2;
        tokio::time::sleep(Duration::from_secs(if two { 25 } else { 120 })).await;
        text("at last")
    })
    .await;
    assert_eq!(whole(h1(addr).await.send_request(get("/")).await.unwrap()).await, "at last");
    assert_eq!(whole(h2(addr).await.send_request(get("/")).await.unwrap()).await, "at last");
}

/// Not ready on the first poll, like a service that limits concurrency.
#[derive(Clone, Default)]
struct Hesitant {
    asked: bool,
}

impl tower::Service<Request<server::RequestBody>> for Hesitant {
    type Response = Answer;
    type Error = io::Error;
    type Future = std::future::Ready<Result<Answer, io::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::replace(&mut self.asked, true) {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, request: Request<server::RequestBody>) -> Self::Future {
        assert!(self.asked, "called before ready");
        std::future::ready(match request.uri().path() {
            "/fails" => Err(io::Error::other("error of the test's service")),
            path => Ok(text(path.to_owned())),
        })
    }
}

#[tokio::test]
async fn a_service_that_is_not_ready_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Hesitant::default()).into_future());
    let mut client = h1(addr).await;
    for path in ["/one", "/two"] {
        assert_eq!(whole(client.send_request(get(path)).await.unwrap()).await, path);
    }
    assert!(client.send_request(get("/fails")).await.is_err(), "an error of the service ends the connection");
    let mut other = h2(addr).await;
    assert_eq!(whole(other.send_request(get("/three")).await.unwrap()).await, "/three");
}
