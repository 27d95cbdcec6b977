//! The proxy between raw clients and misbehaving upstreams.

mod chunks;
mod cuts;
mod direct;
mod faults;
mod framing;
mod head;
mod interim;
mod keep_alive;
mod kept;
mod limits;
mod passing;
mod proxy_protocol;
mod settings;
mod shared;
mod tls;
mod tokens;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::{Request, Response, StatusCode};
use millstream::net::{TcpListener, UnixListener};
use millstream::server::{Limits, serve};
use millstream_proxy::{Proxy, ProxyBuilder, Upstream};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use testkit::http::{
    Answer, Raw, boxed, h1, h2, narrow, on_both, raw_upstream, request, sha256, start, start_hyper, whole,
};
use testkit::{HANGS, lacks, noise, skip};

/// Returns a proxy in front of `to`, which speaks HTTP/2 if `h2`.
fn plan(to: SocketAddr, h2: bool) -> ProxyBuilder {
    let upstream: Upstream = format!("{}{to}", if h2 { "h2c:" } else { "" }).parse().unwrap();
    Proxy::builder(upstream).timeout(HANGS).connect_timeout(HANGS)
}

/// Starts a proxy.
async fn proxy(plan: ProxyBuilder) -> SocketAddr {
    proxy_of(plan.build().unwrap()).await
}

async fn proxy_of(proxy: Proxy) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, proxy).limits(Limits::default().streaming_requests(|_| true)).into_future());
    addr
}

/// Reads a request head.
async fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Waits for a condition, for at most [`HANGS`].
async fn soon(what: &str, fine: impl Fn() -> bool) {
    let waiting = async {
        while !fine() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(timeout(HANGS, waiting).await.is_ok(), "{what}");
}

/// Responds with the request's method, target, fields, and digest of its body.
async fn mirror(request: Request<millstream::server::RequestBody>) -> Answer {
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
