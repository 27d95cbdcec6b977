//! Options of a proxy.

#[cfg(feature = "__tls")]
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};

use super::error::ConfigError;
use super::http1::{FIELDS, HeadLimits};
use super::upstream::Upstream;
#[cfg(feature = "__tls")]
use millstream::server::tls::rustls::ClientConfig;
use millstream_proxy_protocol::ProxyVersion;

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) connect_timeout: Duration,
    pub(crate) timeout: Duration,
    pub(crate) silence: Duration,
    /// Period of comments in event streams; zero for none.
    pub(crate) keep_alive: Duration,
    pub(crate) tunnel: Duration,
    /// Maximum age of a shared HTTP/2 connection.
    pub(crate) age: Duration,
    pub(crate) idle: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) requests: usize,
    pub(crate) queue: (usize, Duration),
    pub(crate) heads: HeadLimits,
    pub(crate) breaker: (u32, Duration),
    /// `None`: the scheme of the client's connection.
    pub(crate) scheme: Option<HeaderValue>,
    pub(crate) forwarded: bool,
    pub(crate) proxy_protocol: Option<ProxyVersion>,
    pub(crate) stamps: HeaderMap,
}

/// Options of a [`Proxy`](super::Proxy). All limits are set by default.
#[derive(Clone, Debug)]
#[must_use]
pub struct ProxyBuilder {
    pub(crate) upstream: Upstream,
    options: Options,
    scheme: Option<String>,
    #[cfg(feature = "__tls")]
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            silence: Duration::from_secs(300),
            keep_alive: Duration::ZERO,
            tunnel: Duration::from_secs(300),
            age: Duration::from_secs(600),
            idle: 256,
            idle_timeout: Duration::from_secs(60),
            requests: 10_000,
            queue: (1000, Duration::from_secs(10)),
            heads: HeadLimits { bytes: 64 << 10, fields: FIELDS },
            breaker: (u32::MAX, Duration::ZERO),
            scheme: None,
            forwarded: false,
            proxy_protocol: None,
            stamps: HeaderMap::new(),
        }
    }
}

impl ProxyBuilder {
    pub(crate) fn new(upstream: Upstream) -> Self {
        Self {
            upstream,
            options: Options::default(),
            scheme: None,
            #[cfg(feature = "__tls")]
            tls: None,
        }
    }

    /// Sets the TLS configuration for an `https:` upstream: the trusted roots, a client certificate of this proxy, the
    /// TLS versions. There is no default, because only the operator knows which certificate authorities to trust:
    /// servers behind a proxy often use a private one.
    ///
    /// The configuration and its clones share the TLS sessions. If it names no ALPN protocols, HTTP/2 and HTTP/1.1 are
    /// offered. If it names some, only those are offered.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use millstream_proxy::Proxy;
    /// use millstream::server::tls::rustls::pki_types::{CertificateDer, pem::PemObject};
    /// use millstream::server::tls::rustls::{ClientConfig, RootCertStore, crypto::ring};
    ///
    /// # fn build() -> Result<Proxy, Box<dyn std::error::Error>> {
    /// let mut roots = RootCertStore::empty();
    /// for root in CertificateDer::pem_file_iter("authority.pem")? {
    ///     roots.add(root?)?;
    /// }
    /// let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
    ///     .with_safe_default_protocol_versions()?
    ///     .with_root_certificates(roots)
    ///     .with_no_client_auth();
    /// Ok(Proxy::builder("https://backend.internal".parse()?).upstream_tls(Arc::new(config)).build()?)
    /// # }
    /// ```
    #[cfg(feature = "__tls")]
    pub fn upstream_tls(mut self, config: Arc<ClientConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// Sets the time limit for connecting, including the [PROXY header](Self::proxy_protocol) and the TLS handshake;
    /// 5 s by default. Requests that wait until another has connected by HTTP/2, and the SETTINGS of the upstream have
    /// arrived, wait for the same time at most.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.options.connect_timeout = limit;
        self
    }

