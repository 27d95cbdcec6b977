//! Measures requests and their responses without locks or allocations. The exact clock is read at the start and the end
//! of a request, and at the first of several frames. A coarse clock is read at each frame; frames are counted when it
//! ticks.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::header::CONTENT_LENGTH;
use http::{Extensions, HeaderMap, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use self::exchange::Exchange;
use self::request_id::RequestId;
use crate::counters::labels;

pub use self::body::MeasureBody;

mod body;
mod exchange;
pub(crate) mod request_id;

/// A layer that measures responses to their last byte. The numbers are read as [`Requests`](crate::counters::Requests)
/// and [`Snapshot`](crate::counters::Snapshot), or exported by [`prometheus_text`](crate::metrics::prometheus_text).
///
/// For each response: duration until the end of the body, time until the head was handed to HTTP, largest gap between
/// frames, frames and bytes; by method, version, status, outcome, and [`Route`] if any. Labels never contain paths or
/// header values, so clients cannot create labels. Data frames pass unchanged, at the same addresses.
///
/// ```
/// # #[cfg(feature = "axum-08")] {
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
/// With the feature `tracing`, the service and the body are polled in a span `http.request`, target `millstream`, level
/// `DEBUG`, with `method`, `version`, `request_id` if `StampLayer` sets one, `status`, `bytes`, `frames`,
/// `duration` in seconds, `outcome`.
///
/// A response is *complete* when its body has ended, has given its declared length, or has no bytes (`HEAD`, 1xx, 204,
/// 304); an *error* when the service or the body failed; otherwise *aborted*. An endless response is always *aborted*.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct Measure;

impl Measure {
    /// Creates the layer. It should be the outermost, to measure other layers too.
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

/// Name of a route, for labels: `/users/{id}`, never the path itself.
///
/// The service adds it to the extensions of its response, or an outer layer to those of the request. With the feature
/// `axum-08`, a `MatchedPath` is used too, if the layer was added by `Router::layer`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Route(u8);

impl Route {
    /// Returns the route of this name. The process keeps 126 names forever; later ones are `_OTHER`. Cheap to copy.
    pub fn new(name: &str) -> Self {
        Self(labels::route(name))
    }

    /// Returns the name.
    pub fn name(&self) -> &'static str {
        labels::route_name(self.0).expect("internal: the route has a name")
    }

    fn of(extensions: &Extensions) -> Option<u8> {
        if let Some(route) = extensions.get::<Self>() {
            return Some(route.0);
        }
        #[cfg(feature = "axum-08")]
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

/// A measured service; see [`Measure`].
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
        // A service may do its work in `call`.
        let inner = exchange.inside(|| self.inner.call(request));
        MeasureFuture { inner, exchange: Some(exchange) }
    }
}

pin_project! {
    /// Response future of [`MeasureService`]. Dropped early, the request counts as aborted.
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
        let mut exchange = this.exchange.take().expect("internal: taken once");
        Poll::Ready(match answer {
            Ok(response) => {
                let promised = response.body().size_hint().exact().or_else(|| content_length(response.headers()));
                // An id of an inner layer is in the head of the response.
                exchange.identify(|| RequestId::of(response.headers()));
                exchange.answered(response.status(), Route::of(response.extensions()), promised);
                Ok(response.map(|body| MeasureBody::new(body, exchange)))
            }
            Err(error) => {
                exchange.failed();
                Err(error)
            }
        })
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
