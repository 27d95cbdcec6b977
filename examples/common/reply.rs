//! Routes, and one body type for all of them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use super::bodies::{Events, HELLO, Tokens};

/// Route of a request; `F` is the server's body type for files.
#[derive(Debug)]
pub(crate) enum Route<F> {
    Index,
    /// `GET /f/NAME`, with file handling specific to the server.
    File,
    /// A response common to both servers.
    Done(Response<Reply<F>>),
}

pub(crate) fn route<F, B>(request: &Request<B>) -> Route<F> {
    let uri = request.uri();
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Route::Done(not_found());
    }
    match uri.path() {
        "/" => Route::Index,
        "/hello" => Route::Done(Reply::Whole { body: Full::from(HELLO) }.of("application/json")),
        "/tokens" => Route::Done(Reply::Tokens { body: Tokens::new() }.of("text/event-stream")),
        "/events" => Route::Done(Reply::Events { body: Events::new(uri.query()) }.of("text/event-stream")),
        path if path.starts_with("/f/") => Route::File,
        _ => Route::Done(not_found()),
    }
}

fn not_found<F>() -> Response<Reply<F>> {
    let mut response = Reply::Whole { body: Full::from("not found\n") }.of("text/plain; charset=utf-8");
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

pin_project_lite::pin_project! {
    /// Any body of a server. An enum, so that no route needs a boxed body.
    #[project = ReplyProjection]
    #[derive(Debug)]
    pub(crate) enum Reply<F> {
        Whole { #[pin] body: Full<Bytes> },
        File { #[pin] body: F },
        Tokens { #[pin] body: Tokens },
        Events { #[pin] body: Events },
    }
}

impl<F> Reply<F> {
    pub(crate) fn of(self, content_type: &'static str) -> Response<Self> {
        let mut response = Response::new(self);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    }
}

impl<F: Body<Data = Bytes, Error = io::Error>> Body for Reply<F> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.project() {
            ReplyProjection::Whole { body } => body.poll_frame(cx).map_err(|never| match never {}),
            ReplyProjection::File { body } => body.poll_frame(cx),
            ReplyProjection::Tokens { body } => body.poll_frame(cx).map_err(|never| match never {}),
            ReplyProjection::Events { body } => body.poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole { body } => body.is_end_stream(),
            Self::File { body } => body.is_end_stream(),
            Self::Tokens { body } => body.is_end_stream(),
            Self::Events { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole { body } => body.size_hint(),
            Self::File { body } => body.size_hint(),
            Self::Tokens { body } => body.size_hint(),
            Self::Events { body } => body.size_hint(),
        }
    }
}
