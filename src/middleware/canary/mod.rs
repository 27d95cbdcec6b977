//! A share of the answers goes another way, watched, and back as soon as it is worse.

mod answer;
mod breaker;
mod builder;
mod handle;
mod request_guard;
mod service;
mod shared;
mod shares;
mod token;

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

pub use answer::{CanaryBody, CanaryFuture};
pub use breaker::{State as BreakerState, Thresholds};
pub use builder::CanaryBuilder;
pub use handle::{CanaryHandle, CanaryState, PathState, Pin};
pub use service::Canary;
use shared::Shared;

/// What the shares of a canary are shares of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Requests of HTTP/1, each for itself; with HTTP/2, connections.
    #[default]
    Requests,
    /// Connections: all requests of one take the same path, until the shares are changed.
    Connections,
}

/// Sends a share of the answers by a given [path](crate::net::IoPath) instead of the listener's, which is `auto` unless it
/// was set, and gives a path up while it does badly. Made by a [builder](Self::builder), changed by a [handle](Self::handle). All paths give the same bytes, and none lifts a limit.
///
/// ```no_run
/// # #[cfg(feature = "axum")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use axum::{Router, routing::get};
/// use millstream::middleware::{CanaryLayer, Connection};
/// use millstream::net::{IoPath, TcpListener};
///
/// let canary = CanaryLayer::builder().share(IoPath::Uring, 5.0).build()?;
/// let handle = canary.handle();
/// let app = Router::new()
///     .route("/", get(|| async { "Hello, world!" }))
///     // For example: elsewhere than where everybody can ask.
///     .route("/canary", get(async move || format!("{:#?}\n", handle.state())))
///     .layer(canary);
/// let listener = TcpListener::bind("127.0.0.1:8080").await?;
/// axum::serve(listener, app.into_make_service_with_connect_info::<Connection>()).await
/// # }
/// # #[cfg(not(feature = "axum"))]
/// # fn main() {}
/// ```
///
/// # Who takes which path
///
/// The path is chosen by [share](CanaryBuilder::share), or asked for by a header (see [`token`](CanaryBuilder::token)). It is the socket's: a response
/// of HTTP/1 sets it for itself, when the request reaches this layer; of HTTP/2, whose responses share a socket, the
/// connection keeps one, and a request that asks for another sets it for all of them. Where this layer does not know the
/// connection (see [`layer`](super)), no path is changed.
///
/// # When a path is given up
///
/// Each path has a circuit breaker, which is told of each answer ([`Thresholds`](super::Thresholds)):
///
/// * its latency, from the request until the head of the answer, or until the end of a body of known length of up to
///   64 KiB: when the service has done its part; what the kernel does with it later is not seen;
/// * whether it failed: an error of the service or the body, a panic, or a status of 5xx;
/// * whether the peer ended it before it was whole: the connection or the HTTP/2 stream was reset or closed. Not told of
///   bodies that have no end of their own: those with an [`GracefulClose`](crate::body::GracefulClose), and `text/event-stream`.
///
/// While it is open, requests take the listener's path instead, and `epoll` where that one's breaker is open as well. The
/// breaker of `auto` is held closed unless that is [turned off](CanaryBuilder::breaks_auto): a service may well be slow by
/// itself, and then it is no slower with `auto`.
///
/// # Cost
///
/// Two looks at the clock and three additions to memory that threads do not share; one addition that they share where there
/// are shares. No allocation, no lock, no timer.
#[derive(Clone)]
#[must_use = "a layer does nothing unless it is put around a service"]
pub struct CanaryLayer {
    shared: Arc<Shared>,
}

impl CanaryLayer {
    /// Settings: no shares, no token, default [`Thresholds`](super::Thresholds).
    pub fn builder() -> CanaryBuilder {
        CanaryBuilder::new()
    }

    /// What changes the settings while requests run, and tells how the paths do.
    pub fn handle(&self) -> CanaryHandle {
        CanaryHandle::new(Arc::clone(&self.shared))
    }
}

impl<S> Layer<S> for CanaryLayer {
    type Service = Canary<S>;

    fn layer(&self, inner: S) -> Canary<S> {
        Canary::new(inner, Arc::clone(&self.shared))
    }
}

impl fmt::Debug for CanaryLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CanaryLayer").field("state", &self.handle().state()).finish()
    }
}
