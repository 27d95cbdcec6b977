//! Options of a proxy.

use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};

use super::upstream::Upstream;

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Duration,
    pub(super) silence: Duration,
    pub(super) idle: usize,
    pub(super) idle_timeout: Duration,
    pub(super) scheme: HeaderValue,
    pub(super) stamps: HeaderMap,
}

/// Options of a [`Proxy`](super::Proxy).
#[derive(Clone, Debug)]
#[must_use]
pub struct ProxyBuilder {
    pub(super) upstream: Upstream,
    pub(super) options: Options,
}

impl ProxyBuilder {
    pub(super) fn new(upstream: Upstream) -> Self {
        let options = Options {
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            silence: Duration::from_secs(300),
            idle: 256,
            idle_timeout: Duration::from_secs(60),
            scheme: HeaderValue::from_static("http"),
            stamps: HeaderMap::new(),
        };
        Self { upstream, options }
    }

    /// Sets the time limit to connect; 5 s by default.
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

    /// Sets the scheme that clients use, for `X-Forwarded-Proto`; `http` by default. Set `https` behind
    /// [`Serve::tls`](crate::server::Serve), or behind a server that ends TLS.
    ///
    /// # Panics
    ///
    /// Panics if `scheme` is not a valid value of a field.
    #[track_caller]
    pub fn scheme(mut self, scheme: &str) -> Self {
        self.options.scheme = HeaderValue::from_str(scheme).expect("a scheme such as https");
        self
    }

    /// Adds a field to each response of the upstream. Replaces its fields of this name.
    ///
    /// # Panics
    ///
    /// Panics for `Content-Length` and `Transfer-Encoding`, which frame the body.
    #[track_caller]
    pub fn response_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        assert!(name != CONTENT_LENGTH && name != TRANSFER_ENCODING, "{name} frames the body and cannot be set");
        self.options.stamps.append(name, value);
        self
    }
}
