//! The proxy as a tower service.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body;
use tower_service::Service;

use super::builder::ProxyBuilder;
use super::error::ConfigError;
use super::exchange::ProxyShared;
use super::failure::RequestFailure;
use super::origin::Origin;
use super::request::Outgoing;
use super::request_body::BoxError;
#[cfg(feature = "__tls")]
use super::secure::Secure;
use super::state::ProxyState;
use super::upstream::Upstream;
use millstream::body::DirectBody;
use millstream::internal::takes_comments;
use millstream::sse::KeepAlive;

/// A reverse proxy in front of one server, as a tower service for [`serve`](millstream::server::serve()).
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use millstream::net::TcpListener;
/// use millstream_proxy::Proxy;
/// use millstream::server::{Limits, serve};
///
/// let proxy = Proxy::new("http://127.0.0.1:8080".parse()?)?;
/// // The limit on the size of uploads is left to the upstream.
/// let limits = Limits::default().streaming_requests(|_| true);
/// serve(TcpListener::bind("0.0.0.0:80").await?, proxy).limits(limits).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Bodies
///
/// In both directions an arriving chunk is sent on in the same turn, with backpressure. Chunks of an HTTP/1.1 response
/// that arrive together are sent on as one. After the head of the response, an upload to an HTTP/1.1 upstream continues
/// only as fast as the client reads the response. On HTTP/1.1, without TLS, the rest of a body with a `Content-Length`
/// is moved from socket to socket by [splice(2)](https://man7.org/linux/man-pages/man2/splice.2.html) once hyper holds
/// none of it and 16 KiB are left.
///
/// # Header fields
///
/// Connection fields are removed in both directions ([RFC 9110
/// §7.6.1](https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1)). Requests keep their `Host`. They get `Via`,
/// `X-Forwarded-For` with the address of the client appended, `X-Forwarded-Proto` with the
/// [scheme](ProxyBuilder::scheme) of its connection, and optionally [`Forwarded`](ProxyBuilder::forwarded). Responses
/// get `Via` and the fields of [`response_header`](ProxyBuilder::response_header). The upstream may rely on these
/// fields only if all its requests come through this proxy. Other fields that clients can forge, such as
/// `X-Forwarded-Host`, `X-Forwarded-Port` and `X-Real-IP`, are passed on unchanged: remove them in a layer if the
/// upstream trusts them. CGI, WSGI and PHP servers treat `_` in a name as `-`: `X_Forwarded_For` and
/// `X_Forwarded_Proto` are removed, in all spellings, and other names with `_` are passed on.
///
/// Equal values of `Content-Length` become one number. If the values differ or are invalid, a request is answered with
/// 400, and a response is replaced by 502.
///
/// `OPTIONS` and `TRACE` are answered here when their `Max-Forwards` is 0
/// ([RFC 9110 §7.6.2](https://www.rfc-editor.org/rfc/rfc9110#section-7.6.2)).
///
/// # Failures
///
/// An upstream that cannot be reached, that fails before the head of its response, or whose response has a transfer
/// coding other than `chunked`, causes a 502; one that does not answer in [time](ProxyBuilder::timeout) a 504. An
/// upload that exceeds a [limit](millstream::server::Limits) of the server causes its 413 or 408, and one with a
/// transfer coding other than `chunked` a
/// 501. The texts name no address; the events of `tracing` have the causes. An HTTP/1 connection is closed after a response
/// that comes before the end of the upload. An upstream that fails in the
/// body of its response fails that body: an HTTP/1 client's connection ends before the length is reached or without the
/// last chunk, and an HTTP/2 stream is reset. When the client leaves, the connection to the upstream is closed at once, or
/// the stream reset.
///
/// Requests above the [limits](ProxyBuilder::requests), or while the [circuit](ProxyBuilder::breaker) is open, get a
/// 503. These limits apply to all clients together. A single client is limited by the [connections of an
///      address](millstream::server::Limits::per_address) and the [streams](millstream::server::Limits::http2_streams)
///      of each. A `Host` other than the name in the client's TLS handshake is passed on; the upstream may answer it
///      with 421.
///
/// A request is sent again, over a new connection or the one that HTTP/2 shares, in two cases:
///
/// - It was certainly not processed: hyper has not begun to send it, or an upstream of HTTP/2 refused its stream or
///   ended the connection without it ([RFC 9113 §8.7](https://www.rfc-editor.org/rfc/rfc9113#section-8.7)). At most 16
///   times after connections of HTTP/2 that end, else 4 times. If the connection ends while a request waits because the
///   upstream allows no more streams, it is not certain, because hyper does not tell whether it has sent the request.
/// - A kept connection or its stream fails before the head of the response is complete, and the request is idempotent
///   ([RFC 9110 §9.2.2](https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2)). Once.
///
/// For this purpose up to 64 KiB of a request body are kept until the head of the response arrives. This applies to
/// requests over HTTP/2 and to idempotent requests over a kept connection, with at most 16 MiB for all requests of a
/// proxy. A request is not sent again if more of its body was received, or if there was no room to keep it.
///
/// # Upgrades
///
/// Protocol changes of HTTP/1.1, such as WebSockets, are passed on to an upstream of HTTP/1.1: both connections become
/// a tunnel, which ends after a [time](ProxyBuilder::tunnel_timeout) without a byte. Requests to change to `h2c` are
/// answered without the change, because later requests would bypass this proxy. `CONNECT` gets a 501.
///
/// # Interim responses
///
/// If the client waits for `100 Continue`, it gets one when an HTTP/1.1 upstream sends one, or after one second,
/// because an upstream need not send one. A final response before that ends the request without the body. An HTTP/2
/// upstream gets the body at once. Other interim responses, such as `103 Early Hints`, are not passed on, because
/// hyper's server sends none.
#[derive(Clone)]
pub struct Proxy(pub(crate) Arc<ProxyShared>);

