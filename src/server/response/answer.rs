//! Response bodies: the body of the service's response, or that of an answer of the server itself.

use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HeaderValue};
use http::{Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::framing::{Exchange, is_events};
use super::refusal::refusal;
use super::takeover::Streamed;
use crate::body::GracefulClose;
use crate::body::attach::LayeredAttach;
use crate::counters::{Counter, count};
use crate::server::error::BoxError;
use crate::server::limits::Pressure;
use crate::server::state::{ConnState, Open, Protocol, ShutdownPhase};

pin_project! {
    /// The body of a response, which records when it is finished.
    #[project = AnsweredProjection]
    pub(in crate::server) enum Answered<B>
    where
        B: Body,
    {
        // The server itself answers.
        Refused { body: Bytes, open: Open },
        // HTTP/2: the response has no content.
        Bare,
        // The open request moves into the last frame.
        Framed { #[pin] body: B, open: Option<Open> },
        // `None` while the body is offered to the connection.
        Streamed { body: Option<Box<Streamed<B>>>, conn_state: Arc<ConnState> },
    }
}

/// The bytes of a frame. Each frame of a service over HTTP/2, and the last one, also holds the open request: HTTP/2 finishes
/// with a body long before its frames are sent, because they may have to wait for windows.
#[derive(Debug)]
pub(in crate::server) enum Data<D> {
    OfService { data: D, open: Option<Open> },
    OfServer(Bytes),
}

impl<D: Buf> Buf for Data<D> {
    #[inline]
    fn remaining(&self) -> usize {
        match self {
            Self::OfService { data, .. } => data.remaining(),
            Self::OfServer(data) => data.remaining(),
        }
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        match self {
            Self::OfService { data, .. } => data.chunk(),
            Self::OfServer(data) => data,
        }
    }

    #[inline]
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        match self {
            Self::OfService { data, .. } => data.chunks_vectored(slices),
            Self::OfServer(data) => data.chunks_vectored(slices),
        }
    }

    #[inline]
    fn advance(&mut self, bytes: usize) {
        match self {
            Self::OfService { data, open } => {
                data.advance(bytes);
                passed(open.as_ref(), bytes);
            }
            Self::OfServer(data) => data.advance(bytes),
        }
    }

    #[inline]
    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        match self {
            Self::OfService { data, open } => {
                let bytes = data.copy_to_bytes(len);
                passed(open.as_ref(), len);
                bytes
            }
            Self::OfServer(data) => data.copy_to_bytes(len),
        }
    }
}

/// Records sent bytes: a frame may be long, and no further frame is requested from the response.
fn passed(open: Option<&Open>, bytes: usize) {
    if let Some(open) = open {
        open.passed(bytes);
    }
}

fn data_len<D: Buf>(frame: &Frame<D>) -> u64 {
    frame.data_ref().map_or(0, |data| data.remaining() as u64)
}

/// Returns a response of the service to a request of this version. With an `exchange`, its body may be taken over.
pub(in crate::server) fn answered<B>(
    mut response: Response<B>,
    mut open: Open,
    version: Version,
    exchange: Option<Exchange>,
) -> Response<Answered<B>>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    if open.conn_state().limits.pressure() >= Pressure::High {
        count(Counter::ClosedUnderPressure, 1);
        last(&mut response, &open);
    } else if open.conn_state().is_draining() && !open.conn_state().moves() {
        last(&mut response, &open);
    }
    if let Some(ending) = response.extensions().get::<GracefulClose>() {
        open.register_ending(ending.clone());
    }
    let is_long = !response.body().is_end_stream() && response.body().size_hint().exact().is_none();
    let is_1_0 = version == Version::HTTP_10 || response.version() == Version::HTTP_10;
    if is_long && is_1_0 && version != Version::HTTP_2 && !response.headers().contains_key(CONTENT_LENGTH) {
        open.conn_state().requests.set_ends_by_close();
    }
    if is_long && is_events(response.headers()) {
        open.conn_state().requests.set_events();
    }
    let layered = response.extensions_mut().remove::<LayeredAttach>();
    // Another coding than that of the body is that of a layer.
    let layered = layered.filter(|body| body.is_encoded == response.headers().contains_key(CONTENT_ENCODING));
    let framing = exchange.filter(|_| is_long).and_then(|exchange| Some((exchange, exchange.framing(&response)?)));
    match framing {
        Some((exchange, (framing, keep_alive))) => response.map(|body| {
            let conn_state = Arc::clone(open.conn_state());
            // Without a count the connection would refuse the body each time that it is offered.
            let stays = exchange.stays || !conn_state.handover.is_counted();
            let streamed = Streamed::new(body, layered, open, framing, keep_alive, stays);
            Answered::Streamed { body: Some(Box::new(streamed)), conn_state }
        }),
        None => {
            if exchange.is_some_and(|exchange| !exchange.is_plain(&response, is_long)) {
                open.conn_state().handover.leave_to_hyper();
            }
            response.map(|body| Answered::Framed { body, open: Some(open) })
        }
    }
}

