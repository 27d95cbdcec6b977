//! `Connector` as a service: its targets, its errors, and its streams in the connection pool of hyper-util.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::rt::TokioExecutor;
use millstream::net::{ConnectError, Connector, TcpListener, TcpStream, UnixConnector, UnixListener, UnixStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::{Service, ServiceExt};

use testkit::alone;
use testkit::http::{Flavour, on_both, start_hyper};
use testkit::serving::serve;
use testkit::skip;

const REQUESTS: usize = 20;

/// A target for connectors that ignore it.
fn any() -> Uri {
    Uri::from_static("http://anybody/")
}

/// A listener with a full queue, and the sockets that fill it.
fn full() -> (socket2::Socket, Vec<socket2::Socket>) {
    use socket2::{Domain, Socket, Type};

    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut fill = Vec::new();
    loop {
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let connected = client.connect_timeout(&addr, Duration::from_millis(200));
        fill.push(client);
        if connected.is_err() {
            return (listener, fill);
        }
    }
}

async fn refuse(connector: &Connector, host: &str, port: u16) -> ConnectError {
    connector.connect_to(host, port).await.expect_err("no connection")
}

#[tokio::test]
async fn a_connection_is_made_to_names_and_addresses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "localhost"] {
        let mut stream = Connector::new().connect_to(host, port).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let (mut server, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, stream.local_addr().unwrap());
        let mut got = [0; 5];
        server.read_exact(&mut got).await.unwrap();
        assert!(socket2::SockRef::from(&stream).tcp_nodelay().unwrap());
    }
    let uri: Uri = format!("http://127.0.0.1:{port}/path?query").parse().unwrap();
    let stream: TcpStream = Connector::new().oneshot(uri).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap().port(), port);
    match TcpListener::bind("[::1]:0").await {
        Ok(listener) => {
            let uri: Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
            Connector::new().oneshot(uri).await.unwrap();
        }
        Err(e) => skip("IPv6", e),
    }
}

#[tokio::test]
async fn an_error_names_whom_where_and_what_to_do() {
    let reserved = testkit::Reserved::new();
    let addr = reserved.addr;
    let error = refuse(&Connector::new(), "localhost", addr.port()).await;
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::CONNREFUSED.raw_os_error()));
    let text = error.to_string();
    for part in [&format!("localhost:{}", addr.port()), &format!("{addr}: "), "refused", "start the server"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(error.source().unwrap().to_string(), "Connection refused (os error 111)");
    assert!(error.is_refused() && !error.is_timed_out());
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionRefused);

    let error = refuse(&Connector::new(), "no..name", 80).await;
    assert!(error.to_string().contains("no..name:80: the name was not resolved; "), "{error}");
    assert!(error.source().is_some() && !error.is_refused());

    let error = refuse(&Connector::new().local([127, 0, 0, 1].into()), "::1", 80).await;
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    assert!(error.to_string().contains("family"), "{error}");

    // A documentation address (RFC 5737), which no interface has.
    let error = refuse(&Connector::new().local([192, 0, 2, 1].into()), "127.0.0.1", addr.port()).await;
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    assert!(error.to_string().contains("check the local address"), "{error}");
}

