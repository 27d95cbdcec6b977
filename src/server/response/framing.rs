//! How the bodies of HTTP/1 responses are delimited. Follows the rules of hyper for the heads of request and response.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
    HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
};
use http::{Response, StatusCode, Version};
use http_body::{Body, Frame};

use crate::body::attach::LayeredAttach;
use crate::server::error::BoxError;

/// The facts in the head of an HTTP/1 request that determine the framing of its response.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Exchange {
    pub(in crate::server) is_1_0: bool,
    pub(in crate::server) keep_alive: bool,
    pub(in crate::server) trailers: bool,
    pub(in crate::server) is_head: bool,
    pub(in crate::server) is_connect: bool,
    /// Whether the response stays with hyper, because the request was chunked: hyper closes the connection if it had a
    /// `Content-Length` as well, and hides that field.
    pub(in crate::server) stays: bool,
}

impl Exchange {
    /// Returns whether hyper adds no bytes to the frames of the body. `is_long`: their length is unknown.
    pub(super) fn is_plain<B>(self, response: &Response<B>, is_long: bool) -> bool {
        !self.is_connect
            && !response.headers().contains_key(TRANSFER_ENCODING)
            && !response.status().is_informational()
            && (!is_long || self.is_head || has_no_body(response.status()))
    }

    /// Returns the framing of `response`, whose body has an unknown length, and whether the connection persists.
    pub(in crate::server) fn framing<B>(self, response: &Response<B>) -> Option<(Framing, bool)> {
        let fields = response.headers();
        let is_certain = !self.is_head
            && !self.is_connect
            && response.version() == Version::HTTP_11
            && !fields.contains_key(TRANSFER_ENCODING)
            && !response.status().is_informational()
            && !has_no_body(response.status());
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

fn has_no_body(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Returns whether the response is a stream of server-sent events, which clients may leave at any time.
pub fn is_events(fields: &HeaderMap) -> bool {
    let kind = fields.get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    kind.and_then(|kind| kind.get(..17)).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"))
}

/// Returns whether the response is an event stream as bytes, and not of another coding.
pub fn is_plain_events<B>(response: &Response<B>) -> bool {
    let codings = response.headers().get_all(CONTENT_ENCODING);
    response.status() == StatusCode::OK
        && is_events(response.headers())
        && codings.iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Returns whether comments may be added to the response, which is not one to `HEAD`.
pub fn takes_comments<B: Body>(response: &Response<B>) -> bool {
    let body = response.body();
    is_plain_events(response)
        && !response.headers().contains_key(CONTENT_LENGTH)
        && !body.is_end_stream()
        && body.size_hint().exact().is_none()
        // The hub would no longer write to the connection itself after a comment of another.
        && response.extensions().get::<LayeredAttach>().is_none()
}

/// Returns the elements of a comma-separated list.
pub(in crate::server) fn tokens(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim)
}

fn lists(fields: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    fields.get_all(name).iter().flat_map(tokens).any(|listed| listed.eq_ignore_ascii_case(token))
}

/// Returns the trailer fields that the response announces.
fn names(fields: &HeaderMap) -> Vec<HeaderName> {
    fields.get_all(TRAILER).iter().flat_map(tokens).filter_map(|name| name.parse().ok()).collect()
}

/// The end of a chunked body without trailers.
const END: &[u8] = b"0\r\n\r\n";

/// Returns the length of the line before a chunk of `len` bytes (RFC 9112 §7.1).
fn line_len(len: usize) -> usize {
    (usize::BITS - len.leading_zeros()).div_ceil(4) as usize + 2
}

/// How the length of a body is told (RFC 9112 §6).
#[derive(Debug)]
#[non_exhaustive]
pub enum Framing {
    /// With the trailer fields that may be sent.
    Chunked(Vec<HeaderName>),
    /// Bytes that are still due.
    Length(u64),
    /// By the end of the connection.
    Close,
}

impl Framing {
    /// Returns the framing by which hyper sends the body of a request with these fields.
    pub fn of_request(fields: &HeaderMap, length: Option<u64>) -> Self {
        length.map_or_else(|| Self::Chunked(names(fields)), Self::Length)
    }

    /// Records that hyper was given a frame, or the end of the body. Returns with how many bytes hyper writes it.
    pub fn pass<D: Buf>(&mut self, frame: Option<&Frame<D>>, is_last: bool) -> u64 {
        let len = |end: Result<Bytes, BoxError>| end.map_or(0, |end| end.len() as u64);
        match frame.map(|frame| (frame.data_ref(), frame.trailers_ref())) {
            None => len(self.end()),
            Some((Some(data), _)) => self.pass_data(data.remaining(), is_last),
            Some((None, Some(trailers))) => len(self.end_with(trailers)),
            Some((None, None)) => 0,
        }
    }

    fn pass_data(&mut self, len: usize, is_last: bool) -> u64 {
        match self {
            Self::Chunked(_) => {
                let chunk = if len > 0 { line_len(len) + len + 2 } else { 0 };
                (chunk + if is_last { END.len() } else { 0 }) as u64
            }
            Self::Length(due) => {
                let passed = (*due).min(len as u64);
                *due -= passed;
                passed
            }
            Self::Close => len as u64,
        }
    }

    /// Returns the bytes that end the message.
    pub(in crate::server) fn end(&self) -> Result<Bytes, BoxError> {
        match self {
            Self::Chunked(_) => Ok(Bytes::from_static(END)),
            Self::Length(0) | Self::Close => Ok(Bytes::new()),
            Self::Length(due) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the response body ended {due} bytes before its Content-Length"),
            )
            .into()),
        }
    }

    /// As [`end`](Self::end), with the trailer fields that were announced and are allowed (RFC 9110 §6.5.1).
    pub(super) fn end_with(&self, trailers: &HeaderMap) -> Result<Bytes, BoxError> {
        let Self::Chunked(announced) = self else { return self.end() };
        let mut end = BytesMut::from(&b"0\r\n"[..]);
        for (name, value) in trailers {
            if !announced.contains(name) || !may_trail(name) {
                continue;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_length_with_which_hyper_writes_them() {
        let mut chunked = Framing::Chunked(Vec::new());
        for len in [1, 9, 10, 15, 16, 255, 256, 4095, 4096, 65_535, 65_536] {
            assert_eq!(chunked.pass_data(len, false), format!("{len:X}\r\n\r\n").len() as u64 + len as u64);
        }
        assert_eq!(chunked.pass_data(0, false), 0, "hyper drops it");
        assert_eq!(chunked.pass_data(1, true), "1\r\na\r\n0\r\n\r\n".len() as u64);
        assert_eq!(chunked.pass_data(0, true), "0\r\n\r\n".len() as u64);

        let mut length = Framing::Length(5);
        assert_eq!(
            (length.pass_data(3, false), length.pass_data(3, true)),
            (3, 2),
            "bytes beyond the length are dropped"
        );
        assert_eq!(Framing::Close.pass_data(3, true), 3);
    }
}
