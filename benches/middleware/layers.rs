//! The cost of the layers: a service that returns 12 bytes, with and without a layer.
//!
//! No sockets: the service is cloned and called like in hyper's adapter, its future polled once and its body to the
//! end. The request has the four headers of a browser's and the connection in its extensions, the response one header.
//!
//! | case | layer |
//! |---|---|
//! | `stamp` | a new request id and trace, in headers and extensions, and the id in the response |
//! | `stamp, no extensions` | the same without [`StampLayer::extensions`] |
//! | `canary, no shares` | every response watched, none moved to another path |
//! | `canary, half` | half of the requests change the path of their stream |
//! | `stamp and canary` | `stamp` around `canary, no shares` |
//!
//! A complete request of 12 bytes takes about five microseconds. Allocations are exact.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use criterion::Throughput;
use http_body_util::Full;
use hyper::body::Body;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Request, Response};
use millstream::net::{SendStrategy, TcpListener, TcpStream};
use millstream::server::Connection;
use millstream_layers::{CanaryLayer, StampLayer};
use tower::{Layer, Service, service_fn};

use super::Work;
use crate::common::contest::{Case, Contender};
use crate::common::suite::Suite;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
type Hello = Ready<Result<Response<Full<Bytes>>, Infallible>>;

fn hello(_: Request<()>) -> Hello {
    let mut response = Response::new(Full::new(Bytes::from_static(b"Hello, world")));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    ready(Ok(response))
}

type Way = Box<dyn FnMut()>;

fn way<S, B>(service: S, connection: &Connection) -> Way
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone + 'static,
    B: Body,
{
    let mut fields = HeaderMap::with_capacity(16);
    for name in ["host", "user-agent", "accept", "accept-encoding"] {
        fields.insert(name, HeaderValue::from_static("a value of some length"));
    }
    let connection = connection.clone();
    Box::new(move || {
        let mut cx = Context::from_waker(Waker::noop());
        let mut request = Request::new(());
        // With spare capacity, as hyper reuses the map of the previous request.
        request.headers_mut().reserve(16);
        request.headers_mut().extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
        request.extensions_mut().insert(connection.clone());
        let mut service = service.clone();
        let Poll::Ready(Ok(response)) = pin!(service.call(black_box(request))).poll(&mut cx) else {
            panic!("the service is ready at once")
        };
        let mut body = pin!(black_box(response).into_body());
        while let Poll::Ready(Some(_)) = body.as_mut().poll_frame(&mut cx) {}
    })
}

/// Returns a stream whose path can be set, and its runtime.
fn stream() -> (tokio::runtime::Runtime, TcpStream) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (accepted, _client) = tokio::join!(listener.accept(), TcpStream::connect(listener.local_addr().unwrap()));
        accepted.unwrap().0
    });
    (runtime, stream)
}

fn ways(connection: &Connection) -> [(&'static str, Way); 5] {
    let stamp = |layer: StampLayer| way(layer.layer(service_fn(hello)), connection);
    let canary = |percent| {
        let layer = CanaryLayer::builder().share(SendStrategy::NoCork, percent).build().unwrap();
        layer.layer(service_fn(hello))
    };
    [
        ("stamp", stamp(StampLayer::new())),
        ("stamp, no extensions", stamp(StampLayer::new().extensions(false))),
        ("canary, no shares", way(canary(0.0), connection)),
        ("canary, half", way(canary(50.0), connection)),
        ("stamp and canary", way(StampLayer::new().layer(canary(0.0)), connection)),
    ]
}

pub(crate) fn run(suite: &mut Suite) {
    let (_runtime, stream) = stream();
    let connection = Connection::new(PEER, stream.handle());
    for (name, layered) in ways(&connection) {
        suite.run_micro(&Case::new(name, "CPU us/request", 1), Throughput::Elements(1), || {
            vec![
                Contender { name: "millstream layer", run: Box::new(Work(layered)) },
                Contender { name: "floor, bare service", run: Box::new(Work(way(service_fn(hello), &connection))) },
            ]
        });
    }
}