#[tokio::test]
async fn https_is_refused_unless_it_is_asked_for() {
    let uri = Uri::from_static("https://127.0.0.1/");
    let error = Connector::new().oneshot(uri.clone()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("wrap this connector") && error.to_string().contains("enforce_http"), "{error}");
    // Normally no server listens on port 443 here.
    match Connector::new().enforce_http(false).oneshot(uri).await {
        Ok(stream) => assert_eq!(stream.peer_addr().unwrap().port(), 443),
        Err(e) => assert!(e.to_string().contains("127.0.0.1:443"), "{e}"),
    }
    for (uri, what) in [("ftp://127.0.0.1/", "not http"), ("/path", "no host")] {
        let error = Connector::new().oneshot(Uri::from_static(uri)).await.unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[tokio::test]
async fn what_does_not_answer_is_given_up_in_time() {
    let (listener, _fill) = full();
    let addr = listener.local_addr().unwrap().as_socket().unwrap();
    let limit = Duration::from_millis(100);
    let error = refuse(&Connector::new().timeout(limit), "127.0.0.1", addr.port()).await;
    assert!(error.is_timed_out() && !error.is_refused());
    let text = error.to_string();
    assert!(text.contains("within 100ms") && text.contains(&format!("{addr}: no answer")), "{text}");
}

#[tokio::test]
async fn the_local_address_is_the_one_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connector = Connector::new().local([127, 0, 0, 2].into());
    let streams = [
        connector.connect_to("127.0.0.1", port).await.unwrap(),
        connector.connect_to("127.0.0.1", port).await.unwrap(),
    ];
    for stream in &streams {
        let (_, peer) = listener.accept().await.unwrap();
        assert_eq!(peer.ip().to_string(), "127.0.0.2");
        assert_eq!(stream.local_addr().unwrap(), peer);
    }
}

#[tokio::test]
async fn streams_are_what_the_options_say() {
    const LONG: Duration = Duration::from_secs(60);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let (tcp, unix) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), UnixListener::bind(&path).await.unwrap());
    let port = tcp.local_addr().unwrap().port();
    for (limit, queued) in [(LONG, 5), (Duration::ZERO, 0)] {
        let mut stream = Connector::new().gather_limit(limit).connect_to("127.0.0.1", port).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        assert_eq!(stream.queued(), queued);
        let mut stream = UnixConnector::new(&path).gather_limit(limit).oneshot(any()).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        assert_eq!(stream.queued(), queued);
    }
    drop(unix);
}

#[test]
fn a_pooled_connection_is_used_again() {
    on_both(async || {
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let adjust = move |_: &TcpStream| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let hello = async |_| Response::new(Full::new(Bytes::from_static(b"hello")));
        let addr = start_hyper(|_| {}, adjust, hello).await;
        ask_often(Connector::new(), &format!("http://{addr}/"), false).await;
        // A request may start before the previous connection is back in the pool.
        let accepted = accepted.load(Ordering::Relaxed);
        assert!(accepted < REQUESTS / 2, "{accepted} connections for {REQUESTS} requests");
    });
}

#[test]
fn unix_sockets_serve_clients_of_both_versions() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).await.unwrap();
        let hello = tower::service_fn(async |_: Request<millstream::server::RequestBody>| {
            Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
        });
        tokio::spawn(serve(listener, hello).into_future());
        for h2 in [false, true] {
            ask_often(UnixConnector::new(&path), "http://anybody/", h2).await;
        }
    });
}

async fn ask_often(connector: impl Connect + Clone + Send + Sync + 'static, uri: &str, h2: bool) {
    let client = Client::builder(TokioExecutor::new()).http2_only(h2).build::<_, Empty<Bytes>>(connector);
    for _ in 0..REQUESTS {
        let answer = client.get(uri.parse().unwrap()).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hello");
    }
}

#[tokio::test]
async fn a_unix_listener_whose_queue_is_full_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let connector = UnixConnector::new(&path).timeout(Duration::from_millis(50));
    let error = connector.clone().oneshot(any()).await.unwrap_err();
    assert!(error.is_refused());
    assert!(error.to_string().contains(path.to_str().unwrap()) && error.to_string().contains("start the server"));

    let listener = UnixListener::builder().backlog(0).bind(&path).await.unwrap();
    let mut fill = Vec::new();
    let error = loop {
        match UnixStream::connect(&path).await {
            Ok(stream) => fill.push(stream),
            Err(e) => break e,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    let error = connector.clone().oneshot(any()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(error.to_string().contains("does not accept fast enough"), "{error}");
    let waits = tokio::spawn(UnixConnector::new(&path).call(any()));
    tokio::task::yield_now().await;
    for _ in 0..=fill.len() {
        listener.accept().await.unwrap();
    }
    waits.await.unwrap().unwrap();
}

#[test]
fn an_attempt_that_is_dropped_leaves_no_descriptor() {
    if alone::ran_in_child() {
        return;
    }
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (listener, _fill) = full();
    let port = listener.local_addr().unwrap().as_socket().unwrap().port();
    for flavour in Flavour::BOTH {
        flavour.runtime().block_on(async {
            // Threads and rings exist from now on.
            TcpListener::bind("127.0.0.1:0").await.unwrap();
            let before = fds();
            for _ in 0..20 {
                let connector = Connector::new();
                let attempt = connector.connect_to("127.0.0.1", port);
                assert!(tokio::time::timeout(Duration::from_millis(5), attempt).await.is_err());
            }
            for left in (0..1000).rev() {
                if fds() == before {
                    return;
                }
                assert!(left > 0, "{} descriptors; before: {before}", fds());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }
}
