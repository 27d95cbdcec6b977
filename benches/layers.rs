//! What `http::layer` adds to a request: a service that answers 12 bytes, bare and with layers around it.
//!
//! No sockets: the service is cloned and called as hyper's adapter does it, its future polled once and its body to the end. The
//! request has the four headers of a browser's, the response one.
//!
//! | way | what it does |
//! |---|---|
//! | `bare` | the service |
//! | `stamp` | a new request id and trace, in headers and extensions, and the id in the response |
//! | `stamp, no extensions` | the same without [`StampLayer::extensions`] |
//! | `canary, no shares` | every answer watched, none sent another way |
//! | `canary, half` | half of the requests change the path of their stream |
//! | `stamp and canary` | `stamp` around `canary, no shares` |
//!
//! **Look at** the differences to `bare` in the table at the end, whose microseconds are nanoseconds for a request, beside the
//! five thousand that such a request takes in all; and at the allocations, which are exact. **Noise**: some per cent.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use http_body_util::Full;
use hyper::body::Body;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Request, Response};
use millstream::middleware::{CanaryLayer, StampLayer};
use millstream::net::{Handle, IoPath, TcpListener, TcpStream};
use tower::{Layer, Service, service_fn};

mod common;
use common::{Row, by_turns, cpu_of_this_thread, table};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Requests of one operation in the table, so that its microseconds are nanoseconds for a request.
const REQUESTS: u64 = 1000;

type Hello = Ready<Result<Response<Full<Bytes>>, Infallible>>;

fn hello(_: Request<()>) -> Hello {
    let mut response = Response::new(Full::new(Bytes::from_static(b"Hello, world")));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    ready(Ok(response))
}

/// Asks a service once.
type Way = Box<dyn FnMut()>;

fn way<S, B>(service: S) -> Way
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone + 'static,
    B: Body,
{
    let mut fields = HeaderMap::with_capacity(16);
    for name in ["host", "user-agent", "accept", "accept-encoding"] {
        fields.insert(name, HeaderValue::from_static("a value of some length"));
    }
    Box::new(move || {
        let mut cx = Context::from_waker(Waker::noop());
        let mut request = Request::new(());
        // With room, as hyper's map of the request before has it.
        request.headers_mut().reserve(16);
        request.headers_mut().extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
        let mut service = service.clone();
        let Poll::Ready(Ok(response)) = pin!(service.call(black_box(request))).poll(&mut cx) else {
            panic!("the service is ready at once")
        };
        let mut body = pin!(black_box(response).into_body());
        while let Poll::Ready(Some(_)) = body.as_mut().poll_frame(&mut cx) {}
    })
}

/// A stream to set the path of, and its runtime.
fn stream() -> (tokio::runtime::Runtime, TcpStream) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (accepted, _client) = tokio::join!(listener.accept(), TcpStream::connect(listener.local_addr().unwrap()));
        accepted.unwrap().0
    });
    (runtime, stream)
}

fn ways(handle: &Handle) -> [(&'static str, Way); 6] {
    let stamp = |layer: StampLayer| {
        let mut stamp = layer.layer(service_fn(hello));
        stamp.connected(PEER);
        way(stamp)
    };
    let canary = |percent| {
        let layer = CanaryLayer::builder().share(IoPath::NoCork, percent).build().unwrap();
        let mut canary = layer.layer(service_fn(hello));
        canary.connected(PEER, handle.clone());
        canary
    };
    let mut both = StampLayer::new().layer(canary(0.0));
    both.connected(PEER);
    [
        ("bare", way(service_fn(hello))),
        ("stamp", stamp(StampLayer::new())),
        ("stamp, no extensions", stamp(StampLayer::new().extensions(false))),
        ("canary, no shares", way(canary(0.0))),
        ("canary, half", way(canary(50.0))),
        ("stamp and canary", way(both)),
    ]
}

fn main() {
    let (_runtime, stream) = stream();
    let mut criterion = Criterion::default().without_plots().warm_up_time(Duration::from_secs(1)).configure_from_args();
    let mut group = criterion.benchmark_group("layers/a request");
    group.throughput(Throughput::Elements(1));
    let mut ran = Vec::new();
    for (name, mut way) in ways(&stream.handle()) {
        let mut is_asked = false;
        group.bench_function(name, |bencher| {
            is_asked = true;
            bencher.iter(&mut way);
        });
        if is_asked {
            ran.push((name, way));
        }
    }
    group.finish();
    criterion.final_summary();

    let cpu = by_turns(ran.len(), 200, |contender, operations| {
        let before = cpu_of_this_thread();
        for _ in 0..operations * REQUESTS {
            ran[contender].1();
        }
        cpu_of_this_thread() - before
    });
    let rows: Vec<Row> = ran
        .iter_mut()
        .zip(cpu)
        .map(|((name, way), cpu)| {
            let counted = allocation_counter::measure(|| (0..REQUESTS).for_each(|_| way()));
            let each = counted.count_total as f64 / REQUESTS as f64;
            Row { name: (*name).to_owned(), cpu, note: format!("{each:.2} allocations per request") }
        })
        .collect();
    println!("{}", table("a request through layers", "1000 requests", &rows));
}
