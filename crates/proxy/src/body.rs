//! The body of an upstream's response.
//!
//! hyper reads the start of a body with a `Content-Length`. If enough bytes remain, the connection is then taken from
//! hyper, and the rest is read from the socket, or moved to the client's socket where the server can do that. For a
//! chunked body, the connection is taken from hyper before hyper has read any of the body.

use std::any::Any;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::chunked::{Chunked, SHORT};
use super::fields::clean_trailers;
use super::gate::RequestPlace;
use super::http1::Http1;
use super::pool::PoolReturn;
use super::stream::{Stream, inner};
use millstream::internal::Direct;
use millstream::internal::Moving;
use millstream::internal::Silence;
use millstream::internal::lease;

/// Minimum number of remaining body bytes for which the connection is taken from hyper.
const DIRECT_MIN: u64 = 16 << 10;
/// Maximum length of a frame that is read from the socket.
const READ_MAX: usize = 64 << 10;

pub(crate) struct ResponseBody {
    source: Source,
    /// Bytes of the body that have not been received yet, if the response has a `Content-Length`.
    left: Option<u64>,
    silence: Silence,
    /// The pool to which the connection may return.
    pool: Option<PoolReturn>,
    /// Whether the connection may be taken from hyper once hyper holds no bytes of the request. True if the connection
    /// is a plain socket and the request has no body: an upload may continue during the response.
    may_take: bool,
    /// A frame of hyper, taken by [`Direct::prepare_move`], or trailers.
    peeked: Option<Peeked>,
    /// The place of the request, up to the end of its response.
    place: Option<RequestPlace>,
    /// The place of a response with a wide window.
    window: Option<RequestPlace>,
}

type Peeked = Option<io::Result<Frame<Bytes>>>;

enum Source {
    Ended,
    /// A text written by the proxy.
    Text(Bytes),
    Spawned(Incoming),
    Http1(Http1, Incoming),
    /// The connection, taken from hyper with the bytes that it had read.
    Socket(Box<Stream>, Bytes, Option<Box<Moving>>),
    Chunked(Box<Chunked>),
}

impl ResponseBody {
    fn new(source: Source, left: Option<u64>, silence: Duration) -> Self {
        let silence = Silence::new(silence);
        Self { source, left, silence, pool: None, may_take: false, peeked: None, place: None, window: None }
    }

    pub(crate) fn text(text: Bytes) -> Self {
        let left = Some(text.len() as u64);
        Self::new(Source::Text(text), left, Duration::MAX)
    }

    /// The body of a connection that a task of its own drives.
    pub(crate) fn spawned(body: Incoming, silence: Duration) -> Self {
        let left = body.size_hint().exact();
        Self::new(Source::Spawned(body), left, silence)
    }

    /// With a `pool`, the connection persists after the response.
    pub(crate) fn http1(
        connection: Http1,
        body: Incoming,
        silence: Duration,
        pool: Option<PoolReturn>,
        has_upload: bool,
    ) -> Self {
        let left = body.size_hint().exact();
        let may_take = connection.is_plain() && !has_upload;
        let mut this = Self { pool, may_take, ..Self::new(Source::Http1(connection, body), left, silence) };
        if left == Some(0) {
            this.end();
        }
        this
    }

    /// As [`http1`](Self::http1), for a connection at the start of a chunked body.
    pub(crate) fn chunked(chunked: Chunked, silence: Duration, pool: Option<PoolReturn>) -> Self {
        Self { pool, ..Self::new(Source::Chunked(Box::new(chunked)), None, silence) }
    }

    /// Keeps the place of the request until the body ends.
    pub(crate) fn hold(&mut self, place: RequestPlace) {
        self.place = Some(place).filter(|_| !matches!(self.source, Source::Ended));
    }

    /// Keeps the place of a wide window until the body ends, if this is an HTTP/2 body that is longer than a narrow
    /// window.
    pub(crate) fn hold_window(&mut self, wide: Option<RequestPlace>, narrow: u64) {
        let needs_it = matches!(self.source, Source::Spawned(_)) && self.left.is_none_or(|left| left > narrow);
        self.window = wide.filter(|_| needs_it);
    }

    /// Ends a complete body. Returns the connection to the pool, and then releases the place.
    fn end(&mut self) {
        let source = std::mem::replace(&mut self.source, Source::Ended);
        if let Some(back) = self.pool.take() {
            let connection = match source {
                Source::Http1(connection, _) => Some(connection),
                Source::Socket(mut stream, rest, _) => {
                    stream.unread(&rest);
                    back.pool.begin(*stream)
                }
                Source::Chunked(chunked) => back.pool.begin(chunked.into_stream()),
                Source::Ended | Source::Text(_) | Source::Spawned(_) => None,
            };
            if let Some(connection) = connection {
                back.put(connection);
            }
        }
        (self.place, self.window) = (None, None);
    }

    fn fail(&mut self, error: io::Error) -> io::Error {
        self.source = Source::Ended;
        self.pool = None;
        (self.place, self.window) = (None, None);
        error
    }

    /// Returns whether the connection can be taken from hyper and enough of the body remains.
    fn is_to_take(&self) -> bool {
        let is_settled = match &self.source {
            Source::Http1(connection, _) => connection.is_settled(),
            _ => true,
        };
        self.left.is_some_and(|left| left >= DIRECT_MIN) && self.may_take && is_settled
    }

    /// Takes the connection from hyper if it holds no frame.
    fn take(&mut self) {
        let Source::Http1(connection, body) = std::mem::replace(&mut self.source, Source::Ended) else { return };
        // hyper would report the end of the connection as an error of the body.
        drop(body);
        if let Some((stream, rest)) = connection.into_stream() {
            self.source = Source::Socket(Box::new(stream), rest, None);
        }
    }

