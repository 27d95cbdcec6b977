//! Counts requests and measures their responses, to their last byte.
//!
//! A request reads the exact clock twice: when it comes, and when the last frame of its body, or the end, is given. A
//! body of several frames reads it once more, for its first, and a coarse one for each; what is counted by frame is told to
//! the process when that clock has ticked. Nothing is allocated, and no lock is taken.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::header::CONTENT_LENGTH;
use http::{Extensions, HeaderMap, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use self::exchange::Exchange;
use super::request_id::RequestId;
use crate::counters::labels;

pub use self::body::MeasureBody;

mod body;
mod exchange;

/// A layer that measures responses to their last byte; the numbers are read as [`Requests`](crate::counters::Requests) and
/// [`Snapshot`](crate::counters::Snapshot), or exported by [`prometheus_text`](crate::metrics::prometheus_text).
///
/// For each response: duration until the end of the body, time until the head was handed over, largest gap between frames,
/// frames and bytes; by method, version, status, how it ended, and the [`Route`] if the service names one. Never by path
/// or header values, so that clients cannot make labels. Data frames are passed on as they are, at the same addresses.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::{Router, routing::get};
/// use millstream::middleware::Measure;
///
/// let app: Router = Router::new()
///     .route("/hello/{name}", get(|| async { "hello" }))
///     .route("/metrics", get(|| async { millstream::metrics::prometheus_text() }))
///     // On the router, so that the route is known: `http_route="/hello/{name}"`.
///     .layer(Measure::new());
/// # }
/// ```
///
/// With the feature `tracing` each request has a span `http.request`, target `millstream`, level `DEBUG`: `method`,
/// `version`, `request_id` if [`Stamp`](super::Stamp) gives it one, `status`, `bytes`, `frames`, `duration` in seconds, `outcome`. The service and the body are polled inside
/// of it.
///
/// A response is *complete* when its body has ended, has given as many bytes as it promised, or has none to give (`HEAD`,
/// 1xx, 204, 304); an *error* when the service or the body failed; else *aborted*, as an endless one always is.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct Measure;

impl Measure {
    /// The layer. Put it outermost, so that what other layers do is measured too.
    pub fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for Measure {
    type Service = MeasureService<S>;

    fn layer(&self, inner: S) -> MeasureService<S> {
        MeasureService { inner }
    }
}

/// A name for where a request leads, for labels: `/users/{id}`, never the path itself.
///
/// The service puts it into the extensions of its response, or something in front of [`Measure`] into those of the
/// request. With the feature `axum` a `MatchedPath` is one, if the layer was added by `Router::layer`.
///
/// ```
/// use http::Response;
/// use millstream::middleware::Route;
///
/// let users = Route::new("/users/{id}");
/// let mut response = Response::new("ann");
/// response.extensions_mut().insert(users);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Route(u8);

impl Route {
    /// The route of this name. The process keeps 126 names for good; every later one is `_OTHER`. Cheap to copy: make it
    /// once.
    pub fn new(name: &str) -> Self {
        Self(labels::route(name))
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        labels::route_name(self.0).expect("internal: it was given by its name")
    }

    fn of(extensions: &Extensions) -> Option<u8> {
        if let Some(route) = extensions.get::<Self>() {
            return Some(route.0);
        }
        #[cfg(feature = "axum")]
        if let Some(path) = extensions.get::<axum::extract::MatchedPath>() {
            return Some(labels::route(path.as_str()));
        }
        None
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Route").field(&self.name()).finish()
    }
}

/// A service that is measured; see [`Measure`].
#[derive(Clone, Copy, Debug)]
pub struct MeasureService<S> {
    inner: S,
}

impl<S, Q, B> Service<Request<Q>> for MeasureService<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    B: Body,
{
    type Response = Response<MeasureBody<B>>;
    type Error = S::Error;
    type Future = MeasureFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let route = Route::of(request.extensions());
        let exchange = Exchange::begin(request.method(), request.version(), route);
        exchange.identify(|| request.extensions().get().cloned());
        // A service may do its work when it is called.
        let inner = exchange.inside(|| self.inner.call(request));
        MeasureFuture { inner, exchange: Some(exchange) }
    }
}

pin_project! {
    /// An answer that is waited for; dropped before it has come, the request counts as aborted.
    #[derive(Debug)]
    pub struct MeasureFuture<F> {
        #[pin]
        inner: F,
        exchange: Option<Exchange>,
    }
}

impl<F, B, E> Future for MeasureFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<MeasureBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let exchange = this.exchange.as_mut().expect("polled after it was ready");
        let answer = ready!(exchange.inside(|| this.inner.poll(cx)));
        let mut exchange = this.exchange.take().expect("internal: it was there just now");
        Poll::Ready(match answer {
            Ok(response) => {
                let (head, body) = response.into_parts();
                let promised = body.size_hint().exact().or_else(|| content_length(&head.headers));
                // One that was given further in is in the head of the response.
                exchange.identify(|| RequestId::of(&head.headers));
                exchange.answered(head.status, Route::of(&head.extensions), promised);
                Ok(Response::from_parts(head, MeasureBody::new(body, exchange)))
            }
            Err(error) => {
                exchange.failed();
                Err(error)
            }
        })
    }
}

/// Bytes of body that the head promises.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
