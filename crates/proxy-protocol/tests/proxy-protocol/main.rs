//! `ProxyListener` under our server: the address of the client, refused connections, and an accept loop that never
//! waits.

mod frameworks;
mod listeners;
mod made;
mod moved;
mod refused;

use std::io;
use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use millstream::net::{Accept, CountedIo, TcpListener};
use millstream::server::{Connection, RequestBody, Server, Trusted};
use millstream_proxy_protocol::{ProxyHeader, ProxyListener};
use testkit::serving::{self, AnyService};
use tokio::io::{DuplexStream, duplex};
use tokio::sync::{Mutex, mpsc};

/// The address of the clients in `made::kinds`.
pub(crate) const CLIENT: &str = "203.0.113.7:4711";

pub(crate) fn local() -> Trusted {
    "127.0.0.1".parse().unwrap()
}

/// Answers with the address of the client in each form, and the length of the body: the address for axum, the peer, and
/// the host that the header names.
pub(crate) fn service() -> AnyService {
    serving::any(tower::service_fn(|request: Request<RequestBody>| async {
        let (head, body) = request.into_parts();
        let axum = head.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        let peer = head.extensions.get::<Connection>().unwrap().peer();
        let header = head.extensions.get::<ProxyHeader>().map(|header| header.authority().unwrap_or("-").to_owned());
        let len = body.collect().await.map_err(testkit::http::BoxError::from)?.to_bytes().len();
        let text = said(axum, peer, header.as_deref(), len);
        Ok::<_, testkit::http::BoxError>(Response::new(Full::new(Bytes::from(text))))
    }))
}

pub(crate) fn serve<L: Accept>(listener: ProxyListener<L>) -> Server<ProxyListener<L>, AnyService> {
    millstream::server::serve(listener, service())
}

pub(crate) fn said(axum: Option<SocketAddr>, peer: Option<IpAddr>, header: Option<&str>, len: usize) -> String {
    format!("{axum:?} {peer:?} {header:?} {len}")
}

/// The answer of the service for a client that the header names.
pub(crate) fn of_header(client: &str, host: &str) -> String {
    let client: SocketAddr = client.parse().unwrap();
    said(Some(client), Some(client.ip()), Some(host), 0)
}

pub(crate) async fn start(adjust: impl FnOnce(ProxyListener<TcpListener>) -> ProxyListener<TcpListener>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(adjust(ProxyListener::new(listener, local()))).into_future());
    addr
}

/// Connections inside of this process, from an address. Each holds a number of bytes, so that a reader sees the others
/// later.
pub(crate) struct Channel(Mutex<mpsc::Receiver<CountedIo<DuplexStream>>>);

pub(crate) struct Connect(mpsc::Sender<CountedIo<DuplexStream>>);

impl Connect {
    pub(crate) fn new() -> (Self, Channel) {
        let (sender, receiver) = mpsc::channel(5000);
        (Self(sender), Channel(Mutex::new(receiver)))
    }

    pub(crate) fn connect(&self, holds: usize) -> DuplexStream {
        let (client, server) = duplex(holds);
        self.accept(server);
        client
    }

    /// Lets the listener accept the other end of a stream.
    pub(crate) fn accept(&self, server: DuplexStream) {
        self.0.try_send(CountedIo::new(server)).unwrap_or_else(|_| panic!("the listener lives"));
    }
}

impl Accept for Channel {
    type Stream = CountedIo<DuplexStream>;
    type Addr = SocketAddr;

    async fn accept(&self) -> io::Result<(Self::Stream, SocketAddr)> {
        let stream = self.0.lock().await.recv().await.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((stream, ([127, 0, 0, 1], 9).into()))
    }
}

#[expect(dead_code, reason = "a check of types: the inner listener makes the streams, with all their methods")]
fn the_streams_are_those_of_the_inner_listener(
    listener: ProxyListener<TcpListener>,
) -> impl Accept<Stream = millstream::net::TcpStream> {
    listener
}
