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

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) connect_timeout: Duration,
    pub(crate) timeout: Duration,
    pub(crate) silence: Duration,
    pub(crate) tunnel: Duration,
    /// Of the connection of HTTP/2 that requests share.
    pub(crate) age: Duration,
    pub(crate) idle: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) requests: usize,
    pub(crate) queue: (usize, Duration),
    pub(crate) heads: HeadLimits,
    pub(crate) breaker: (u32, Duration),
    /// `None`: that of the client's connection.
    pub(crate) scheme: Option<HeaderValue>,
    pub(crate) forwarded: bool,
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

    /// Sets how connections to an upstream of `https:` are secured: the roots that are trusted, a certificate of this proxy,
    /// versions. There is no default: which authorities speak for a server behind a proxy, often one of its own, is for the
    /// operator to say.
    ///
    /// Sessions are kept by the configuration, and its clones. If it names no protocols (ALPN), HTTP/2 and HTTP/1.1 are
    /// offered; name one to have no other.
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

    /// Sets the time limit to connect, with the handshake of TLS; 5 s by default.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.options.connect_timeout = limit;
        self
    }

    /// Sets the time limit for the head of a response, which begins again with each piece of an upload; 30 s by default.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = limit;
        self
    }

    /// Sets the time that an upstream may pause in the body of a response; 5 minutes by default.
    pub fn body_timeout(mut self, limit: Duration) -> Self {
        self.options.silence = limit;
        self
    }

    /// Sets the time in which a tunnel may pass on no byte, after which it ends; 5 minutes by default. WebSockets that may be
    /// quiet for longer need pings. Once one side has sent its end, the time is at most 10 s.
    pub fn tunnel_timeout(mut self, limit: Duration) -> Self {
        self.options.tunnel = limit;
        self
    }

    /// Sets the age from which on the connection of HTTP/2 gets no more requests; 10 minutes by default. The next one opens
    /// another, so that changes of addresses are seen; requests in progress end on the old one.
    pub fn http2_age(mut self, limit: Duration) -> Self {
        self.options.age = limit;
        self
    }

    /// Sets the maximum number of idle connections to the upstream; 256 by default.
    pub fn idle_connections(mut self, most: usize) -> Self {
        self.options.idle = most;
        self
    }

    /// Sets the time after which an idle connection is not used, and soon closed; 60 s by default. Less than that of the upstream avoids most
    /// requests that are sent twice.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.options.idle_timeout = limit;
        self
    }

    /// Sets the maximum number of requests at the upstream, up to the ends of their responses; tunnels count too. 10 000 by
    /// default. Over HTTP/1.1 it is the maximum number of connections. Further requests [wait](Self::queue).
    pub fn requests(mut self, most: usize) -> Self {
        self.options.requests = most;
        self
    }

    /// Sets how many requests wait while there are [too many](Self::requests), and for how long: 1000, and 10 s. Others are
    /// answered with 503.
    pub fn queue(mut self, most: usize, limit: Duration) -> Self {
        self.options.queue = (most, limit);
        self
    }

    /// Sets the bytes of the head of a response; 64 KiB by default. A larger one is answered with 502. Over HTTP/2 the
    /// bytes count as [RFC 9113 §6.5.2](https://www.rfc-editor.org/rfc/rfc9113#section-6.5.2) says, with 32 for each field.
    /// They also limit the trailers of a chunked body, together with all extensions and spaces behind the sizes of its
    /// chunks.
    pub fn response_head_bytes(mut self, bytes: usize) -> Self {
        self.options.heads.bytes = bytes;
        self
    }

    /// Sets the number of fields of the head of a response; 100 by default. One with more is answered with 502.
    pub fn response_head_fields(mut self, count: usize) -> Self {
        self.options.heads.fields = count;
        self
    }

    /// Sets a circuit breaker: after so many failures in a row, at least 1, requests are answered with 503 and `Retry-After` for the
    /// `back_off`. Then one request is sent, and its outcome decides. A failure is a connection that is refused, ended before
    /// the head of a response, or without it in [time](Self::timeout); a response with any status is none. If there is no
    /// outcome after another `back_off`, the next request takes its turn, and one without a body at once that of an upload.
    ///
    /// There is none by default: there is no other server to ask, and a client that knows a request that fails could close
    /// the way of all others.
    pub fn breaker(mut self, failures: u32, back_off: Duration) -> Self {
        self.options.breaker = (failures, back_off);
        self
    }

    /// Sets the scheme that clients use, for `X-Forwarded-Proto` and `Forwarded`. By default `https` on a connection whose TLS
    /// [`serve`](millstream::server::serve()) ends, and else `http`: set it behind a server that ends TLS.
    pub fn scheme(mut self, scheme: impl Into<String>) -> Self {
        self.scheme = Some(scheme.into());
        self
    }

    /// Sets whether requests get `Forwarded` ([RFC 7239](https://www.rfc-editor.org/rfc/rfc7239)) too: the address of the
    /// client, its `Host`, and the scheme. Not by default; a field of the client is passed on either way.
    pub fn forwarded(mut self, on: bool) -> Self {
        self.options.forwarded = on;
        self
    }

    /// Adds a field to each response of the upstream. Replaces its fields of this name. `Content-Length` and
    /// `Transfer-Encoding`, which frame the body, are not allowed.
    pub fn response_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.options.stamps.append(name, value);
        self
    }

    /// Returns the options, checked.
    pub(crate) fn options(&self) -> Result<Options, ConfigError> {
        let mut options = self.options.clone();
        if options.breaker.0 == 0 {
            // A circuit that no failure opens would always be open.
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
