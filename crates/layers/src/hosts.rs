//! A service that accepts requests for its own hosts only, against DNS rebinding.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::HOST;
use http::{Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use millstream::internal::{Host, Name};

/// Answers requests for other hosts with 421 (Misdirected Request, [RFC 9110 §15.5.20]) and an empty body.
///
/// A service without passwords on a loopback or private address is protected only by that address. A web page can
/// bypass this protection by DNS rebinding: the owner of `evil.example` resolves the name to `127.0.0.1` once the page
/// is loaded, and the browser then regards the service as the page's origin. Its requests still name the host
/// `evil.example`, which this layer refuses. Use it for operators' pages, metrics and debugging.
///
/// ```
/// use millstream_layers::AllowedHostsLayer;
///
/// // For `axum::Router::layer`, or around any other service.
/// let layer = AllowedHostsLayer::local().and("metrics.internal")?;
/// # drop(layer);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// [RFC 9110 §15.5.20]: https://www.rfc-editor.org/rfc/rfc9110#section-15.5.20
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing unless it is put around a service"]
pub struct AllowedHostsLayer {
    hosts: Arc<[Box<str>]>,
}

impl AllowedHostsLayer {
    /// Allows every IP address, `localhost` and names that end in `.localhost`. They cannot be rebound: a page of an
    /// address was loaded from that address, and browsers do not resolve `localhost`.
    pub fn local() -> Self {
        Self { hosts: Arc::default() }
    }

    /// Also allows this host, with any port, or as `name:port` with that port only. Names are compared without case.
    ///
    /// # Errors
    ///
    /// `ErrorKind::InvalidInput` if `host` is neither.
    pub fn and(mut self, host: &str) -> io::Result<Self> {
        if Host::parse(host.as_bytes()).is_none_or(|host| matches!(host.name, Name::Registered("" | "*"))) {
            let text = format!("allowed host `{host}`: not a name such as metrics.internal or metrics.internal:9100");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.hosts = self.hosts.iter().cloned().chain([host.into()]).collect();
        Ok(self)
    }

    /// Returns whether `request` is for an allowed host, by its target and its `Host`. A request without a host is
    /// allowed, because browsers always send one.
    pub fn allows<B>(&self, request: &Request<B>) -> bool {
        let target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let fields = request.headers().get_all(HOST).iter().map(|value| value.as_bytes());
        target.into_iter().chain(fields).all(|host| self.has(host))
    }

    fn has(&self, host: &[u8]) -> bool {
        let Some(host) = Host::parse(host) else { return false };
        let local = match host.name {
            Name::Address(_) => true,
            Name::Registered(name) => {
                let last = name.rsplit('.').next().unwrap_or(name);
                last.eq_ignore_ascii_case("localhost")
            }
        };
        local
            || self
                .hosts
                .iter()
                .filter_map(|allowed| Host::parse(allowed.as_bytes()))
                .any(|allowed| host.name.is(allowed.name) && (allowed.port.is_none() || allowed.port == host.port))
    }
}

impl<S> Layer<S> for AllowedHostsLayer {
    type Service = AllowedHosts<S>;

    fn layer(&self, service: S) -> AllowedHosts<S> {
        AllowedHosts { service, layer: self.clone() }
    }
}

/// A service in an [`AllowedHostsLayer`].
#[derive(Clone, Debug)]
pub struct AllowedHosts<S> {
    service: S,
    layer: AllowedHostsLayer,
}

impl<S, Q, B> Service<Request<Q>> for AllowedHosts<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    B: Default,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = AllowedHostsFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let future = self.layer.allows(&request).then(|| self.service.call(request));
        AllowedHostsFuture { future }
    }
}

pin_project! {
    /// Response future of [`AllowedHosts`].
    pub struct AllowedHostsFuture<F> {
        // `None` if the request is for another host.
        #[pin]
        future: Option<F>,
    }
}

impl<F, B, E> Future for AllowedHostsFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Default,
{
    type Output = Result<Response<B>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.project().future.as_pin_mut() {
            Some(future) => ready!(future.poll(cx)),
            None => {
                let mut refused = Response::new(B::default());
                *refused.status_mut() = StatusCode::MISDIRECTED_REQUEST;
                Ok(refused)
            }
        })
    }
}

impl<F> fmt::Debug for AllowedHostsFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllowedHostsFuture").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
