//! Bodies of answers.

use std::io;

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

pub(crate) fn bytes(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// An answer without a body.
pub(crate) fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(bytes(""));
    *response.status_mut() = status;
    response
}

/// Bytes as they come.
pub(crate) fn stream(bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Body {
    StreamBody::new(bytes.map_ok(Frame::data)).boxed_unsync()
}
