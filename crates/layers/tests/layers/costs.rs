//! Allocations of a layer per request. Run with `--nocapture` to see the counts.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::IpAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Body;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response};
use millstream::net::SendStrategy;
use millstream::server::Connection;
use millstream_layers::{CanaryLayer, StampLayer};
use tower::{Layer, Service, service_fn};

use testkit::pair;

const ROUNDS: usize = 1000;

fn hello(_: Request<()>) -> Ready<Result<Response<Full<Bytes>>, Infallible>> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"hello")));
    response.headers_mut().insert(CONTENT_TYPE, "text/plain".parse().unwrap());
    ready(Ok(response))
}

/// Returns the allocations of one request, from its head to the end of its body. An allocation shared by several
/// requests counts as a fraction.
fn allocations<S, B>(mut service: S, connection: &Connection) -> f64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body,
{
    let mut cx = Context::from_waker(Waker::noop());
    // As in hyper, the map has room for more headers.
    let request = || {
        let mut request = Request::new(());
        request.headers_mut().reserve(16);
        request.headers_mut().insert("host", "mill".parse().unwrap());
        request.extensions_mut().insert(connection.clone());
        request
    };
    let mut run = |request| {
        let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut cx) else { panic!("not ready") };
        let mut body = pin!(response.into_body());
        while let Poll::Ready(Some(_)) = body.as_mut().poll_frame(&mut cx) {}
    };
    // Excludes the allocations of the first request of a thread.
    run(request());
    let requests: Vec<_> = (0..ROUNDS).map(|_| request()).collect();
    let counted = allocation_counter::measure(|| requests.into_iter().for_each(run));
    counted.count_total as f64 / ROUNDS as f64
}

#[tokio::test]
async fn stamps_allocate_their_extensions_and_canaries_nothing() {
    let (stream, _theirs) = pair().await;
    let peer: IpAddr = "127.0.0.1".parse().unwrap();
    let connection = Connection::new(peer, stream.handle());
    let bare = allocations(service_fn(hello), &connection);
    let stamp = StampLayer::new().layer(service_fn(hello));
    let lean = StampLayer::new().extensions(false).layer(service_fn(hello));
    let share = CanaryLayer::builder().share(SendStrategy::NoSendfile, 50.0).report(true).build().unwrap();
    let canary = share.layer(service_fn(hello));
    let [stamp, lean, canary] = [
        allocations(stamp, &connection) - bare,
        allocations(lean, &connection) - bare,
        allocations(canary, &connection) - bare,
    ];
    println!(
        "allocations per request: service {bare}, with stamp +{stamp}, without extensions +{lean}, canary +{canary}"
    );
    assert!((2.0..2.1).contains(&stamp), "{stamp}");
    assert!((0.0..0.1).contains(&lean), "{lean}");
    assert!((-0.01..0.01).contains(&canary), "{canary}");
}