    fn passed(&mut self, bytes: usize) {
        self.silence.end();
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes as u64);
        }
    }

    /// Returns the next frame that hyper has, without reading.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(frame) = self.peeked.take() {
            return Poll::Ready(frame);
        }
        let frame = match &mut self.source {
            Source::Ended => return Poll::Ready(None),
            Source::Text(text) => Some(Ok(Frame::data(std::mem::take(text)))),
            Source::Spawned(body) => ready!(Pin::new(body).poll_frame(cx)),
            Source::Http1(_, body) => match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending if self.is_to_take() => {
                    self.take();
                    return self.poll_socket(cx);
                }
                Poll::Pending => {
                    let Source::Http1(connection, body) = &mut self.source else { return Poll::Pending };
                    connection.poll(cx);
                    ready!(Pin::new(body).poll_frame(cx))
                }
            },
            Source::Socket(..) => return self.poll_socket(cx),
            Source::Chunked(_) => return self.poll_chunked(cx),
        };
        Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)))
    }

    fn poll_socket(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let (Source::Socket(stream, rest, _), Some(left)) = (&mut self.source, self.left) else {
            return Poll::Ready(None);
        };
        if !rest.is_empty() {
            let len = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
            return Poll::Ready(Some(Ok(Frame::data(rest.split_to(len)))));
        }
        let max = usize::try_from(left).map_or(READ_MAX, |left| left.min(READ_MAX));
        let mut lease = lease(max);
        let read = inner!(&mut **stream, stream => lease.poll_read(cx, Pin::new(stream), max));
        ready!(read)?;
        if lease.is_empty() {
            return Poll::Ready(Some(Err(cut(left))));
        }
        let data = if lease.len() < SHORT { Bytes::copy_from_slice(lease.as_ref()) } else { lease.freeze() };
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn poll_chunked(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Source::Chunked(chunked) = &mut self.source else { return Poll::Ready(None) };
        let data = ready!(chunked.poll_data(cx))?;
        let frame = if data.is_empty() { None } else { Some(Ok(Frame::data(data))) };
        if !chunked.has_ended() {
            return Poll::Ready(frame);
        }
        let trailers = chunked.trailers()?.map(|trailers| Ok(Frame::trailers(trailers)));
        if frame.is_some() && trailers.is_some() {
            self.peeked = Some(trailers);
            return Poll::Ready(frame);
        }
        self.end();
        Poll::Ready(frame.or(trailers))
    }

    /// Ready if the upstream has sent nothing for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        ready!(self.silence.poll(cx));
        Poll::Ready(self.fail(io::Error::new(io::ErrorKind::TimedOut, "the upstream sends no more of the response")))
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Poll::Ready(frame) = self.poll_source(cx) else {
            return self.poll_silence(cx).map(|error| Some(Err(error)));
        };
        let mut frame = frame.map(|frame| frame.map_err(|error| self.fail(error)));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            clean_trailers(trailers);
        }
        match &frame {
            Some(Ok(frame)) => {
                self.passed(frame.data_ref().map_or(0, Bytes::len));
                let has_ended = match &self.source {
                    // The end of an HTTP/2 stream may come after the last byte: with trailers, or in a separate frame.
                    Source::Spawned(body) => body.is_end_stream(),
                    // A reader of the body stops at trailers.
                    _ => self.left == Some(0) || frame.is_trailers(),
                };
                if has_ended {
                    self.end();
                }
            }
            Some(Err(_)) => {}
            None => self.end(),
        }
        Poll::Ready(frame)
    }
}

fn cut(left: u64) -> io::Error {
    let text = format!("the upstream ended {left} bytes before the end of the response");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        ResponseBody::poll_frame(&mut self, cx)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Ended => true,
            Source::Text(text) => text.is_empty(),
            Source::Spawned(body) | Source::Http1(_, body) => body.is_end_stream(),
            Source::Socket(..) | Source::Chunked(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            // The server takes over only bodies without an exact length. The response has a `Content-Length`.
            Some(left) if !self.is_to_take() => SizeHint::with_exact(left),
            _ => SizeHint::default(),
        }
    }
}

impl Direct for ResponseBody {
    fn prepare_move(&mut self, cx: &mut Context<'_>, due: u64) -> bool {
        if self.peeked.is_none()
            && self.is_to_take()
            && let Source::Http1(_, body) = &mut self.source
        {
            // Frames that hyper has are given first.
            match Pin::new(body).poll_frame(cx) {
                Poll::Ready(frame) => self.peeked = Some(frame.map(|frame| frame.map_err(io::Error::other))),
                Poll::Pending => self.take(),
            }
        }
        self.left == Some(due) && matches!(&self.source, Source::Socket(_, rest, _) if rest.is_empty())
    }

    fn poll_move(&mut self, cx: &mut Context<'_>, to: &mut dyn Any) -> Poll<io::Result<()>> {
        let (Source::Socket(stream, _, moving), Some(left)) = (&mut self.source, self.left) else {
            return Poll::Ready(Ok(()));
        };
        let moving = moving.get_or_insert_with(|| Box::new(Moving::new(left)));
        let before = moving.written();
        let moved = inner!(&mut **stream, stream => moving.poll(cx, stream, to));
        let written = moving.written();
        if written > before || moving.has_pending() {
            self.silence.end();
        }
        let Poll::Ready(moved) = moved else {
            if moving.has_pending() {
                return Poll::Pending;
            }
            return self.poll_silence(cx).map(Err);
        };
        if let Err(error) = moved {
            return Poll::Ready(Err(self.fail(error.into())));
        }
        self.left = Some(left - written);
        Poll::Ready(match left - written {
            0 => {
                self.end();
                Ok(())
            }
            left => Err(self.fail(cut(left))),
        })
    }
}
