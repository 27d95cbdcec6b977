//! The proxy of examples/proxy, between raw clients and upstreams that misbehave.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response, StatusCode};
use millstream::http::serve;
use millstream::net::{Connector, TcpListener, UnixListener};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[path = "../examples/proxy/fields.rs"]
mod fields;
#[path = "../examples/proxy/relay.rs"]
mod relay;
#[path = "../examples/proxy/reverse.rs"]
mod reverse;
#[path = "../examples/proxy/watched.rs"]
mod watched;

mod support;
use relay::{Target, relay};
use reverse::{Plan, Reverse};
use support::http::{Answer, Raw, boxed, h1, h2, narrow, on_both, request, sha256, start, start_hyper, whole};
use support::noise;

/// What must happen soon happens within this time.
const SOON: Duration = Duration::from_secs(1);

fn plan(to: SocketAddr) -> Plan {
    Plan { to: to.to_string().parse().unwrap(), h2: false, stamps: HeaderMap::new(), timeout: Duration::from_secs(20) }
}

/// A proxy according to `plan`, as the example makes one.
async fn proxy(plan: Plan) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let serve = serve(listener, Reverse::new(Connector::new(), plan));
    tokio::spawn(serve.on_connection(|proxy, peer| proxy.peer = Some(peer.ip())).into_future());
    addr
}

/// An upstream that speaks bytes: what it does with each connection.
async fn raw_upstream<R: Future<Output = ()> + Send + 'static>(
    talk: impl Fn(TcpStream) -> R + Send + 'static,
) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(talk(stream));
        }
    });
    addr
}