impl ProxyBuilder {
    /// Creates the proxy. It connects when a request needs that.
    ///
    /// # Errors
    ///
    /// If an option has an invalid value, or if the upstream is `https:` and `upstream_tls` was not called.
    pub fn build(self) -> Result<Proxy, ConfigError> {
        let options = self.options()?;
        let upstream = self.upstream;
        #[cfg(feature = "__tls")]
        let secure = match (upstream.server_name().filter(|_| upstream.is_tls()), &self.tls) {
            (Some(name), Some(config)) => Some(Secure::new(name, config)),
            (Some(_), None) => {
                let allowed = "a configuration that says whom to trust";
                return Err(ConfigError::new("upstream_tls", format!("none, for {upstream}"), allowed));
            }
            (None, _) => None,
        };
        #[cfg(feature = "__tls")]
        let origin = Origin::new(upstream, options.connect_timeout, secure);
        #[cfg(not(feature = "__tls"))]
        let origin = Origin::new(upstream, options.connect_timeout);
        Ok(Proxy(Arc::new(ProxyShared::new(origin, options))))
    }
}

impl Proxy {
    /// Creates a proxy with the defaults.
    ///
    /// # Errors
    ///
    /// If the upstream is `https:`, which needs an option of [`builder`](Self::builder).
    pub fn new(upstream: Upstream) -> Result<Self, ConfigError> {
        Self::builder(upstream).build()
    }

    /// Returns a builder.
    pub fn builder(upstream: Upstream) -> ProxyBuilder {
        ProxyBuilder::new(upstream)
    }

    /// Returns the number of idle HTTP/1 connections to the upstream.
    pub fn idle_connections(&self) -> usize {
        self.0.pool.len()
    }

    /// Returns the numbers of requests and connections, and whether the upstream is in use.
    pub fn state(&self) -> ProxyState {
        let ProxyShared { gate, health, .. } = &*self.0;
        ProxyState {
            in_progress: gate.in_progress(),
            waiting: gate.waiting(),
            refused: gate.refused(),
            idle_connections: self.idle_connections(),
            circuit: health.circuit(),
            failures: health.failures(),
            trips: health.trips(),
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("upstream", &self.0.origin.upstream)
            .field("options", &self.0.options)
            .field("state", &self.state())
            .finish()
    }
}

impl<B> Service<Request<B>> for Proxy
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<DirectBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (version, is_head) = (request.version(), request.method() == Method::HEAD);
        let has_body = !request.body().is_end_stream();
        let shared = Arc::clone(&self.0);
        let outgoing = Outgoing::new(request, &shared.origin, &shared.options);
        Box::pin(async move {
            let upload = outgoing.as_ref().ok().and_then(|outgoing| outgoing.upload.clone());
            let answered = match outgoing {
                Ok(outgoing) => shared.answer(outgoing).await,
                Err(failure) => Err(failure),
            };
            let mut response = answered.unwrap_or_else(RequestFailure::into_response);
            let is_read = upload.map_or(!has_body, |upload| upload.has_ended());
            if !is_read && version < Version::HTTP_2 && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                // hyper closes the connection if the rest of the body has not arrived when the response ends.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            // The version is that of the client's connection.
            *response.version_mut() = version;
            let period = shared.options.keep_alive;
            Ok(match !period.is_zero() && !is_head && takes_comments(&response) {
                true => response.map(|body| DirectBody::new(KeepAlive::new(body, period))),
                false => response.map(DirectBody::new),
            })
        })
    }
}
