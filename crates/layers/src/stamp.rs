//! Request ids, traces, and headers that identify the service.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::request_id::{REQUEST_ID, generate};
use super::trace::{TRACEPARENT, TRACESTATE, TraceParent, has_good_state};
use millstream::internal::{RequestId, identity::peer};
use millstream::server::Trusted;

const ENVIRONMENT: HeaderName = HeaderName::from_static("x-environment");
const SERVICE_VERSION: HeaderName = HeaderName::from_static("x-service-version");

/// Gives each request an id and a trace, and adds headers that identify the service to the response.
///
/// | header | request | response |
/// |---|---|---|
/// | `x-request-id` | a [`RequestId`] of a [trusted](Self::trusted) peer is kept; else a new one | the same |
/// | `traceparent` | valid and of a trusted peer: the same trace with a new parent; else a new trace | |
/// | `tracestate` | kept if the trace is kept | |
/// | `x-environment` | | if [set](Self::environment) |
/// | `x-service-version` | | if [set](Self::service_version) |
///
/// The service finds the id and the trace in the headers, for forwarding, and in the extensions of the request, as
/// [`RequestId`] and [`TraceParent`]. Both are valid for any input.
///
/// ```no_run
/// use http::HeaderValue;
/// use millstream::files::Files;
/// use millstream_layers::StampLayer;
/// use millstream::net::TcpListener;
/// use millstream::server;
/// use tower::Layer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let stamp = StampLayer::new()
///     .trusted("10.0.0.0/8".parse()?)
///     .service_version(HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
/// let listener = TcpListener::bind("127.0.0.1:8080").await?;
/// server::serve(listener, stamp.layer(Files::new("public")?)).await
/// # }
/// ```
///
/// # Cost
///
/// An id and a trace are 40 random bytes. Their header values share memory that is allocated for about forty requests
/// at a time. The two values in the extensions of a request take two allocations;
/// [`extensions(false)`](Self::extensions) avoids them, and [`RequestId::of`] reads the header.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing unless it is put around a service"]
pub struct StampLayer {
    settings: Arc<Settings>,
}

#[derive(Clone, Debug)]
struct Settings {
    trusted: Trusted,
    environment: Option<HeaderValue>,
    service_version: Option<HeaderValue>,
    trace: bool,
    /// Threshold of [`TraceParent::start`].
    threshold: u64,
    extensions: bool,
}

impl StampLayer {
    /// Creates a layer that trusts no peer, and samples no trace.
    pub fn new() -> Self {
        let (trusted, environment, service_version) = (Trusted::none(), None, None);
        let settings =
            Settings { trusted, environment, service_version, trace: true, threshold: 1 << 56, extensions: true };
        Self { settings: Arc::new(settings) }
    }

    /// Sets the peers whose ids and traces are kept; none by default.
    pub fn trusted(mut self, trusted: Trusted) -> Self {
        Arc::make_mut(&mut self.settings).trusted = trusted;
        self
    }

    /// Adds `x-environment` to each response, such as `production` or `staging`; off by default.
    pub fn environment(mut self, environment: HeaderValue) -> Self {
        Arc::make_mut(&mut self.settings).environment = Some(environment);
        self
    }

    /// Adds `x-service-version` to each response; off by default.
    pub fn service_version(mut self, version: HeaderValue) -> Self {
        Arc::make_mut(&mut self.settings).service_version = Some(version);
        self
    }

    /// Sets whether requests belong to traces; on by default. If off, both headers of Trace Context pass unchanged.
    pub fn trace(mut self, on: bool) -> Self {
        Arc::make_mut(&mut self.settings).trace = on;
        self
    }

    /// Sets the share of new traces that are sampled, in percent; 0 by default. Continued traces keep their flag.
    pub fn sampled(mut self, percent: f64) -> Self {
        let whole = (1u64 << 56) as f64;
        Arc::make_mut(&mut self.settings).threshold = (whole * (1.0 - percent.clamp(0.0, 100.0) / 100.0)) as u64;
        self
    }

    /// Sets whether [`RequestId`] and [`TraceParent`] are in the extensions of requests; on by default.
    pub fn extensions(mut self, on: bool) -> Self {
        Arc::make_mut(&mut self.settings).extensions = on;
        self
    }
}

impl Default for StampLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for StampLayer {
    type Service = Stamp<S>;

    fn layer(&self, inner: S) -> Stamp<S> {
        Stamp { inner, settings: Arc::clone(&self.settings) }
    }
}

/// A service with stamped requests and responses; see [`StampLayer`].
#[derive(Clone)]
pub struct Stamp<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> Stamp<S> {
    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl Settings {
    fn request_id(&self, headers: &mut HeaderMap, trusted: bool) -> RequestId {
        match RequestId::of(headers).filter(|_| trusted) {
            Some(id) => id,
            None => {
                let id = generate();
                headers.insert(REQUEST_ID, id.as_header().clone());
                id
            }
        }
    }

    fn trace_parent(&self, headers: &mut HeaderMap, trusted: bool) -> TraceParent {
        let (parent, keeps_state) = match TraceParent::of(headers).filter(|_| trusted) {
            Some(given) => (given.child(), has_good_state(headers)),
            None => (TraceParent::start(self.threshold), false),
        };
        if !keeps_state {
            headers.remove(TRACESTATE);
        }
        headers.insert(TRACEPARENT, parent.to_header());
        parent
    }
}

impl<S, B, R> Service<Request<B>> for Stamp<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = StampFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> StampFuture<S::Future> {
        let settings = &*self.settings;
        let trusted = peer(request.extensions()).is_some_and(|peer| settings.trusted.contains(peer));
        let id = settings.request_id(request.headers_mut(), trusted);
        let parent = settings.trace.then(|| settings.trace_parent(request.headers_mut(), trusted));
        let header = id.as_header().clone();
        if settings.extensions {
            request.extensions_mut().insert(id);
            if let Some(parent) = parent {
                request.extensions_mut().insert(parent);
            }
        }
        StampFuture { inner: self.inner.call(request), id: Some(header), settings: Arc::clone(&self.settings) }
    }
}

pin_project! {
    /// Response future of [`Stamp`].
    pub struct StampFuture<F> {
        #[pin]
        inner: F,
        id: Option<HeaderValue>,
        settings: Arc<Settings>,
    }
}

impl<F, R, E> Future for StampFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<R>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.inner.poll(cx))?;
        let headers = response.headers_mut();
        if let Some(id) = this.id.take() {
            headers.insert(REQUEST_ID, id);
        }
        let settings = &this.settings;
        for (name, value) in [(ENVIRONMENT, &settings.environment), (SERVICE_VERSION, &settings.service_version)] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
        Poll::Ready(Ok(response))
    }
}

impl<S: fmt::Debug> fmt::Debug for Stamp<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stamp").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for StampFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StampFuture").finish_non_exhaustive()
    }
}
