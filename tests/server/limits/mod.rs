//! Each limit of `server::serve` at its edge, and the release of its resources.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use millstream::net::TcpListener;
use millstream::server::{Limits, RequestBody};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tower::Service;

mod age;
mod alive;
mod bodies;
mod connections;
#[cfg(feature = "tonic-014")]
mod grpc;
mod half;
mod heads;
mod hosts;
#[cfg(feature = "axum-08")]
mod peers;
mod readers;
mod refusals;
pub(crate) mod slow;
mod windows;

use testkit::http::{Answer, BoxError, Raw, boxed};
use testkit::serving::serve;

async fn start<S>(limits: Limits, service: S) -> SocketAddr
where
    S: Service<Request<RequestBody>, Response = Answer, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, service).limits(limits).into_future());
    addr
}

/// As [`start`], for a client that has sent `bytes` before it is accepted: on a busy machine they could come too late.
async fn start_for<S>(bytes: impl AsRef<[u8]>, limits: Limits, service: S) -> Raw
where
    S: Service<Request<RequestBody>, Response = Answer, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = Raw::connect(listener.local_addr().unwrap()).await;
    client.send(bytes).await;
    tokio::spawn(serve(listener, service).limits(limits).into_future());
    client
}

/// Answers with the length of the request body; fails if the body fails.
async fn length(request: Request<RequestBody>) -> Result<Answer, BoxError> {
    let body = request.into_body().collect().await?.to_bytes();
    Ok(text(body.len().to_string()))
}

async fn hello(_: Request<RequestBody>) -> Result<Answer, Infallible> {
    Ok(text("hello"))
}

fn text(text: impl Into<Bytes>) -> Answer {
    Response::new(boxed(Full::new(text.into())))
}

fn many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// Returns whether a peer may report a reset as `error`.
fn is_reset(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof)
}
