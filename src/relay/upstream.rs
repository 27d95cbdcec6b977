//! The server behind a proxy: its address, and connections to it.

use std::fmt;
use std::io;
#[cfg(unix)]
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderValue;
use http::uri::Authority;
use hyper::rt;

use super::error::UpstreamError;
#[cfg(unix)]
use crate::net::UnixStream;
use crate::net::{ConnectError, Connector, Rewind, TcpStream};

/// The server behind a [`Proxy`](super::Proxy). Parsed from `http://HOST:PORT`, `HOST:PORT` or `unix:PATH`; a prefix
/// `h2c:` selects HTTP/2 without TLS, as in `h2c:HOST:PORT`.
#[derive(Clone, PartialEq, Eq)]
pub struct Upstream {
    address: Address,
    /// `Host` of requests that have none.
    authority: Authority,
    is_http2: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Tcp(String, u16),
    #[cfg(unix)]
    Unix(PathBuf),
}

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        let fail = || UpstreamError(text.to_owned());
        let (is_http2, rest) = match text.strip_prefix("h2c:") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        #[cfg(unix)]
        if let Some(path) = rest.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            let authority = Authority::from_static("localhost");
            return Ok(Self { address: Address::Unix(path.into()), authority, is_http2 });
        }
        let plain = rest.strip_prefix("http://").unwrap_or(rest);
        let plain = plain.strip_suffix('/').unwrap_or(plain);
        let authority: Authority = plain.parse().map_err(|_| fail())?;
        let (host, port) = (authority.host(), authority.port_u16());
        if host.is_empty() || plain.contains('@') || (port.is_none() && rest.len() == plain.len()) {
            return Err(fail());
        }
        let address = Address::Tcp(host.to_owned(), port.unwrap_or(80));
        Ok(Self { address, authority, is_http2 })
    }
}

impl Upstream {
    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the `Host` of requests that have none.
    pub(super) fn host(&self) -> HeaderValue {
        HeaderValue::from_str(self.authority.as_str()).expect("internal: an authority is visible ASCII")
    }

    pub(super) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Connects within `limit`.
    pub(super) async fn connect(&self, limit: Duration) -> Result<Stream, ConnectError> {
        match &self.address {
            Address::Tcp(host, port) => Connector::new().timeout(limit).connect_to(host, *port).await.map(Stream::Tcp),
            #[cfg(unix)]
            Address::Unix(path) => Connector::unix(path).timeout(limit).connect().await.map(Stream::Unix),
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_http2 {
            f.write_str("h2c:")?;
        }
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

/// A connection to the upstream.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// Calls a method of the stream inside.
macro_rules! inner {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream {
            Stream::Tcp($inner) => $call,
            #[cfg(unix)]
            Stream::Unix($inner) => $call,
        }
    };
}
pub(super) use inner;

impl Stream {
    /// Gives bytes back that were read.
    pub(super) fn unread(&mut self, bytes: &[u8]) {
        inner!(self, stream => Rewind::unread(stream, bytes));
    }
}

impl rt::Read for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: rt::ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        inner!(self.get_mut(), stream => rt::Read::poll_read(Pin::new(stream), cx, buf))
    }
}

impl rt::Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        inner!(self.get_mut(), stream => rt::Write::poll_write(Pin::new(stream), cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        inner!(self.get_mut(), stream => rt::Write::poll_write_vectored(Pin::new(stream), cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        inner!(self, stream => rt::Write::is_write_vectored(stream))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self.get_mut(), stream => rt::Write::poll_flush(Pin::new(stream), cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self.get_mut(), stream => rt::Write::poll_shutdown(Pin::new(stream), cx))
    }
}