/// Reads a request head, whatever it is.
async fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Waits for at most [`SOON`].
async fn soon(what: &str, fine: impl Fn() -> bool) {
    let waiting = async {
        while !fine() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(timeout(SOON, waiting).await.is_ok(), "{what}");
}

/// Says what it was asked: the method, the target, the fields, and the body's sum.
async fn mirror(request: Request<Incoming>) -> Answer {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().cloned();
    let sum = sha256(body.to_bytes());
    let text = format!("{} {}\n{:?}\n{sum:?}\n{trailers:?}", parts.method, parts.uri, parts.headers);
    let mut response = Response::new(boxed(Full::from(text)));
    for (name, value) in [("connection", "x-private"), ("x-private", "1"), ("x-stamp", "theirs"), ("x-kept", "2")] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[test]
fn requests_and_responses_pass_without_what_is_for_one_hop() {
    on_both(async || {
        let mut plan = plan(start(mirror).await);
        for stamp in ["ours", "ours too"] {
            plan.stamps.append(HeaderName::from_static("x-stamp"), HeaderValue::from_static(stamp));
        }
        let addr = proxy(plan).await;
        let mut client = Raw::connect(addr).await;
        let body = noise(300_000);
        client
            .send(format!(
                "POST /path?a=b HTTP/1.1\r\nHost: mill\r\nConnection: x-mine\r\nX-Mine: 1\r\nX-Forwarded-For: 10.9.8.7\r\n\
                 Content-Length: {}\r\n\r\n",
                body.len()
            ))
            .await;
        client.send(&body).await;
        let head = client.head().await;
        assert_eq!((head.status, head.field("x-kept"), head.field("x-stamp")), (200, Some("2"), Some("ours")));
        assert_eq!((head.field("via"), head.field("x-private")), (Some("1.1 millstream"), None));
        let seen = String::from_utf8(client.body(head.content_length()).await.unwrap()).unwrap();
        assert!(seen.starts_with("POST /path?a=b\n"), "{seen}");
        assert!(seen.contains(&format!("{:?}", sha256(&body))), "the body is what was sent");
        for part in [
            "\"host\": \"mill\"",
            "\"x-forwarded-for\": \"10.9.8.7, 127.0.0.1\"",
            "\"x-forwarded-proto\": \"http\"",
            "\"via\": \"1.1 millstream\"",
        ] {
            assert!(seen.contains(part), "{part} in {seen}");
        }
        assert!(!seen.contains("x-mine"), "{seen}");

        let answer = h2(addr).await.send_request(request("http://mill/two")).await.unwrap();
        assert_eq!(answer.version(), hyper::Version::HTTP_2);
        assert_eq!(answer.headers().get_all("x-stamp").iter().collect::<Vec<_>>(), ["ours", "ours too"]);
        let seen = String::from_utf8(whole(answer).await.unwrap().to_vec()).unwrap();
        assert!(seen.starts_with("GET /two\n") && seen.contains("\"via\": \"2.0 millstream\""), "{seen}");
        assert!(seen.contains("\"host\": \"mill\""), "{seen}");
    });
}

#[test]
fn every_version_reaches_every_version() {
    on_both(async || {
        let bytes = noise(3 << 20);
        let sent = bytes.clone();
        let upstream = start(move |_| {
            let frames: Vec<_> = sent.chunks(10_000).map(Bytes::copy_from_slice).collect();
            let frames = stream::iter(frames).map(|piece| Ok::<_, io::Error>(Frame::data(piece)));
            std::future::ready(Response::new(boxed(StreamBody::new(frames))))
        })
        .await;
        for upstream_h2 in [false, true] {
            let addr = proxy(Plan { h2: upstream_h2, ..plan(upstream) }).await;
            let answer = h1(addr).await.send_request(request("/")).await.unwrap();
            assert_eq!(sha256(whole(answer).await.unwrap()), sha256(&bytes));
            let answer = h2(addr).await.send_request(request("http://mill/")).await.unwrap();
            assert_eq!(sha256(whole(answer).await.unwrap()), sha256(&bytes));
        }
    });
}

#[test]
fn connections_to_the_upstream_are_used_again() {
    const REQUESTS: usize = 20;
    on_both(async || {
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let adjust = move |_: &millstream::net::TcpStream| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let hello = async |_| Response::new(Full::new(Bytes::from_static(b"hello")));
        let addr = proxy(plan(start_hyper(|_| {}, adjust, hello).await)).await;
        for _ in 0..REQUESTS {
            // Each client has a connection of its own.
            assert_eq!(Raw::connect(addr).await.get("/").await, (200, b"hello".to_vec()));
        }
        // A request may be made before the answered one's connection is back in the pool.
        let accepted = accepted.load(Ordering::Relaxed);
        assert!(accepted < REQUESTS / 2, "{accepted} connections for {REQUESTS} requests");
    });
}

#[test]
fn an_upstream_that_fails_before_its_head_is_said_to() {
    on_both(async || {
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let closes = raw_upstream(async |mut stream| drop(head_of(&mut stream).await)).await;
        let babbles = raw_upstream(async |mut stream| {
            head_of(&mut stream).await;
            stream.write_all(b"what?\r\n\r\n").await.unwrap();
        })
        .await;
        let silent = raw_upstream(async |mut stream| {
            head_of(&mut stream).await;
            std::future::pending().await
        })
        .await;
        for (upstream, status, text) in [
            (nobody, 502, "cannot be reached"),
            (closes, 502, "without an answer"),
            (babbles, 502, "without an answer"),
            (silent, 504, "in time"),
        ] {
            let addr = proxy(Plan { timeout: Duration::from_millis(200), ..plan(upstream) }).await;
            let (got, body) = Raw::connect(addr).await.get("/").await;
            let body = String::from_utf8(body).unwrap();
            assert!(got == status && body.contains(text), "{got} {body}");
            assert!(!body.contains("127.0.0.1"), "addresses are nothing for clients: {body}");
            let answer = h2(addr).await.send_request(request("http://mill/")).await.unwrap();
            assert_eq!(answer.status(), status);
        }
    });
}

#[test]
fn an_upload_that_takes_its_time_is_not_a_timeout() {
    on_both(async || {
        let addr = proxy(Plan { timeout: Duration::from_millis(150), ..plan(start(mirror).await) }).await;
        let mut client = Raw::connect(addr).await;
        client.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 10\r\n\r\n").await;
        for _ in 0..10 {
            // Faster than the limit by far, and in all much slower.
            tokio::time::sleep(Duration::from_millis(40)).await;
            client.send("x").await;
        }
        assert_eq!(client.head().await.status, 200);
        // One that has stopped is.
        let mut client = Raw::connect(addr).await;
        client.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 10\r\n\r\nx").await;
        assert_eq!(client.head().await.status, 504);
    });
}

#[test]
fn an_upstream_that_dies_in_its_body_is_no_clean_end() {
    /// How the upstream says where its body ends, and how it dies.
    const DEATHS: [(&str, &str, bool); 4] = [
        ("Content-Length: 1000000", "", false),
        ("Content-Length: 1000000", "", true),
        ("Transfer-Encoding: chunked", "186a0\r\n", false),
        ("Transfer-Encoding: chunked", "186a0\r\n", true),
    ];
    on_both(async || {
        for (framing, begin, reset) in DEATHS {
            let upstream = raw_upstream(move |mut stream| async move {
                head_of(&mut stream).await;
                stream.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{begin}").as_bytes()).await.unwrap();
                stream.write_all(&noise(50_000)).await.unwrap();
                // What is sent so far has gone through.
                tokio::time::sleep(Duration::from_millis(50)).await;
                if reset {
                    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                }
            })
            .await;
            let addr = proxy(plan(upstream)).await;

            let mut client = Raw::connect(addr).await;
            client.ask("/").await;
            let head = client.head().await;
            assert_eq!(head.status, 200);
            let got = timeout(SOON, client.drain()).await.expect("the connection ends");
            match head.field("content-length") {
                Some(_) => assert!(noise(50_000).starts_with(&got), "{} bytes", got.len()),
                None => assert!(!got.ends_with(b"0\r\n\r\n"), "a last chunk"),
            }

            let answer = h1(addr).await.send_request(request("/")).await.unwrap();
            whole(answer).await.expect_err("HTTP/1: cut");
            let answer = h2(addr).await.send_request(request("http://mill/")).await.unwrap();
            let error = whole(answer).await.expect_err("HTTP/2: reset");
            let reason = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            assert!(reason.contains("stream error"), "{error}: {reason}");
        }
    });
}

/// An upstream whose bodies never end; counts those that live, and bytes taken of them.
async fn endless() -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    struct Alive(Arc<AtomicUsize>);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let (alive, taken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, bytes) = (Arc::clone(&alive), Arc::clone(&taken));
    let addr = start(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        let (alive, bytes) = (Alive(Arc::clone(&count)), Arc::clone(&bytes));
        let waits = request.uri().path() == "/wait";
        async move {
            if waits {
                // Never answers.
                std::future::pending::<()>().await;
            }
            let frames = stream::unfold(alive, move |alive| {
                bytes.fetch_add(10_000, Ordering::Relaxed);
                async { Some((Ok::<_, io::Error>(Frame::data(Bytes::from_static(&[b'x'; 10_000]))), alive)) }
            });
            Response::new(boxed(StreamBody::new(Box::pin(frames))))
        }
    })
    .await;
    (addr, alive, taken)
}

