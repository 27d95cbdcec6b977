//! Connections between a server and its successor: those with a header stay, and one that has lost it is closed.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{Either, Full};
use millstream::metrics::Snapshot;
use millstream::net::TcpStream;
use millstream::sse::Hub;
use testkit::http::{Raw, on_both};
use testkit::{HANGS, alone, counted_since};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;

const HEADER: &str = "PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n";

#[test]
fn a_connection_whose_header_was_read_stays_with_its_server() {
    on_both(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let hub = Hub::new();
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let response = match request.uri().path() {
                "/events" => hub.subscribe(&request).map(Either::Left),
                _ => Response::new(Either::Right(Full::new(Bytes::from_static(b"hello")))),
            };
            async { Ok::<_, Infallible>(response) }
        });
        let given = Arc::new(AtomicUsize::new(0));
        let gives = Arc::clone(&given);
        let (signal, signalled) = oneshot::channel::<()>();
        let server = millstream::server::serve(ProxyListener::new(listener, local()), service)
            .move_connections(move |_, _| _ = gives.fetch_add(1, Ordering::Relaxed));
        let ended = tokio::spawn(server.drain(signalled, HANGS));
        let (mut idle, mut reader) = (Raw::connect(addr).await, Raw::connect(addr).await);
        idle.send([HEADER, "GET / HTTP/1.1\r\nHost: mill\r\n\r\n"].concat()).await;
        let length = idle.head().await.content_length();
        assert_eq!(idle.body(length).await.unwrap(), b"hello");
        reader.send([HEADER, "GET /events HTTP/1.1\r\nHost: mill\r\n\r\n"].concat()).await;
        assert_eq!(reader.head().await.status, 200);
        signal.send(()).unwrap();
        let drained = timeout(HANGS, ended).await.expect("it drains").unwrap().unwrap();
        assert_eq!((drained.connections, drained.moved, drained.aborted), (2, 0, 0), "{drained:?}");
        assert_eq!(given.load(Ordering::Relaxed), 0);
        assert_eq!(idle.drain().await, b"", "it ends between two requests");
        assert!(reader.drain().await.ends_with(b"0\r\n\r\n"), "the events end in order");
    });
}

/// Accepts connections that another server has served before.
struct Adopting(TcpListener, Mutex<mpsc::Receiver<OwnedFd>>);

impl Accept for Adopting {
    type Stream = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let socket = self.1.lock().await.recv().await.ok_or(io::ErrorKind::BrokenPipe)?;
        self.0.adopt(socket.into())
    }
}

#[test]
fn a_connection_that_has_lost_its_header_is_closed_and_a_forged_one_is_not_read() {
    if alone::ran_in_child() {
        return;
    }
    on_both(|| async {
        let before = Snapshot::now();
        for (trusted, serves) in [("127.0.0.1", false), ("192.0.2.7", true)] {
            let first = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = Raw::connect(first.local_addr().unwrap()).await;
            let own = client.io.local_addr().unwrap();
            let forged = if serves { "" } else { HEADER };
            client.send([forged, "GET / HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n"].concat()).await;
            let (give, given) = mpsc::channel(1);
            give.try_send(first.accept().unwrap().0.into()).unwrap();
            let adopting = Adopting(TcpListener::bind("127.0.0.1:0").await.unwrap(), Mutex::new(given));
            let server = serve(ProxyListener::new(adopting, trusted.parse().unwrap()).header_time(HANGS));
            let server = tokio::spawn(server.into_future());
            let answer = String::from_utf8(client.drain().await).unwrap();
            match serves {
                true => assert!(answer.ends_with(&said(Some(own), Some(own.ip()), None, 0)), "{answer}"),
                false => assert_eq!(answer, ""),
            }
            drop(give);
            server.await.unwrap().unwrap_err();
        }
        let counted = counted_since(&before, |counted| counted.proxy_headers_refused > 0).await;
        assert_eq!(counted.proxy_headers_refused, 1);
    });
}
