//! Servers with layers, and clients at a trusted and at an untrusted address.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper::http::Extensions;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::net::{Handle, TcpListener};
use millstream::server;
use millstream::server::{Connection, RequestBody};
use tokio::net::{TcpSocket, TcpStream};
use tower::Service;

use testkit::http::{BoxError, H1, H2};

/// The untrusted client address.
pub(crate) const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
/// The trusted client address.
pub(crate) const FRIEND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

pub(crate) type Accepted = Arc<Mutex<Vec<Handle>>>;

/// Starts a server for both protocols.
pub(crate) async fn start<S, B>(service: S) -> (SocketAddr, Accepted)
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    start_with(service, |_, _| ()).await
}

/// As [`start`], with a hook for each connection.
pub(crate) async fn start_with<S, B>(
    service: S,
    hook: impl Fn(&mut Extensions, &Connection) + Send + Sync + 'static,
) -> (SocketAddr, Accepted)
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let accepted = Accepted::default();
    let handles = Arc::clone(&accepted);
    let serving = server::serve(listener, service).on_connection(move |extensions, accepted, _| {
        handles.lock().unwrap().push(accepted.handle().clone());
        hook(extensions, accepted);
    });
    tokio::spawn(serving.into_future());
    (addr, accepted)
}

pub(crate) async fn connect(source: Ipv4Addr, addr: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.connect(addr).await.unwrap()
}

pub(crate) enum Client {
    One(H1),
    Two(H2),
}

impl Client {
    pub(crate) async fn one(source: Ipv4Addr, addr: SocketAddr) -> Self {
        let io = TokioIo::new(connect(source, addr).await);
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        Self::One(sender)
    }

    pub(crate) async fn two(source: Ipv4Addr, addr: SocketAddr) -> Self {
        let io = TokioIo::new(connect(source, addr).await);
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        Self::Two(sender)
    }

    pub(crate) async fn both(source: Ipv4Addr, addr: SocketAddr) -> [Self; 2] {
        [Self::one(source, addr).await, Self::two(source, addr).await]
    }

    pub(crate) async fn send(&mut self, headers: &[(&str, &str)]) -> Response<Incoming> {
        let mut request = Request::get("/").header("host", "mill");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        match self {
            Self::One(sender) => {
                sender.ready().await.unwrap();
                sender.send_request(request).await.unwrap()
            }
            Self::Two(sender) => sender.send_request(request).await.unwrap(),
        }
    }

    pub(crate) async fn ask(&mut self, headers: &[(&str, &str)]) -> Response<String> {
        let (head, body) = self.send(headers).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Response::from_parts(head, String::from_utf8(body.into()).unwrap())
    }
}

/// Returns the value of a header, which must be the only one.
pub(crate) fn field<'a, B>(answer: &'a Response<B>, name: &str) -> Option<&'a str> {
    let mut values = answer.headers().get_all(name).iter();
    let value = values.next().map(|value| value.to_str().unwrap());
    assert_eq!(values.next(), None, "{name} twice");
    value
}
