//! Bodies of HTTP/1 responses that the server drives itself, once the head is written and the body is pending.
//!
//! hyper has nothing to add to such a body but its framing, and keeps several kilobytes and a dispatcher for it. So the
//! body offers itself when it is pending, and the connection takes it from hyper together with the socket. The framing
//! is hyper's: [`Exchange`] and [`Framing`] follow its rules for the two heads, and a response for which they are not
//! certain stays with hyper.

use std::any::Any;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::buf::Take;
use bytes::{Buf, Bytes, BytesMut};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
    HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame};
use hyper::rt;

use super::body_error::BoxError;
use super::conn_state::Open;
use super::lock::lock;
use crate::net::TakeOver;
#[cfg(feature = "sse")]
use crate::sse::{Attach, EventBody};

/// Slices of a frame that are offered in one call.
const SLICES: usize = 16;

/// What the head of an HTTP/1 request determines about the framing of its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    is_1_0: bool,
    keep_alive: bool,
    trailers: bool,
}

impl Exchange {
    /// Returns `None` if the response has no body, if the connection may become a tunnel, or after a chunked request:
    /// hyper closes the connection if it had a `Content-Length` as well, and hides that field.
    pub(super) fn of<B>(request: &Request<B>) -> Option<Self> {
        let fields = request.headers();
        let stays = [UPGRADE, TRANSFER_ENCODING].iter().any(|name| fields.contains_key(name));
        if stays || matches!(*request.method(), Method::HEAD | Method::CONNECT) {
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
            (None, _) => Framing::Chunked(self.trailers.then(|| names(fields)).unwrap_or_default()),
        };
        let persists = keep_alive && !matches!(framing, Framing::Close);
        is_certain.then_some((framing, persists))
    }
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
    fn end(&self) -> Result<Bytes, BoxError> {
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
    fn end_with(&self, trailers: HeaderMap) -> Result<Bytes, BoxError> {
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

/// A body of unknown length. hyper drives it until it is taken over.
pub(super) struct Streamed<B: Body> {
    /// Boxed, because it moves from hyper to the connection. `None` after its end.
    body: Option<Pin<Box<B>>>,
    /// The request, open until all bytes are accepted.
    pub(super) open: Option<Open>,
    framing: Framing,
    keep_alive: bool,
    piece: Option<Piece<B::Data>>,
    ended: bool,
    /// Whether the body writes to the stream itself, and need not be polled.
    #[cfg(feature = "sse")]
    is_attached: bool,
}

/// A stream that a body is written to.
pub(super) trait Output: rt::Write + TakeOver + Unpin {}

impl<I: rt::Write + TakeOver + Unpin> Output for I {}

/// A body that was taken over.
pub(super) trait Driven: Any + Send {
    /// Writes the frames of the body to `io`. Ready once all bytes of the message are accepted.
    fn poll_drive(&mut self, cx: &mut Context<'_>, io: &mut dyn Output) -> Poll<Result<(), BoxError>>;

    /// Returns whether the connection may carry another response after this one.
    fn keeps_alive(&self) -> bool;
}

impl<B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static> Streamed<B> {
    pub(super) fn new(body: B, open: Open, framing: Framing, keep_alive: bool) -> Self {
        Self {
            body: Some(Box::pin(body)),
            open: Some(open),
            framing,
            keep_alive,
            piece: None,
            ended: false,
            #[cfg(feature = "sse")]
            is_attached: false,
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.body.as_mut().map_or(Poll::Ready(None), |body| body.as_mut().poll_frame(cx))
    }

    /// Polls the body for hyper, which frames it.
    pub(super) fn poll_for_hyper(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(self.poll_frame(cx));
        if let (Framing::Length(due), Some(Ok(frame))) = (&mut self.framing, &frame) {
            let len = frame.data_ref().map_or(0, Buf::remaining);
            *due = due.saturating_sub(len as u64);
        }
        Poll::Ready(frame)
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    /// Frames the next frame of the body, or the end of the message.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece<B::Data>>, BoxError>> {
        loop {
            let Some(frame) = ready!(self.poll_frame(cx)) else {
                self.ended = true;
                return Poll::Ready(self.framing.end().map(|end| Some(Piece::end(end))));
            };
            let data = match frame.map_err(Into::into)?.into_data() {
                Ok(data) => data,
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) => {
                        self.ended = true;
                        return Poll::Ready(self.framing.end_with(trailers).map(|end| Some(Piece::end(end))));
                    }
                    Err(_) => continue,
                },
            };
            let is_last = self.is_end_stream();
            if data.has_remaining() {
                return Poll::Ready(Ok(self.frame(data, is_last)));
            }
            if is_last {
                self.ended = true;
                return Poll::Ready(self.framing.end().map(|end| Some(Piece::end(end))));
            }
        }
    }

    fn frame(&mut self, data: B::Data, is_last: bool) -> Option<Piece<B::Data>> {
        let len = data.remaining();
        let piece = match &mut self.framing {
            Framing::Chunked(_) => {
                let after: &[u8] = if is_last { b"\r\n0\r\n\r\n" } else { b"\r\n" };
                Piece { line: Line::of(len), data: Some(data.take(len)), after: Bytes::from_static(after) }
            }
            Framing::Length(due) => {
                let len = usize::try_from(*due).unwrap_or(usize::MAX).min(len);
                *due -= len as u64;
                // Bytes beyond the promised length are dropped. A body that ends early ends the connection.
                self.ended = *due == 0;
                self.keep_alive &= *due == 0 || !is_last;
                Piece { line: Line::default(), data: Some(data.take(len)), after: Bytes::new() }
            }
            Framing::Close => Piece { line: Line::default(), data: Some(data.take(len)), after: Bytes::new() },
        };
        self.ended |= is_last;
        Some(piece)
    }
}

/// A body of events is written by its hub, to all readers of the hub in one pass.
#[cfg(feature = "sse")]
impl<B: Body + 'static> Streamed<B> {
    fn events(&mut self) -> Option<&mut EventBody> {
        let body: &mut dyn Any = &mut self.body;
        body.downcast_mut::<Option<Pin<Box<EventBody>>>>()?.as_deref_mut()
    }

    fn attach(&mut self, cx: &Context<'_>, io: &dyn Output) -> Attach {
        let chunked = matches!(self.framing, Framing::Chunked(_));
        if matches!(self.framing, Framing::Length(_)) {
            return Attach::Waits;
        }
        let attach = match (self.events(), io.outlet()) {
            (Some(events), Some(outlet)) => events.attach(outlet, chunked, cx),
            _ => Attach::Waits,
        };
        self.is_attached = attach == Attach::Attached;
        attach
    }

    /// Ready when the body must be polled.
    fn poll_detached(&mut self) -> Poll<()> {
        if self.is_attached {
            ready!(self.events().map_or(Poll::Ready(()), EventBody::poll_returned));
            self.is_attached = false;
        }
        Poll::Ready(())
    }
}

impl<B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static> Driven for Streamed<B> {
    fn poll_drive(&mut self, cx: &mut Context<'_>, io: &mut dyn Output) -> Poll<Result<(), BoxError>> {
        loop {
            #[cfg(feature = "sse")]
            ready!(self.poll_detached());
            if self.ended {
                self.body = None;
            }
            while let Some(piece) = self.piece.as_mut().filter(|piece| !piece.is_written()) {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let used = piece.fill(&mut slices);
                match ready!(Pin::new(&mut *io).poll_write_vectored(cx, &slices[..used]))? {
                    0 => return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into())),
                    n => piece.advance(n),
                }
            }
            self.piece = None;
            if self.ended {
                return Pin::new(&mut *io).poll_flush(cx).map_err(Into::into);
            }
            match self.poll_piece(cx) {
                Poll::Ready(Ok(piece)) => self.piece = piece,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    let _ = Pin::new(&mut *io).poll_flush(cx)?;
                    #[cfg(feature = "sse")]
                    if self.attach(cx, io) == Attach::News {
                        continue;
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn keeps_alive(&self) -> bool {
        self.keep_alive
    }
}

/// Where a pending body waits for its connection to take it over. Only the task of the connection uses it.
#[derive(Default)]
pub(super) struct Handover {
    enabled: AtomicBool,
    /// Set by the stream when hyper flushes it, which hyper does only when it holds no unwritten bytes.
    flushed: Arc<AtomicBool>,
    is_offered: AtomicBool,
    body: Mutex<Option<Box<dyn Driven>>>,
}

impl Handover {
    /// Enables takeover of the responses on `stream`, unless the stream wants each message as one slice.
    pub(super) fn enable(&self, stream: &mut (impl rt::Write + TakeOver)) {
        if stream.is_write_vectored() {
            stream.track_flush(Arc::clone(&self.flushed));
            self.enabled.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Records that hyper has a head or a frame that it has not written.
    pub(super) fn holds_bytes(&self) {
        self.flushed.store(false, Ordering::Relaxed);
    }

    /// Returns whether hyper has flushed since, so that it holds nothing.
    pub(super) fn is_flushed(&self) -> bool {
        self.flushed.load(Ordering::Relaxed)
    }

    /// Offers a pending body.
    pub(super) fn offer(&self, body: Box<dyn Driven>) {
        *lock(&self.body) = Some(body);
        self.is_offered.store(true, Ordering::Relaxed);
    }

    /// Returns the offered body to hyper.
    pub(super) fn take_back<T: Driven>(&self) -> Option<Box<T>> {
        self.is_offered.store(false, Ordering::Relaxed);
        let body: Box<dyn Any> = lock(&self.body).take()?;
        body.downcast().ok()
    }

    /// Returns the offered body once the stream has accepted all bytes that hyper has framed.
    pub(super) fn take_over(&self) -> Option<Box<dyn Driven>> {
        let is_ready = self.is_offered.load(Ordering::Relaxed) && self.is_flushed();
        if is_ready { self.withdraw() } else { None }
    }

    /// Returns the offered body because hyper, which would have polled it, is gone.
    pub(super) fn withdraw(&self) -> Option<Box<dyn Driven>> {
        self.is_offered.store(false, Ordering::Relaxed);
        lock(&self.body).take()
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("enabled", &self.enabled).field("is_offered", &self.is_offered).finish()
    }
}

/// A frame with its framing, partly written.
struct Piece<D> {
    line: Line,
    data: Option<Take<D>>,
    after: Bytes,
}

/// The line before a chunk: its size in hexadecimal digits (RFC 9112 §7.1).
#[derive(Default)]
struct Line {
    /// Filled from its end.
    text: [u8; Self::MAX],
    at: u8,
    end: u8,
}

impl Line {
    const MAX: usize = usize::BITS as usize / 4 + 2;

    fn of(mut len: usize) -> Self {
        let mut line = Self { text: [0; Self::MAX], at: Self::MAX as u8 - 2, end: Self::MAX as u8 };
        line.text[Self::MAX - 2..].copy_from_slice(b"\r\n");
        while len > 0 {
            line.at -= 1;
            line.text[usize::from(line.at)] = b"0123456789ABCDEF"[len % 16];
            len /= 16;
        }
        line
    }

    fn bytes(&self) -> &[u8] {
        &self.text[usize::from(self.at)..usize::from(self.end)]
    }
}

impl<D: Buf> Piece<D> {
    fn end(after: Bytes) -> Self {
        Self { line: Line::default(), data: None, after }
    }

    /// Fills `slices` with what is left to write, from its start.
    fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES]) -> usize {
        let mut used = 0;
        if !self.line.bytes().is_empty() {
            slices[used] = IoSlice::new(self.line.bytes());
            used += 1;
        }
        if let Some(data) = self.data.as_ref().filter(|data| data.has_remaining()) {
            let from = used;
            used += data.chunks_vectored(&mut slices[used..SLICES - 1]);
            let filled: usize = slices[from..used].iter().map(|slice| slice.len()).sum();
            if filled < data.remaining() {
                return used;
            }
        }
        if !self.after.is_empty() {
            slices[used] = IoSlice::new(&self.after);
            used += 1;
        }
        used
    }

    fn is_written(&self) -> bool {
        let data = self.data.as_ref().is_none_or(|data| !data.has_remaining());
        data && self.line.bytes().is_empty() && self.after.is_empty()
    }

    fn advance(&mut self, mut n: usize) {
        let step = n.min(self.line.bytes().len());
        self.line.at += step as u8;
        n -= step;
        if let Some(data) = &mut self.data {
            let step = n.min(data.remaining());
            data.advance(step);
            n -= step;
        }
        self.after.advance(n);
    }
}