    /// Sets the time limit for the head of a response; 30 s by default. Each piece of an upload restarts it.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = limit;
        self
    }

    /// Sets how long an upstream may pause within the body of a response; 5 minutes by default.
    pub fn body_timeout(mut self, limit: Duration) -> Self {
        self.options.silence = limit;
        self
    }

    /// Sets the period after which a silent event stream (`text/event-stream`) of the upstream gets a comment, by
    /// [`KeepAlive`](millstream::sse::KeepAlive), so that load balancers and clients do not take the connection for
    /// dead. The comment is sent after half to all of the period, between two events. Zero, the default, disables it.
    ///
    /// Responses with a `Content-Length` or a `Content-Encoding` pass unchanged. Comments do not prolong
    /// [`body_timeout`](Self::body_timeout). The head of the response is not sent before the upstream has answered. A
    /// `KeepAliveLayer` of the crate `millstream-layers` around the proxy can do that, but the bytes of other
    /// responses then pass through this process.
    pub fn keep_alive(mut self, period: Duration) -> Self {
        self.options.keep_alive = period;
        self
    }

    /// Sets the time after which a tunnel without traffic ends; 5 minutes by default. WebSockets that can be quiet for
    /// longer need pings. After one side has ended its stream, the time is at most 10 s.
    pub fn tunnel_timeout(mut self, limit: Duration) -> Self {
        self.options.tunnel = limit;
        self
    }

    /// Sets the maximum age at which an HTTP/2 connection gets new requests; 10 minutes by default. The next request
    /// opens a new connection, so the proxy follows changes of the upstream's addresses. Requests in progress finish on
    /// the old connection.
    pub fn http2_age(mut self, limit: Duration) -> Self {
        self.options.age = limit;
        self
    }

    /// Sets the maximum number of idle connections to the upstream; 256 by default. With
    /// [`proxy_protocol`](Self::proxy_protocol), set it to the number of clients that are connected at the same time.
    pub fn idle_connections(mut self, most: usize) -> Self {
        self.options.idle = most;
        self
    }

    /// Sets the time after which an idle connection is no longer used; 60 s by default. It is closed soon afterwards.
    /// Set it below the idle timeout of the upstream: this avoids most repeated requests.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.options.idle_timeout = limit;
        self
    }

    /// Sets the maximum number of requests in progress at the upstream. A request is in progress until its response has
    /// ended. Tunnels count too. 10 000 by default. Over HTTP/1.1 it is the maximum number of connections. Further
    /// requests [wait](Self::queue).
    pub fn requests(mut self, most: usize) -> Self {
        self.options.requests = most;
        self
    }

    /// Sets how many requests wait while there are [too many](Self::requests), and for how long: 1000, and 10 s. Others
    /// are answered with 503.
    pub fn queue(mut self, most: usize, limit: Duration) -> Self {
        self.options.queue = (most, limit);
        self
    }

    /// Sets the maximum size of a response head in bytes; 64 KiB by default. A larger head causes a 502. Over HTTP/2
    /// the size is computed as in [RFC 9113 §6.5.2](https://www.rfc-editor.org/rfc/rfc9113#section-6.5.2), with 32
    /// bytes added for each field. For a chunked body, the same limit applies to the sum of the trailers, the chunk
    /// extensions and the spaces after chunk sizes.
    pub fn response_head_bytes(mut self, bytes: usize) -> Self {
        self.options.heads.bytes = bytes;
        self
    }

    /// Sets the maximum number of fields in a response head; 100 by default. A head with more causes a 502.
    pub fn response_head_fields(mut self, count: usize) -> Self {
        self.options.heads.fields = count;
        self
    }

    /// Sets a circuit breaker. After `failures` failures in a row (at least 1), requests are answered with 503 and
    /// `Retry-After` for the time `back_off`. Then one request is sent as a probe, and its outcome closes or reopens
    /// the circuit. A failure is a refused connection, a connection that ends before the head of a response, or a head
    /// that does not arrive in [time](Self::timeout). A response is not a failure, whatever its status. If the probe
    /// has no outcome after another `back_off`, the next request becomes the probe. A request without a body replaces
    /// an upload as the probe at once.
    ///
    /// There is no circuit breaker by default, for two reasons. There is no other server to send requests to. And a
    /// client that can make a request fail could open the circuit for all other clients.
    pub fn breaker(mut self, failures: u32, back_off: Duration) -> Self {
        self.options.breaker = (failures, back_off);
        self
    }

    /// Sets the scheme that clients use, for `X-Forwarded-Proto` and `Forwarded`. By default `https` on a connection
    /// whose TLS [`serve`](millstream::server::serve()) ends, and else `http`: set it behind a server that ends TLS.
    pub fn scheme(mut self, scheme: impl Into<String>) -> Self {
        self.scheme = Some(scheme.into());
        self
    }

    /// Sets whether requests get `Forwarded` ([RFC 7239](https://www.rfc-editor.org/rfc/rfc7239)) too: the address of
    /// the client, its `Host`, and the scheme. Off by default. A `Forwarded` field sent by the client is always passed
    /// on.
    pub fn forwarded(mut self, on: bool) -> Self {
        self.options.forwarded = on;
        self
    }

    /// Sends a header of the [PROXY protocol](https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt) first on
    /// each connection to the upstream, before TLS: the address of the client whose requests the connection carries,
    /// with its port where that is known. Off by default. The upstream must expect it, as a
    /// [`ProxyListener`](millstream_proxy_protocol::ProxyListener) does, and must accept connections from this proxy
    /// only.
    ///
    /// The client is the one that `X-Forwarded-For` gets. A header that a `ProxyListener` in front of this proxy has
    /// received for it is passed on: version 2 with its fields, such as the host name, the TLS properties and the id of
    /// the connection, but without ALPN, because this proxy may speak another protocol to the upstream. TLS that the
    /// server of this proxy ends is not in the header; `X-Forwarded-Proto` tells of it.
    ///
    /// A request whose client has no known IP address, such as one from a Unix socket, has a header without addresses:
    /// `AF_UNSPEC`, or `UNKNOWN` in version 1. `LOCAL` is sent only for a received `LOCAL`, such as a health check by a
    /// load balancer.
    ///
    /// # Costs
    ///
    /// A connection carries only requests with the same header, as in
    /// [HAProxy](https://docs.haproxy.org/3.2/configuration.html#4.2-http-reuse): those of one connection of a client.
    /// So the upstream has about as many connections as the proxy has, each new client waits for a connection, over
    /// HTTP/2 too, and an idle connection helps only the client that has used it.
    ///
    /// Connections are reused only if [`idle_connections`](Self::idle_connections) is at least the number of clients
    /// that are connected at the same time, for upstreams of HTTP/1.1 and of HTTP/2. When there are more, the oldest
    /// connection is closed. Each is kept for the [`idle_timeout`](Self::idle_timeout) after its last request. If only
    /// the address is needed, `X-Forwarded-For` costs none of this.
    pub fn proxy_protocol(mut self, version: ProxyVersion) -> Self {
        self.options.proxy_protocol = Some(version);
        self
    }

    /// Adds a field to each response of the upstream, and removes other fields of the same name. `Content-Length` and
    /// `Transfer-Encoding`, which frame the body, are not allowed.
    pub fn response_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.options.stamps.append(name, value);
        self
    }

    /// Returns the options, checked.
    pub(crate) fn options(&self) -> Result<Options, ConfigError> {
        let mut options = self.options.clone();
        if options.breaker.0 == 0 {
            // With a limit of 0 the circuit would always be open.
            return Err(ConfigError::new("breaker", "0 failures", "at least 1"));
        }
        if let Some(scheme) = &self.scheme {
            // RFC 3986 §3.1.
            let valid = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
            let value = HeaderValue::from_str(scheme).ok().filter(|_| valid);
            let failed = || ConfigError::new("scheme", format!("{scheme:?}"), "the scheme of a URI, such as `https`");
            options.scheme = Some(value.ok_or_else(failed)?);
        }
        check_fields("response_header", options.stamps.keys())?;
        Ok(options)
    }
}

/// Refuses fields that frame a body, which is passed on as it is: a second, wrong length allows request smuggling.
pub(crate) fn check_fields<'a>(
    option: &'static str,
    names: impl IntoIterator<Item = &'a HeaderName>,
) -> Result<(), ConfigError> {
    match names.into_iter().find(|name| **name == CONTENT_LENGTH || **name == TRANSFER_ENCODING) {
        Some(name) => Err(ConfigError::new(option, name.as_str(), "fields that do not frame the body")),
        None => Ok(()),
    }
}
