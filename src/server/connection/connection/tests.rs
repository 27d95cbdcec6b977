//! Unit tests of `connection`.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use super::super::protocols::Hooks;
use super::*;
use crate::counters::span::Span;
use crate::net::TcpListener;
use crate::server::connection::Run;
use crate::server::limits::Limits;
use crate::server::request::RequestBody;
use crate::server::state::{ConnLimiter, Peer, Successor};

fn run(step: ConnectionStep) -> Run<()> {
    Run { step, held: Box::new((Span::connection(0, &()), ())) }
}

/// hyper writes `Connection: close` in a head that follows the order to finish, also if the body is taken over then.
#[tokio::test]
async fn no_request_is_answered_behind_a_response_that_closes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let mut client =
        tokio::net::TcpStream::connect(listener.local_addr().expect("its address")).await.expect("a client");
    let (stream, _) = listener.accept().await.expect("a stream");
    let limits = Limits::default();
    let protocols = Arc::new(Protocols::new(&limits, &Hooks::default(), true));
    let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
    let conn_state = ConnState::new(Arc::new(limits), stream.handle(), Peer::default(), permit);
    let (asked, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (called, released) = (Arc::clone(&asked), Arc::clone(&go_on));
    let service = tower::service_fn(move |_: Request<RequestBody>| {
        let (called, released) = (Arc::clone(&called), Arc::clone(&released));
        async move {
            called.notify_one();
            released.notified().await;
            let pieces = stream::unfold(0, |at| async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                (at < 2).then(|| (Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"piece"))), at + 1))
            });
            Ok::<_, Infallible>(Response::new(StreamBody::new(Box::pin(pieces))))
        }
    });
    let adapter = Adapter::new(service, Arc::clone(&conn_state));
    let running = tokio::spawn(run(connection(protocols, stream, adapter)));
    client.write_all("GET / HTTP/1.1\r\nHost: mill\r\n\r\n".repeat(2).as_bytes()).await.expect("room");
    asked.notified().await;
    conn_state.raise(ShutdownPhase::Finish);
    for _ in 0..10 {
        // The connection finishes.
        tokio::task::yield_now().await;
    }
    go_on.notify_one();
    // For the second one, if it is read.
    go_on.notify_one();
    let mut got = String::new();
    client.read_to_string(&mut got).await.expect("an end");
    assert!(got.contains("connection: close"), "{got}");
    assert_eq!(got.matches("HTTP/1.1 ").count(), 1, "{got}");
    running.await.expect("no panic").expect("no failure");
    assert_eq!(conn_state.requests.counts(), (1, 0));
}

/// A future that holds its arguments twice, or has room for the end of the connection, would be larger.
#[tokio::test]
async fn a_connection_that_waits_for_its_client_needs_little_memory() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let begin = async || {
        let client = tokio::net::TcpStream::connect(listener.local_addr().expect("its address"));
        client.await.expect("a client");
        let (stream, _) = listener.accept().await.expect("a stream");
        let limits = Limits::default();
        let protocols = Arc::new(Protocols::new(&limits, &Hooks::default(), true));
        let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
        let conn_state = ConnState::new(Arc::new(limits), stream.handle(), Peer::default(), permit);
        let service = tower::service_fn(|_: Request<RequestBody>| async {
            Ok::<_, Infallible>(Response::new(http_body_util::Empty::<Bytes>::new()))
        });
        (protocols, stream, Adapter::new(service, conn_state))
    };
    let (protocols, stream, adapter) = begin().await;
    let first = size_of_val(&*connection(protocols, stream, adapter));
    assert!(first <= 256, "{first} bytes before the first request");
    let (protocols, stream, adapter) = begin().await;
    let connection = protocols.one.serve_connection(stream, adapter);
    let of_hyper = size_of_val(&connection);
    let parts = connection.into_parts();
    let all = size_of_val(&*one(protocols, parts.io, parts.service));
    assert!(all <= of_hyper + 128, "{all} bytes, of which hyper needs {of_hyper}");
}

/// The reaper does not see a moment without a request, if the client sends the next one at once.
#[cfg(unix)]
#[tokio::test]
async fn a_connection_moves_right_after_the_response_in_progress_if_no_request_has_arrived() {
    use tokio::sync::mpsc;

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let mut client =
        tokio::net::TcpStream::connect(listener.local_addr().expect("its address")).await.expect("a client");
    let (stream, _) = listener.accept().await.expect("a stream");
    let limits = Limits::default();
    let protocols = Arc::new(Protocols::new(&limits, &Hooks::default(), true));
    let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
    let conn_state = ConnState::new(Arc::new(limits), stream.handle(), Peer::default(), permit);
    let (give, mut given) = mpsc::channel(1);
    let successor = Successor(Arc::new(move |socket, _| give.try_send(socket).expect("once")));
    let drains = Arc::clone(&conn_state);
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        // The drain begins during the last request.
        if request.uri().path() == "/last" {
            drains.begin_move(&successor);
        }
        async { Ok::<_, Infallible>(Response::new("answer".to_owned())) }
    });
    let adapter = Adapter::new(service, Arc::clone(&conn_state));
    let running = tokio::spawn(run(connection(protocols, stream, adapter)));
    for (asked, is_given) in [
        ("GET / HTTP/1.1\r\nHost: mill\r\n\r\n", false),
        // The start of the next head has arrived with it.
        ("GET /last HTTP/1.1\r\nHost: mill\r\n\r\nGET /next HT", false),
        ("TP/1.1\r\nHost: mill\r\n\r\n", true),
    ] {
        client.write_all(asked.as_bytes()).await.expect("room");
        let mut got = Vec::new();
        while !got.ends_with(b"answer") {
            assert_ne!(client.read_buf(&mut got).await.expect("an answer"), 0, "{got:?}");
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(given.try_recv().is_ok(), is_given, "{asked}");
    }
    running.await.expect("no panic").expect("no failure");
}
