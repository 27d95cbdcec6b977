//! Bodies of HTTP/1 responses that the server drives itself, once the head is written and the body is pending.
//!
//! hyper has nothing to add to such a body but its framing, and keeps several kilobytes and a dispatcher for it. So the
//! body offers itself when it is pending, and the connection takes it from hyper together with the socket. The framing
//! is hyper's; a response for which it is not certain stays with hyper.

use std::any::Any;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::buf::Take;
use bytes::{Buf, Bytes};
use http_body::{Body, Frame};

use super::framing::Framing;
use crate::body::attach::{Attach, AttachOutcome, LayeredAttach};
use crate::body::direct::{Direct, DirectBody};
use crate::body::event_body::EventBody;
use crate::body::moved::MovedFraming;
use crate::body::{MovedBody, ResumedBody};
use crate::server::error::BoxError;
use crate::server::state::{ConnState, Driven, Open, Output};
use crate::sync::{Mutex, lock};

/// Slices of a frame that are offered in one call.
const SLICES: usize = 16;

/// The next frame of a body; `None` at its end.
type NextFrame<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

/// A body of unknown length. hyper drives it until it is taken over.
pub(in crate::server) struct Streamed<B: Body> {
    /// Boxed, because it moves from hyper to the connection. `None` after its end.
    body: Option<Pin<Box<B>>>,
    /// A body inside this one that another task can write.
    layered: Option<Arc<Mutex<dyn Attach>>>,
    /// Whether another task writes, so that the body need not be polled.
    is_attached: bool,
    /// The request, open until all bytes are accepted.
    pub(in crate::server) open: Option<Open>,
    framing: Framing,
    keep_alive: bool,
    /// Whether it is not taken over.
    pub(super) stays: bool,
    /// The rest of a frame that the stream has not accepted. Few streams ever have one.
    piece: Option<Box<Piece<B::Data>>>,
    /// Whether hyper was given the last frame.
    gave_last: bool,
    ended: bool,
}

