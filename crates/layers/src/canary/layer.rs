//! The layer, and its builder.

use std::fmt;
use std::io;
use std::sync::Arc;

use tower_layer::Layer;

use super::breaker::Thresholds;
use super::handle::CanaryHandle;
use super::service::Canary;
use super::shared::CanaryShared;
use super::shares::{PATHS, ShareUnit, Shares};
use super::token::Token;
use millstream::net::SendStrategy;
use millstream::server::Trusted;

/// Sends a share of the responses by a given [path](millstream::net::SendStrategy) instead of the listener's, and
/// disables a path while it is slow or fails. Built by a [builder](Self::builder), changed by a [handle](Self::handle).
/// All paths send the same bytes, within the same limits.
///
/// ```no_run
/// # #[cfg(feature = "axum")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use axum::{Router, routing::get};
/// use millstream_layers::CanaryLayer;
/// use millstream::net::{SendStrategy, TcpListener};
/// use millstream::server::Connection;
///
/// let canary = CanaryLayer::builder().share(SendStrategy::NoSendfile, 5.0).build()?;
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
/// them. Without a known connection (see [the crate](crate)) no path changes.
///
/// # Circuit breakers
///
/// Each path has a circuit breaker with [`Thresholds`](super::Thresholds). It records for each response:
///
/// * the latency, from the request to the response's head, or to the end of a body of known length of up to 64 KiB. It
///   is the time of the service, not that of the kernel;
/// * failures: an error of the service or the body, a panic, or a status of 5xx;
/// * resets: the peer closed or reset the connection or the HTTP/2 stream before the end. Endless bodies are exempt:
///   those with a [`GracefulClose`](millstream::body::GracefulClose), and `text/event-stream`.
///
/// While a breaker is open, requests take the listener's path, or `no-cork` if that is disabled too. The breaker of
/// `auto` is pinned closed unless [`breaks_auto`](CanaryBuilder::breaks_auto) is set: a service may be slow by itself.
///
/// # Cost
///
/// Two clock reads and three additions to memory that threads do not share, and with shares one addition to memory that
/// they share. No allocation, lock or timer.
#[derive(Clone)]
#[must_use = "a layer does nothing unless it is put around a service"]
pub struct CanaryLayer {
    shared: Arc<CanaryShared>,
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

/// Builder of a [`CanaryLayer`], from [`CanaryLayer::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing unless `build` is called"]
pub struct CanaryBuilder {
    trusted: Trusted,
    thresholds: Thresholds,
    unit: ShareUnit,
    breaks_auto: bool,
    shares: Vec<(SendStrategy, f64)>,
    token: Option<Token>,
    refused: Option<String>,
    report: bool,
}

impl CanaryBuilder {
    pub(super) fn new() -> Self {
        Self {
            trusted: Trusted::none(),
            thresholds: Thresholds::default(),
            unit: ShareUnit::Requests,
            breaks_auto: false,
            shares: Vec::new(),
            token: None,
            refused: None,
            report: false,
        }
    }

    /// Sets the share of requests or connections that take `path`, in percent, to a hundredth; 0 by default. The rest,
    /// the share of [`SendStrategy::Auto`], takes the listener's path. Shares are evenly spread over all threads, and
    /// exact over any ten thousand, whole percents over any hundred.
    pub fn share(mut self, path: SendStrategy, percent: f64) -> Self {
        self.shares.push((path, percent));
        self
    }

    /// Sets the unit of the shares; [`ShareUnit::Requests`] by default.
    pub fn unit(mut self, unit: ShareUnit) -> Self {
        self.unit = unit;
        self
    }

    /// Sets the peers that may select a path by a header; none by default.
    pub fn trusted(mut self, trusted: Trusted) -> Self {
        self.trusted = trusted;
        self
    }

    /// Sets the token that a [trusted](Self::trusted) peer needs to select a path, 16 to 128 visible ASCII characters,
    /// compared in constant time. Without it no request selects a path. The header, such as `x-millstream-canary:
    /// no-sendfile;<token>`, is removed from every request.
    pub fn token(mut self, token: &str) -> Self {
        match Token::new(token) {
            Ok(token) => (self.token, self.refused) = (Some(token), None),
            Err(error) => self.refused = Some(error.to_string()),
        }
        self
    }

    /// Sets whether responses report their path as `x-millstream-path`; off by default.
    pub fn report(mut self, on: bool) -> Self {
        self.report = on;
        self
    }

    /// Sets the thresholds at which a path is disabled.
    pub fn thresholds(mut self, thresholds: Thresholds) -> Self {
        self.thresholds = thresholds;
        self
    }

    /// Sets whether [`SendStrategy::Auto`] may be disabled too, in favour of `no-cork`; off by default.
    pub fn breaks_auto(mut self, on: bool) -> Self {
        self.breaks_auto = on;
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// `ErrorKind::InvalidInput` if a share is not from 0 to 100 or is one of `auto`, if the shares exceed 100
    /// together, or if the token is too short, too long, or has other characters.
    pub fn build(self) -> io::Result<CanaryLayer> {
        if let Some(refused) = self.refused {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, refused));
        }
        let shares = Shares::default();
        for (path, percent) in self.shares {
            shares.set(path, percent)?;
        }
        let shared = CanaryShared::new(self.trusted, &self.thresholds, self.unit, shares, self.token, self.report);
        if !self.breaks_auto {
            shared.breakers[SendStrategy::Auto as usize].pin(Some(true));
        }
        debug_assert_eq!(PATHS[SendStrategy::Auto as usize], SendStrategy::Auto);
        Ok(CanaryLayer { shared: Arc::new(shared) })
    }
}
