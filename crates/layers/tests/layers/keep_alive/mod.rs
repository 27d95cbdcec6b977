//! `KeepAliveLayer`: comments in event streams, and late answers.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Body, Frame};
use hyper::{Method, Request, Response};
use millstream::net::TcpListener;
use tower::{Layer, ServiceExt};

mod answers;
mod served;

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