/// Returns a response of the server itself, after which an HTTP/1 connection is closed, because the request was not
/// read.
pub(in crate::server) fn refused<B: Body>(status: StatusCode, grpc: bool, open: Open) -> Response<Answered<B>> {
    let conn_state = open.conn_state();
    let mut response = refusal(&conn_state.limits, status, grpc);
    match conn_state.protocol() {
        Protocol::Two if status == StatusCode::SERVICE_UNAVAILABLE => conn_state.raise(ShutdownPhase::Finish),
        Protocol::Two => {}
        _ => drop(response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"))),
    }
    response.map(|body| Answered::Refused { body, open })
}

/// Removes the content of a response over HTTP/2 that may have none. hyper sends the content, which it does not over
/// HTTP/1. `Content-Length` stays that of the content (RFC 9110 §8.6).
#[inline]
pub(in crate::server) fn bare<B>(response: &mut Response<Answered<B>>, version: Version, is_head: bool)
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let has_none = is_head || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if version != Version::HTTP_2 || !has_none || response.body().is_end_stream() {
        return;
    }
    if let Some(len) = response.body().size_hint().exact().filter(|_| is_head) {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(len.into());
    }
    *response.body_mut() = Answered::Bare;
}

/// Ends the connection after this response, unless it switches protocols and accepts no further requests anyway.
fn last<T>(response: &mut Response<T>, open: &Open) {
    match open.conn_state().protocol() {
        _ if response.status() == StatusCode::SWITCHING_PROTOCOLS => {}
        Protocol::Two => open.conn_state().raise(ShutdownPhase::Finish),
        _ => drop(response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"))),
    }
}

impl<B> Body for Answered<B>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Data = Data<B::Data>;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, B::Error>>> {
        match self.project() {
            AnsweredProjection::Refused { body, open } => {
                if body.is_empty() {
                    return Poll::Ready(None);
                }
                let data = Data::OfServer(std::mem::take(body));
                open.conn_state().handover.gave(data.remaining() as u64);
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            AnsweredProjection::Bare => Poll::Ready(None),
            AnsweredProjection::Framed { mut body, open } => {
                let frame = body.as_mut().poll_frame(cx);
                if let Some(open) = open {
                    open.asked(matches!(frame, Poll::Ready(Some(Ok(_)))));
                }
                let frame = ready!(frame);
                match (&frame, &*open) {
                    (Some(Ok(frame)), Some(open)) => open.conn_state().handover.gave(data_len(frame)),
                    (Some(Err(_)), Some(open)) => open.failed(),
                    _ => {}
                }
                let open = match &frame {
                    Some(_) if body.is_end_stream() => open.take(),
                    Some(Ok(_)) => open.as_ref().and_then(Open::frame),
                    _ => None,
                };
                Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|data| Data::OfService { data, open }))))
            }
            AnsweredProjection::Streamed { body, conn_state } => {
                let handover = &conn_state.handover;
                if body.is_none() {
                    *body = handover.take_back();
                }
                if body.as_mut().is_some_and(|body| !body.stays && body.prepare_move(cx))
                    && !conn_state.requests.is_arriving()
                    && let Some(body) = body.take()
                {
                    handover.offer(body);
                    return Poll::Pending;
                }
                let Some(streamed) = body else { return Poll::Ready(None) };
                let Poll::Ready((frame, written)) = streamed.poll_for_hyper(cx) else {
                    if !streamed.stays
                        && !conn_state.requests.is_arriving()
                        && let Some(body) = body.take()
                    {
                        handover.offer(body);
                    }
                    return Poll::Pending;
                };
                handover.gave(written);
                let is_last = frame.is_some() && streamed.gave_last();
                let open = if is_last { streamed.open.take() } else { None };
                Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|data| Data::OfService { data, open }))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Refused { body, .. } => body.is_empty(),
            Self::Bare => true,
            Self::Framed { body, .. } => body.is_end_stream(),
            Self::Streamed { body, .. } => body.as_ref().is_some_and(|body| body.gave_last()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Refused { body, .. } => SizeHint::with_exact(body.len() as u64),
            Self::Framed { body, .. } => body.size_hint(),
            Self::Bare => SizeHint::with_exact(0),
            Self::Streamed { .. } => SizeHint::default(),
        }
    }
}
