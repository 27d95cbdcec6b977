//! Keeps event streams alive: from the answer of the service on, or also before it.

mod early;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use millstream::internal::{Silence, takes_comments};
use millstream::sse::KeepAlive;
use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tower_layer::Layer;
use tower_service::Service;

pub use early::EarlyBody;

/// Sends comments in event streams that are silent, by [`KeepAlive`], so that load balancers, proxies and clients do not
/// take their connections for dead. Many cut a connection that is silent for 60 s, such as the response of a model that thinks.
///
/// ```
/// use std::time::Duration;
///
/// use millstream_layers::KeepAliveLayer;
///
/// // For `axum::Router::layer`, or around any other service.
/// let layer = KeepAliveLayer::new(Duration::from_secs(15)).early(Duration::from_secs(20));
/// # drop(layer);
/// ```
///
/// It applies to responses with the status 200 and the type `text/event-stream`. These pass unchanged:
///
/// * responses to `HEAD`;
/// * with a `Content-Encoding` other than `identity`: put this layer inside of layers that compress;
/// * with a `Content-Length`, or a body whose size is known;
/// * of a [`Hub`](millstream::sse::Hub) with [`past_layers`](millstream::sse::HubBuilder::past_layers), which sends its own
///   comments. Other hubs work too, but as behind any layer they do not write to connections themselves.
///
/// A comment is sent after half to all of the period, and only between two events. One timer serves all streams of a
/// period; see [`KeepAlive`].
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing unless it is put around a service"]
pub struct KeepAliveLayer {
    period: Duration,
    early: Option<Duration>,
}

impl KeepAliveLayer {
    /// Creates a layer with this period. Zero disables the comments.
    pub fn new(period: Duration) -> Self {
        Self { period, early: None }
    }

    /// Answers in place of a service that has not answered after the time `after`, so that comments can be sent. Off by
    /// default.
    ///
    /// It applies to requests other than `HEAD` and `CONNECT` whose `Accept` lists `text/event-stream`. Their client
    /// gets a head with the status 200, `Content-Type: text/event-stream`, `Cache-Control: no-store` and
    /// `X-Accel-Buffering: no`, and then comments. If the service then answers with an event stream, as above or with a
    /// `Content-Length`, its body follows. Anything else ends the stream with one event:
    ///
    /// ```text
    /// event: error
    /// data: {"status":429,"body":"{\"message\":\"too many requests\"}"}
    /// ```
    ///
    /// `body` holds the first 4 KiB of a text or of JSON, and is absent otherwise. If the service fails, the status is
    /// 500 and there is no `body`.
    ///
    /// This has a price:
    ///
    /// * The status, the fields and the extensions of a late answer are lost: cookies, `Retry-After`, redirects, and the
    ///   [`GracefulClose`](millstream::body::GracefulClose) of its body. Layers outside of this one, logs and load balancers
    ///   see a 200. An error of the service does not reach them.
    /// * Clients must handle `error` events. `EventSource` does not see the status: it reconnects where it would have
    ///   given up.
    /// * A late body with a `Content-Encoding` is an error.
    ///
    /// So `after` should be longer than the service takes to refuse a request. Dropping the body before the service has
    /// answered drops the future of the service. Each request that waits has a timer and a boxed future; the timer
    /// ends with the head.
    pub fn early(mut self, after: Duration) -> Self {
        self.early = Some(after);
        self
    }
}

impl<S> Layer<S> for KeepAliveLayer {
    type Service = KeepAliveService<S>;

    fn layer(&self, service: S) -> KeepAliveService<S> {
        KeepAliveService { service, layer: self.clone() }
    }
}

/// A service in a [`KeepAliveLayer`].
#[derive(Clone, Debug)]
pub struct KeepAliveService<S> {
    service: S,
    layer: KeepAliveLayer,
}

impl<S, Q, B> Service<Request<Q>> for KeepAliveService<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    B: Body<Data = Bytes>,
{
    type Response = Response<KeepAlive<EarlyBody<S::Future, B>>>;
    type Error = S::Error;
    type Future = KeepAliveFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let KeepAliveLayer { period, early } = self.layer;
        let early = early.filter(|_| early::may_be_early(&request));
        let period = if *request.method() == Method::HEAD { Duration::ZERO } else { period };
        let future = self.service.call(request);
        let answer = match early {
            None => Answer::Exact { future },
            Some(after) => Answer::Early { future: Some(Box::pin(future)), silence: Silence::new(after) },
        };
        KeepAliveFuture { answer, period }
    }
}

pin_project! {
    /// Response future of [`KeepAliveService`].
    pub struct KeepAliveFuture<F> {
        #[pin]
        answer: Answer<F>,
        // Zero for `HEAD`, whose response has no content.
        period: Duration,
    }
}

pin_project! {
    #[project = AnswerProj]
    enum Answer<F> {
        Exact {
            #[pin]
            future: F,
        },
        // The future moves to the body. `None` after that.
        Early {
            future: Option<Pin<Box<F>>>,
            silence: Silence,
        },
    }
}

impl<F, B, E> Future for KeepAliveFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<KeepAlive<EarlyBody<F, B>>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let me = self.project();
        let response = match me.answer.project() {
            AnswerProj::Exact { future } => ready!(future.poll(cx))?,
            AnswerProj::Early { future, silence } => {
                let Some(waiting) = future else { return Poll::Pending };
                match waiting.as_mut().poll(cx) {
                    Poll::Ready(response) => response?,
                    // Outside of a runtime there is no timer.
                    Poll::Pending if Handle::try_current().is_err() => return Poll::Pending,
                    Poll::Pending => {
                        ready!(silence.poll(cx));
                        let Some(waiting) = future.take() else { return Poll::Pending };
                        let head = early::head(EarlyBody::waiting(waiting));
                        return Poll::Ready(Ok(head.map(|body| KeepAlive::new(body, *me.period))));
                    }
                }
            }
        };
        let period = if takes_comments(&response) { *me.period } else { Duration::ZERO };
        Poll::Ready(Ok(response.map(|body| KeepAlive::new(EarlyBody::answered(body), period))))
    }
}

impl<F> fmt::Debug for KeepAliveFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAliveFuture").field("period", &self.period).finish_non_exhaustive()
    }
}