#[test]
fn a_client_that_leaves_takes_the_upstream_with_it() {
    on_both(async || {
        let (upstream, alive, _) = endless().await;
        for upstream_h2 in [false, true] {
            let addr = proxy(Plan { h2: upstream_h2, ..plan(upstream) }).await;
            for (path, head, reset) in
                [("/wait", false, false), ("/wait", false, true), ("/", true, false), ("/", true, true)]
            {
                let mut client = Raw::connect(addr).await;
                client.ask(path).await;
                if head {
                    assert_eq!(client.head().await.status, 200);
                }
                soon("the request arrives", || alive.load(Ordering::Relaxed) == 1).await;
                if reset {
                    client.reset()
                } else {
                    drop(client)
                }
                soon("the upstream is told", || alive.load(Ordering::Relaxed) == 0).await;
            }
            // A stream among others.
            let mut client = h2(addr).await;
            let kept = client.send_request(request("http://mill/")).await.unwrap();
            let left = client.send_request(request("http://mill/")).await.unwrap();
            soon("both arrive", || alive.load(Ordering::Relaxed) == 2).await;
            drop(left);
            soon("one is told", || alive.load(Ordering::Relaxed) == 1).await;
            let frame = kept.into_body().frame().await.unwrap().unwrap();
            assert!(frame.is_data(), "the other goes on");
            soon("and the other", || alive.load(Ordering::Relaxed) == 0).await;
        }
    });
}

