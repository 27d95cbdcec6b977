//! Response bodies: the body of the service's response, or an empty one if the server itself answers.

use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::framing::{Exchange, is_events};
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
        Empty { open: Open },
        // The open request moves into the last frame.
        Framed { #[pin] body: B, open: Option<Open> },
        // `None` while the body is offered to the connection.
        Streamed { body: Option<Box<Streamed<B>>>, conn_state: Arc<ConnState> },
    }
}

/// The bytes of a frame. The last frame also holds the open request: HTTP/2 finishes with a body long before its last
/// frame is sent, because that frame may have to wait for windows.
#[derive(Debug)]
pub(in crate::server) struct Data<D> {
    data: D,
    open: Option<Open>,
}

impl<D: Buf> Buf for Data<D> {
    #[inline]
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    #[inline]
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.data.chunks_vectored(slices)
    }

    #[inline]
    fn advance(&mut self, bytes: usize) {
        self.data.advance(bytes);
        self.passed(bytes);
    }

    #[inline]
    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        let bytes = self.data.copy_to_bytes(len);
        self.passed(len);
        bytes
    }
}

impl<D> Data<D> {
    /// Records sent bytes: a last frame may be long, and no further frame is requested from the response.
    fn passed(&self, bytes: usize) {
        if let Some(open) = &self.open {
            open.passed(bytes);
        }
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
    } else if open.conn_state().is_draining() {
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
            let streamed = Streamed::new(body, layered, open, framing, keep_alive, exchange.stays);
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
/// read. A gRPC request gets a gRPC status, if there is one for `status`.
pub(in crate::server) fn refused<B: Body>(status: StatusCode, grpc: bool, open: Open) -> Response<Answered<B>> {
    let mut response = Response::new(());
    match grpc_status(status).filter(|_| grpc) {
        Some((code, message)) => {
            let fields = response.headers_mut();
            fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            fields.insert("grpc-status", HeaderValue::from_static(code));
            fields.insert("grpc-message", HeaderValue::from_static(message));
        }
        None => *response.status_mut() = status,
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        last(&mut response, &open);
    } else if open.conn_state().protocol() != Protocol::Two {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response.map(|()| Answered::Empty { open })
}

fn grpc_status(status: StatusCode) -> Option<(&'static str, &'static str)> {
    match status {
        StatusCode::REQUEST_TIMEOUT => Some(("4", "the request came too slowly")),
        StatusCode::PAYLOAD_TOO_LARGE => Some(("8", "the request is too large")),
        StatusCode::SERVICE_UNAVAILABLE => Some(("14", "the server is overloaded")),
        _ => None,
    }
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
            AnsweredProjection::Empty { .. } => Poll::Ready(None),
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
                let is_last = frame.is_some() && body.is_end_stream();
                let open = if is_last { open.take() } else { None };
                Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|data| Data { data, open }))))
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
                let is_last = frame.is_some() && streamed.is_end_stream();
                let open = if is_last { streamed.open.take() } else { None };
                Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|data| Data { data, open }))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty { .. } => true,
            Self::Framed { body, .. } => body.is_end_stream(),
            Self::Streamed { body, .. } => body.as_ref().is_some_and(|body| body.is_end_stream()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty { .. } => SizeHint::with_exact(0),
            Self::Framed { body, .. } => body.size_hint(),
            Self::Streamed { .. } => SizeHint::default(),
        }
    }
}
