//! Sends a share of the responses by another path, and disables the path while it does worse.

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
pub use handle::{BreakerPin, CanaryHandle, CanaryState, PathState};
pub use service::Canary;
use shared::Shared;

/// ShareUnit of the shares of a canary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShareUnit {
    /// Requests, each on its own; for HTTP/2, connections.
    #[default]
    Requests,
    /// Connections: all requests of a connection take the same path, until the shares change.
    Connections,
}

/// Sends a share of the responses by a given [path](crate::net::SendStrategy) instead of the listener's, and disables a path
/// while it is slow or fails. Built by a [builder](Self::builder), changed by a [handle](Self::handle). All paths send
/// the same bytes, within the same limits.
///
/// ```no_run
/// # #[cfg(feature = "axum")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use axum::{Router, routing::get};
/// use millstream::middleware::{CanaryLayer, Connection};
/// use millstream::net::{SendStrategy, TcpListener};
///
/// let canary = CanaryLayer::builder().share(SendStrategy::Uring, 5.0).build()?;
/// let handle = canary.handle();
/// let app = Router::new()
///     .route("/", get(|| async { "Hello, world!" }))
///     // For operators: better on an address that is not public.
///     .route("/canary", get(async move || format!("{:#?}\n", handle.state())))
///     .layer(canary);
/// let listener = TcpListener::bind("127.0.0.1:8080").await?;
/// axum::serve(listener, app.into_make_service_with_connect_info::<Connection>()).await
/// # }
/// # #[cfg(not(feature = "axum"))]
/// # fn main() {}
/// ```
///
/// # Choice of the path
///
/// The path is chosen by [share](CanaryBuilder::share) or selected by a header ([`token`](CanaryBuilder::token)). It
/// belongs to the socket: an HTTP/1 response sets it when its request reaches this layer. The responses of an HTTP/2
/// connection share a socket, so the connection keeps one path, and a request that selects another sets it for all of
/// them. Without a known connection (see [`middleware`](super)) no path changes.
///
/// # Circuit breakers
///
/// Each path has a circuit breaker with [`Thresholds`](super::Thresholds). It records for each response:
///
/// * the latency, from the request to the response's head, or to the end of a body of known length of up to 64 KiB. It
///   is the time of the service, not that of the kernel;
/// * failures: an error of the service or the body, a panic, or a status of 5xx;
/// * resets: the peer closed or reset the connection or the HTTP/2 stream before the end. Endless bodies are exempt:
///   those with a [`GracefulClose`](crate::body::GracefulClose), and `text/event-stream`.
///
/// While a breaker is open, requests take the listener's path, or `epoll` if that is disabled too. The breaker of
/// `auto` is pinned closed unless [`breaks_auto`](CanaryBuilder::breaks_auto) is set: a service may be slow by itself.
///
/// # Cost
///
/// Two clock reads and three additions to memory that threads do not share, and with shares one addition to memory that
/// they share. No allocation, lock or timer.
#[derive(Clone)]
#[must_use = "a layer does nothing unless it is put around a service"]
pub struct CanaryLayer {
    shared: Arc<Shared>,
}

impl CanaryLayer {
    /// Returns a builder, with no shares, no token and default [`Thresholds`](super::Thresholds).
    pub fn builder() -> CanaryBuilder {
        CanaryBuilder::new()
    }

    /// Returns a handle to change the settings at run time and to read the state.
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
