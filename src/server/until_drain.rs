//! Ends event streams and gRPC streams that do not end by themselves when the server drains.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{HeaderName, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::request::is_grpc;
use super::response::is_events;
use crate::body::{EndSignal, GracefulClose};

/// Maximum number of ready frames that follow the signal. A body that always has one would not end otherwise.
const LAST_FRAMES: u32 = 32;

/// Ends an endless response in order when the server [drains](super::Server::drain), or the connection has reached its
/// [age](super::Limits::age). Otherwise the server would reset it at the deadline.
///
/// | `Content-Type` | end |
/// |---|---|
/// | `text/event-stream` | between two frames; a browser then reconnects, to another server |
/// | `application/grpc` | between two frames, with the status `UNAVAILABLE`, which asks clients to try again |
/// | any other | unchanged: the client would regard a part of the response as complete |
///
/// Frames that are ready still leave, at most 32. A response of known length, a compressed one, and one that has a
/// [`GracefulClose`], such as that of a [`Hub`](crate::sse), are unchanged. Apply it inside of layers that compress.
///
/// Do not apply it to streams that soon end by themselves, such as the tokens of a model. They are served until the
/// deadline.
///
/// With axum, in the handler:
///
/// ```
/// use std::convert::Infallible;
///
/// use axum::response::sse::{Event, Sse};
/// use axum::response::{IntoResponse, Response};
/// use futures_util::Stream;
/// use millstream::server::until_drain;
///
/// fn news(events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
///     until_drain(Sse::new(events).into_response()).into_response()
/// }
/// ```
///
/// For all routes of an axum `Router`, or all methods of the `Routes` of tonic:
///
/// ```
/// # use millstream::net::TcpListener;
/// # use millstream::server::{HttpService, serve};
/// use millstream::server::until_drain;
/// use tower::util::{MapResponseLayer, ServiceExt};
///
/// # async fn run(listener: TcpListener, router: axum::Router, routes: impl HttpService) -> std::io::Result<()> {
/// let router = router.layer(MapResponseLayer::new(until_drain));
/// let grpc = routes.map_response(until_drain);
/// # drop(router);
/// # serve(listener, grpc).await
/// # }
/// ```
pub fn until_drain<B: Body>(mut response: Response<B>) -> Response<UntilDrain<B>> {
    let body = response.body();
    let has_end = body.is_end_stream() || body.size_hint().exact().is_some();
    let is_other =
        response.headers().contains_key(CONTENT_ENCODING) || response.extensions().get::<GracefulClose>().is_some();
    let kind = match response.headers() {
        _ if has_end || is_other => None,
        fields if is_events(fields) => Some(Kind::Events),
        fields if fields.get(CONTENT_TYPE).is_some_and(is_grpc) => Some(Kind::Grpc),
        _ => None,
    };
    let end = kind.map(|kind| {
        let signal = Arc::<EndSignal>::default();
        response.extensions_mut().insert(GracefulClose(Arc::<EndSignal>::clone(&signal)));
        End { signal, kind, left: LAST_FRAMES, is_over: false }
    });
    response.map(|body| UntilDrain { body, end })
}

pin_project! {
    /// The body of a response from [`until_drain`].
    pub struct UntilDrain<B> {
        #[pin]
        body: B,
        // `None` if the body is unchanged.
        end: Option<End>,
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Events,
    Grpc,
}

struct End {
    signal: Arc<EndSignal>,
    kind: Kind,
    /// Number of frames that may still follow the signal.
    left: u32,
    is_over: bool,
}

impl Kind {
    /// Returns the last frame.
    fn last<D>(self) -> Option<Frame<D>> {
        let fields = [
            (HeaderName::from_static("grpc-status"), HeaderValue::from_static("14")),
            (HeaderName::from_static("grpc-message"), HeaderValue::from_static("the server closes the connection")),
        ];
        match self {
            Self::Events => None,
            Self::Grpc => Some(Frame::trailers(HeaderMap::from_iter(fields))),
        }
    }
}

impl<B: Body> Body for UntilDrain<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let me = self.project();
        let Some(end) = me.end else { return me.body.poll_frame(cx) };
        if end.is_over {
            return Poll::Ready(None);
        }
        if end.left > 0 {
            if let Poll::Ready(frame) = me.body.poll_frame(cx) {
                end.is_over = frame.is_none();
                if end.signal.is_set() {
                    end.left -= 1;
                }
                return Poll::Ready(frame);
            }
            if !end.signal.poll_set(cx) {
                return Poll::Pending;
            }
        }
        end.is_over = true;
        Poll::Ready(end.kind.last().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() || self.end.as_ref().is_some_and(|end| end.is_over)
    }

    fn size_hint(&self) -> SizeHint {
        match self.end {
            Some(_) => SizeHint::default(),
            None => self.body.size_hint(),
        }
    }
}

impl<B: fmt::Debug> fmt::Debug for UntilDrain<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.end.as_ref().map(|end| end.kind);
        f.debug_struct("UntilDrain").field("body", &self.body).field("kind", &kind).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
