//! How the bodies of HTTP/1 responses are delimited. Follows the rules of hyper for the heads of request and response.

use std::io;

use bytes::{Bytes, BytesMut};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
    HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
};
use http::{Method, Request, Response, StatusCode, Version};

use super::body_error::BoxError;

/// What the head of an HTTP/1 request determines about the framing of its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    is_1_0: bool,
    keep_alive: bool,
    trailers: bool,
}

impl Exchange {
    /// Returns `None` if the response has no body, if it may make the connection a tunnel, or after a chunked request:
    /// hyper closes the connection if it had a `Content-Length` as well, and hides that field. With an `Upgrade` field
    /// the status of the response decides.
    pub(super) fn of<B>(request: &Request<B>) -> Option<Self> {
        let fields = request.headers();
        if fields.contains_key(TRANSFER_ENCODING) || matches!(*request.method(), Method::HEAD | Method::CONNECT) {
            return None;
        }
        let is_1_0 = request.version() == Version::HTTP_10;
        let keep_alive = !is_1_0 && !lists(fields, &CONNECTION, "close");
        Some(Self { is_1_0, keep_alive, trailers: lists(fields, &TE, "trailers") })
    }

    /// Returns the framing of `response`, whose body has an unknown length, and whether the connection persists.
    pub(super) fn framing<B>(self, response: &Response<B>) -> Option<(Framing, bool)> {
        let fields = response.headers();
        let is_certain = response.version() == Version::HTTP_11
            && !fields.contains_key(TRANSFER_ENCODING)
            && !response.status().is_informational()
            && !matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let keep_alive = self.keep_alive && !lists(fields, &CONNECTION, "close");
        let mut lengths = fields.get_all(CONTENT_LENGTH).iter();
        let framing = match (lengths.next(), lengths.next()) {
            // Whether the connection persists depends on more than these fields.
            (Some(_), _) if self.is_1_0 => return None,
            (Some(length), None) => Framing::Length(length.to_str().ok()?.parse().ok()?),
            (Some(_), Some(_)) => return None,
            (None, _) if self.is_1_0 => Framing::Close,
            (None, _) if self.trailers => Framing::Chunked(names(fields)),
            (None, _) => Framing::Chunked(Vec::new()),
        };
        let persists = keep_alive && !matches!(framing, Framing::Close);
        is_certain.then_some((framing, persists))
    }
}

/// Returns whether the response is a stream of server-sent events, which clients may leave at any time.
pub(crate) fn is_events(fields: &HeaderMap) -> bool {
    let kind = fields.get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    kind.and_then(|kind| kind.get(..17)).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"))
}

fn tokens(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim)
}

fn lists(fields: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    fields.get_all(name).iter().flat_map(tokens).any(|listed| listed.eq_ignore_ascii_case(token))
}

/// Returns the trailer fields that the response announces.
fn names(fields: &HeaderMap) -> Vec<HeaderName> {
    fields.get_all(TRAILER).iter().flat_map(tokens).filter_map(|name| name.parse().ok()).collect()
}

/// How the length of a body is told (RFC 9112 §6).
#[derive(Debug)]
pub(super) enum Framing {
    /// With the trailer fields that may be sent.
    Chunked(Vec<HeaderName>),
    /// Bytes that are still due.
    Length(u64),
    /// By the end of the connection.
    Close,
}

impl Framing {
    /// Returns the bytes that end the message.
    pub(super) fn end(&self) -> Result<Bytes, BoxError> {
        match self {
            Self::Chunked(_) => Ok(Bytes::from_static(b"0\r\n\r\n")),
            Self::Length(0) | Self::Close => Ok(Bytes::new()),
            Self::Length(due) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the response body ended {due} bytes before its Content-Length"),
            )
            .into()),
        }
    }

    /// As [`end`](Self::end), with the trailer fields that were announced and are allowed (RFC 9110 §6.5.1).
    pub(super) fn end_with(&self, trailers: HeaderMap) -> Result<Bytes, BoxError> {
        let Self::Chunked(announced) = self else { return self.end() };
        let mut end = BytesMut::from(&b"0\r\n"[..]);
        let mut name = None;
        for (next, value) in trailers {
            name = next.or(name);
            let Some(name) = name.as_ref().filter(|name| announced.contains(name) && may_trail(name)) else { continue };
            end.extend_from_slice(name.as_str().as_bytes());
            end.extend_from_slice(b": ");
            end.extend_from_slice(value.as_bytes());
            end.extend_from_slice(b"\r\n");
        }
        end.extend_from_slice(b"\r\n");
        Ok(end.freeze())
    }
}

fn may_trail(name: &HeaderName) -> bool {
    ![
        AUTHORIZATION,
        CACHE_CONTROL,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        HOST,
        MAX_FORWARDS,
        SET_COOKIE,
        TRAILER,
        TRANSFER_ENCODING,
        TE,
    ]
    .contains(name)
}
