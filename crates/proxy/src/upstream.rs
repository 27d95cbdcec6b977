//! The address of the server behind a proxy.

use std::fmt;
#[cfg(unix)]
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::HeaderValue;
use http::uri::{Authority, Scheme};

use super::error::UpstreamError;
use super::stream::Stream;
#[cfg(unix)]
use millstream::net::UnixConnector;
use millstream::net::{ConnectError, Connector};
#[cfg(feature = "__tls")]
use millstream::server::tls::rustls::pki_types::ServerName;

/// The server behind a [`Proxy`](super::Proxy). Parsed from `http://HOST:PORT`, `HOST:PORT` or `unix:PATH`; a prefix
/// `h2c:` selects HTTP/2 without TLS, as in `h2c:HOST:PORT`. `https://HOST:PORT` (features `tls-ring` and
/// `tls-aws-lc-rs`) is HTTP/2 or HTTP/1.1, as the server chooses ([RFC 7301](https://www.rfc-editor.org/rfc/rfc7301));
/// it needs `ProxyBuilder::upstream_tls`.
#[derive(Clone, PartialEq, Eq)]
pub struct Upstream {
    address: Address,
    /// `Host` of requests that have none.
    authority: Authority,
    speaks: Speaks,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Tcp(String, u16),
    #[cfg(unix)]
    Unix(PathBuf),
}

/// Protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Http1,
    Http2,
    /// TLS, which negotiates the version.
    #[cfg(feature = "__tls")]
    Tls,
}

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        let fail = || UpstreamError(text.to_owned());
        let (speaks, rest) = match text.strip_prefix("h2c:") {
            Some(rest) => (Speaks::Http2, rest),
            None => (Speaks::Http1, text),
        };
        #[cfg(unix)]
        if let Some(path) = rest.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            let authority = Authority::from_static("localhost");
            return Ok(Self { address: Address::Unix(path.into()), authority, speaks });
        }
        let (plain, port) = match rest.strip_prefix("http://") {
            Some(plain) => (plain, Some(80)),
            None => (rest, None),
        };
        #[cfg(feature = "__tls")]
        let (speaks, plain, port) = match text.strip_prefix("https://") {
            Some(plain) => (Speaks::Tls, plain, Some(443)),
            None => (speaks, plain, port),
        };
        let plain = plain.strip_suffix('/').filter(|_| port.is_some()).unwrap_or(plain);
        let authority: Authority = plain.parse().map_err(|_| fail())?;
        let host = authority.host();
        let port =
            authority.port_u16().or(port).filter(|_| !host.is_empty() && !plain.contains('@')).ok_or_else(fail)?;
        let this = Self { address: Address::Tcp(host.to_owned(), port), authority, speaks };
        #[cfg(feature = "__tls")]
        if speaks == Speaks::Tls && this.server_name().is_none() {
            return Err(fail());
        }
        Ok(this)
    }
}

impl Upstream {
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the `Host` of requests that have none.
    pub(crate) fn host(&self) -> HeaderValue {
        HeaderValue::from_str(self.authority.as_str()).expect("internal: an authority is visible ASCII")
    }

    pub(crate) fn scheme(&self) -> Scheme {
        if self.is_tls() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// Returns whether HTTP/2 is spoken without negotiation.
    pub(crate) fn is_http2(&self) -> bool {
        self.speaks == Speaks::Http2
    }

    pub(crate) fn is_tls(&self) -> bool {
        #[cfg(feature = "__tls")]
        return self.speaks == Speaks::Tls;
        #[cfg(not(feature = "__tls"))]
        false
    }

    /// Returns the name or address that the certificate must have.
    #[cfg(feature = "__tls")]
    pub(crate) fn server_name(&self) -> Option<ServerName<'static>> {
        let host = self.authority.host();
        let name = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        ServerName::try_from(name.to_owned()).ok()
    }

    /// Connects within `limit`, without TLS.
    pub(crate) async fn connect(&self, limit: Duration) -> Result<Stream, ConnectError> {
        match &self.address {
            Address::Tcp(host, port) => Connector::new().timeout(limit).connect_to(host, *port).await.map(Stream::Tcp),
            #[cfg(unix)]
            Address::Unix(path) => UnixConnector::new(path).timeout(limit).connect().await.map(Stream::Unix),
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.speaks {
            Speaks::Http1 => "",
            Speaks::Http2 => "h2c:",
            #[cfg(feature = "__tls")]
            Speaks::Tls => "https://",
        })?;
        match &self.address {
            Address::Tcp(..) => self.authority.fmt(f),
            #[cfg(unix)]
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({self})")
    }
}

#[cfg(test)]
mod tests;