/// Waits until a count does not grow any more, and says what it is.
async fn settled(count: &AtomicUsize) -> usize {
    let mut last = usize::MAX;
    loop {
        let now = count.load(Ordering::Relaxed);
        if now == last {
            return now;
        }
        last = now;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// More than all sockets and queues between two ends hold.
const PLENTY: usize = 48 << 20;

#[test]
fn a_reader_that_stops_stops_the_upstream() {
    on_both(async || {
        let (upstream, _, taken) = endless().await;
        for upstream_h2 in [false, true] {
            let addr = proxy(Plan { h2: upstream_h2, ..plan(upstream) }).await;
            let before = taken.load(Ordering::Relaxed);
            let mut client = Raw::over(narrow(addr).await);
            client.ask("/").await;
            client.head().await;
            let there = settled(&taken).await - before;
            assert!(there < PLENTY, "{there} bytes for a reader that has stopped");
            // It goes on when the reader does.
            let more = taken.load(Ordering::Relaxed);
            let mut read = 0;
            while taken.load(Ordering::Relaxed) == more {
                read += client.body(100_000).await.unwrap().len();
                assert!(read < 2 * PLENTY);
            }
        }
    });
}

#[test]
fn an_upstream_that_does_not_read_stops_the_upload() {
    on_both(async || {
        let upstream = raw_upstream(async |mut stream| {
            SockRef::from(&stream).set_recv_buffer_size(4096).unwrap();
            head_of(&mut stream).await;
            std::future::pending().await
        })
        .await;
        let mut client = Raw::connect(proxy(plan(upstream)).await).await;
        client.send(format!("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: {}\r\n\r\n", 4 * PLENTY)).await;
        let mut sent = 0;
        let piece = vec![b'x'; 64 << 10];
        while let Ok(n) = timeout(Duration::from_millis(300), client.io.write(&piece)).await {
            sent += n.unwrap();
            assert!(sent < PLENTY, "{sent} bytes for a server that reads none");
        }
    });
}

#[test]
fn protocols_are_changed_when_both_agree() {
    on_both(async || {
        let upstream = raw_upstream(async |mut stream| {
            let head = head_of(&mut stream).await.to_lowercase();
            if head.contains("/refuse") {
                return stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            }
            if head.contains("/unasked") == head.contains("upgrade: echo") {
                return;
            }
            // The first bytes of the new protocol come with the head.
            let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello";
            stream.write_all(head).await.unwrap();
            let (mut from, mut to) = stream.split();
            tokio::io::copy(&mut from, &mut to).await.unwrap();
            to.shutdown().await.unwrap();
        })
        .await;
        let addr = proxy(plan(upstream)).await;
        let ask = |path| format!("GET {path} HTTP/1.1\r\nHost: mill\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
        let mut client = Raw::connect(addr).await;
        client.send(ask("/")).await;
        let head = client.head().await;
        assert_eq!(
            (head.status, head.field("upgrade"), head.field("connection")),
            (101, Some("echo"), Some("upgrade"))
        );
        assert_eq!(client.body(5).await.unwrap(), b"hello");
        let bytes = noise(1 << 20);
        let (mut from, mut to) = client.io.into_split();
        let sent = bytes.clone();
        tokio::spawn(async move {
            to.write_all(&sent).await.unwrap();
            to.shutdown().await.unwrap();
        });
        let mut got = Vec::new();
        from.read_to_end(&mut got).await.unwrap();
        assert!(got == bytes, "{} bytes", got.len());

        let mut client = Raw::connect(addr).await;
        client.send(ask("/refuse")).await;
        assert_eq!(client.head().await.status, 403);
        let (status, text) = Raw::connect(addr).await.get("/unasked").await;
        assert_eq!(status, 502, "{}", String::from_utf8_lossy(&text));
        let mut client = Raw::connect(addr).await;
        client.send("CONNECT mill:80 HTTP/1.1\r\nHost: mill:80\r\n\r\n").await;
        assert_eq!(client.head().await.status, StatusCode::NOT_IMPLEMENTED);
    });
}

#[test]
fn unix_sockets_on_both_sides() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let (front, back) = (dir.path().join("front"), dir.path().join("back"));
        let upstream = UnixListener::bind(&back).await.unwrap();
        let service = tower::service_fn(|request| async { Ok::<_, std::convert::Infallible>(mirror(request).await) });
        tokio::spawn(serve(upstream, service).into_future());
        let listener = UnixListener::bind(&front).await.unwrap();
        let plan = plan(([127, 0, 0, 1], 1).into());
        tokio::spawn(serve(listener, Reverse::new(Connector::unix(&back), plan)).into_future());
        let mut client = Raw::over(tokio::net::UnixStream::connect(&front).await.unwrap());
        let (status, seen) = client.get("/here").await;
        let seen = String::from_utf8(seen).unwrap();
        assert!(status == 200 && seen.starts_with("GET /here"), "{status} {seen}");
        assert!(!seen.contains("x-forwarded-for"), "{seen}");
    });
}