impl<B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static> Streamed<B> {
    pub(in crate::server) fn new(
        body: B,
        layered: Option<LayeredAttach>,
        open: Open,
        framing: Framing,
        keep_alive: bool,
        stays: bool,
    ) -> Self {
        Self {
            body: Some(Box::pin(body)),
            layered: layered.map(|layered| layered.body),
            is_attached: false,
            open: Some(open),
            framing,
            keep_alive,
            stays,
            piece: None,
            gave_last: false,
            ended: false,
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame<B>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(body.as_mut().poll_frame(cx));
        if let (Some(Err(_)), Some(open)) = (&frame, &self.open) {
            open.failed();
        }
        if let (Some(layered), Some(Ok(frame))) = (&self.layered, &frame)
            && let Some(data) = frame.data_ref()
        {
            // Such a body gives one slice; data in several is not passed on unchanged.
            lock(layered).passed(data.chunk());
        }
        Poll::Ready(frame)
    }

    /// Polls the body for hyper, which frames it. Also returns with how many bytes hyper writes the frame or the end.
    pub(super) fn poll_for_hyper(&mut self, cx: &mut Context<'_>) -> Poll<(NextFrame<B>, u64)> {
        let frame = ready!(self.poll_frame(cx));
        // The body may end at any time, so it is asked once: hyper must find the end that was counted.
        self.gave_last = frame.is_none() || self.is_end_stream();
        let written = match &frame {
            Some(Err(_)) => 0,
            Some(Ok(frame)) => self.framing.pass(Some(frame), self.gave_last),
            None => self.framing.pass::<B::Data>(None, self.gave_last),
        };
        Poll::Ready((frame, written))
    }

    /// Returns whether hyper was given the last frame.
    pub(super) fn gave_last(&self) -> bool {
        self.gave_last
    }

    fn is_end_stream(&self) -> bool {
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
                        return Poll::Ready(self.framing.end_with(&trailers).map(|end| Some(Piece::end(end))));
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

/// Bodies that offer more than frames: a hub writes its events to all readers in one pass, and bytes in a socket are
/// moved to the client's socket.
impl<B: Body + 'static> Streamed<B> {
    fn body_as<T: Unpin + 'static>(&mut self) -> Option<&mut T> {
        let body: &mut dyn Any = &mut self.body;
        body.downcast_mut::<Option<Pin<Box<T>>>>()?.as_deref_mut()
    }

    /// Calls `call` with the body that another task can write: this one, or one inside of it.
    fn with_attach<T>(&mut self, call: impl FnOnce(&mut dyn Attach) -> T) -> Option<T> {
        if let Some(events) = self.body_as::<EventBody>() {
            return Some(call(events.attach()));
        }
        self.layered.as_ref().map(|layered| call(&mut *lock(layered)))
    }

    fn attach(&mut self, cx: &Context<'_>, io: &dyn Output) -> AttachOutcome {
        let chunked = matches!(self.framing, Framing::Chunked(_));
        let Some(outlet) = io.outlet().filter(|_| !matches!(self.framing, Framing::Length(_))) else {
            return AttachOutcome::Waits;
        };
        let outcome = self.with_attach(|body| body.attach(outlet, chunked, cx)).unwrap_or(AttachOutcome::Waits);
        if outcome == AttachOutcome::Refused {
            self.layered = None;
        }
        self.is_attached = outcome == AttachOutcome::Attached;
        outcome
    }

    /// Ready when the body must be polled.
    fn poll_returned(&mut self) -> Poll<()> {
        if self.is_attached {
            ready!(self.with_attach(|body| body.poll_returned()).unwrap_or(Poll::Ready(())));
            self.is_attached = false;
        }
        Poll::Ready(())
    }

    fn direct(&mut self) -> Option<&mut dyn Direct> {
        self.body_as().map(DirectBody::direct)
    }

    /// Polls the body whose bytes are in a socket. Returns whether the bytes that are due can be moved.
    pub(super) fn prepare_move(&mut self, cx: &mut Context<'_>) -> bool {
        let Framing::Length(due @ 1..) = self.framing else { return false };
        self.direct().is_some_and(|direct| direct.prepare_move(cx, due))
    }

    /// Moves the bytes that are due, if they can be moved to `io`. All bytes before them were written.
    fn poll_move(&mut self, cx: &mut Context<'_>, io: &mut dyn Output) -> Poll<Result<(), BoxError>> {
        if self.prepare_move(cx)
            && let Some(socket) = io.as_socket()
            && let Some(direct) = self.direct()
        {
            ready!(direct.poll_move(cx, socket))?;
            self.framing = Framing::Length(0);
            self.ended = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl<B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static> Driven for Streamed<B> {
    fn poll_drive(&mut self, cx: &mut Context<'_>, io: &mut dyn Output) -> Poll<Result<(), BoxError>> {
        // Nothing is left while another task writes.
        let (mut has_news, mut piece) = (false, self.piece.take().map(|left| *left));
        loop {
            ready!(self.poll_returned());
            if self.ended {
                self.body = None;
            }
            while let Some(left) = piece.as_mut().filter(|piece| !piece.is_written()) {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let used = left.fill(&mut slices);
                match Pin::new(&mut *io).poll_write_vectored(cx, &slices[..used])? {
                    Poll::Pending => {
                        self.piece = piece.map(Box::new);
                        return Poll::Pending;
                    }
                    Poll::Ready(0) => return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into())),
                    Poll::Ready(n) => left.advance(n),
                }
            }
            piece = None;
            ready!(self.poll_move(cx, io))?;
            if self.ended {
                return Pin::new(&mut *io).poll_flush(cx).map_err(Into::into);
            }
            match self.poll_piece(cx) {
                Poll::Ready(Ok(next)) => {
                    piece = next;
                    has_news = false;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    let _ = Pin::new(&mut *io).poll_flush(cx)?;
                    if !has_news && self.attach(cx, io) == AttachOutcome::News {
                        // A layer may keep the news back until it wakes this task.
                        has_news = true;
                        continue;
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn leave(&mut self) -> Option<MovedBody> {
        let is_chunked = match self.framing {
            Framing::Chunked(_) => true,
            Framing::Close => false,
            Framing::Length(_) => return None,
        };
        if self.piece.is_some() || self.ended {
            return None;
        }
        let reader = self.with_attach(|body| body.leave())??;
        Some(MovedBody { reader, framing: MovedFraming { is_chunked, keeps_alive: self.keep_alive } })
    }

    fn keeps_alive(&self) -> bool {
        self.keep_alive
    }
}

/// Returns the body of a response that another process or server has begun.
pub(in crate::server) fn resumed(conn_state: &Arc<ConnState>, resumed: ResumedBody) -> Box<dyn Driven> {
    let ResumedBody { body, framing: MovedFraming { is_chunked, keeps_alive } } = resumed;
    let mut open = Open::begin(conn_state);
    if let Some(ending) = body.ending() {
        open.register_ending(ending);
    }
    conn_state.requests.set_events();
    let framing = if is_chunked { Framing::Chunked(Vec::new()) } else { Framing::Close };
    if !is_chunked {
        conn_state.requests.set_ends_by_close();
    }
    Box::new(Streamed::new(body, None, open, framing, keeps_alive, false))
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
