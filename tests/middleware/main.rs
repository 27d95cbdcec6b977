//! `middleware::Measure`: its counts and labels; bodies pass unchanged. Counts are per process and tests run in
//! parallel, so each test uses its own route.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::metrics::{Requests, Responses};
use millstream::middleware::{Measure, Route};
use millstream::net::TcpListener;
use testkit::serving::serve;
use tokio::net::TcpStream;
use tower::{Layer, ServiceExt};

mod bodies;
#[cfg(feature = "tracing")]
mod connections;
mod cost;
mod routes;
#[cfg(feature = "tracing")]
mod spans;
mod wire;

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

fn boxed<B>(body: B) -> UnsyncBoxBody<Bytes, io::Error>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    body.map_err(io::Error::other).boxed_unsync()
}

fn frames(
    frames: impl IntoIterator<Item = io::Result<Bytes>, IntoIter: Send + 'static>,
) -> UnsyncBoxBody<Bytes, io::Error> {
    StreamBody::new(stream::iter(frames.into_iter().map(|frame| frame.map(Frame::data)))).boxed_unsync()
}

fn answer(route: &str, body: UnsyncBoxBody<Bytes, io::Error>) -> Answer {
    let mut response = Response::new(body);
    response.extensions_mut().insert(Route::new(route));
    response
}

fn of(route: &str) -> Vec<Responses> {
    Requests::now().ended.into_iter().filter(|responses| responses.route == Some(route)).collect()
}

/// Waits until [`of`] returns counts.
async fn once_of(route: &str) -> Vec<Responses> {
    for _ in 0..1000 {
        match of(route) {
            none if none.is_empty() => tokio::time::sleep(Duration::from_millis(10)).await,
            some => return some,
        }
    }
    panic!("no response ended under {route} within 10 s");
}