/// A relay to `target`.
async fn relay_to(target: Target) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(relay(listener, Connector::new(), target));
    addr
}

#[test]
fn bytes_pass_both_ways_and_each_end_by_itself() {
    on_both(async || {
        let bytes = noise(2 << 20);
        let answer = bytes.clone();
        // Answers once it has read everything: the end of the question must pass, and leave the way back open.
        let upstream = raw_upstream(move |mut stream| {
            let answer = answer.clone();
            async move {
                let mut question = Vec::new();
                stream.read_to_end(&mut question).await.unwrap();
                stream.write_all(&sha256(question)).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        })
        .await;
        let addr = relay_to(Target::Tcp("127.0.0.1".into(), upstream.port())).await;
        let mut client = TcpStream::connect(addr).await.unwrap();
        client.write_all(&bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        assert_eq!(got[..32], sha256(&bytes));
        assert!(got[32..] == bytes);
    });
}

#[test]
fn a_relay_passes_on_what_goes_wrong() {
    on_both(async || {
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let resets = raw_upstream(async |mut stream| {
            stream.write_all(b"part").await.unwrap();
            stream.read_u8().await.unwrap();
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        })
        .await;
        let dir = tempfile::tempdir().unwrap();
        for (target, part) in [
            (Target::Tcp("127.0.0.1".into(), nobody.port()), ""),
            (Target::Unix(dir.path().join("none")), ""),
            (Target::Tcp("127.0.0.1".into(), resets.port()), "part"),
        ] {
            let addr = relay_to(target).await;
            let talk = async {
                let mut client = TcpStream::connect(addr).await?;
                let mut got = vec![0; part.len()];
                client.read_exact(&mut got).await?;
                assert_eq!(got, part.as_bytes());
                if !part.is_empty() {
                    client.write_all(b"x").await?;
                }
                client.read(&mut [0]).await
            };
            // Wherever it finds that out.
            let error = timeout(SOON, talk).await.unwrap().expect_err("no clean end");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
    });
}
