//! Connections to the upstream: how they are opened, and which version of HTTP they speak.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout_at};

use super::client_header::ClientHeader;
#[cfg(feature = "__tls")]
use super::error::HandshakeError;
use super::failure::RequestFailure;
#[cfg(feature = "__tls")]
use super::secure::Secure;
use super::stream::{Stream, inner};
use super::upstream::Upstream;

pub(crate) struct Origin {
    pub(crate) upstream: Upstream,
    /// Time limit for connecting, sending the PROXY header and the TLS handshake together.
    pub(crate) limit: Duration,
    #[cfg(feature = "__tls")]
    secure: Option<Secure>,
    /// Whether the last connection that offered HTTP/2 agreed on HTTP/1.1.
    chose_http1: AtomicBool,
}

impl Origin {
    #[cfg(not(feature = "__tls"))]
    pub(crate) fn new(upstream: Upstream, limit: Duration) -> Self {
        Self { upstream, limit, chose_http1: AtomicBool::new(false) }
    }

    #[cfg(feature = "__tls")]
    pub(crate) fn new(upstream: Upstream, limit: Duration, secure: Option<Secure>) -> Self {
        Self { upstream, limit, secure, chose_http1: AtomicBool::new(false) }
    }

    /// Returns whether a connection may speak HTTP/1.1.
    pub(crate) fn has_http1(&self) -> bool {
        #[cfg(feature = "__tls")]
        if let Some(secure) = &self.secure {
            return secure.has_http1();
        }
        !self.upstream.is_http2()
    }

    /// Returns whether a connection may speak HTTP/2.
    pub(crate) fn has_http2(&self) -> bool {
        #[cfg(feature = "__tls")]
        if let Some(secure) = &self.secure {
            return secure.has_http2();
        }
        self.upstream.is_http2()
    }

    /// Returns whether requests should wait for a connection in progress, because they can probably share it.
    pub(crate) fn expects_http2(&self) -> bool {
        self.has_http2() && !self.chose_http1.load(Ordering::Relaxed)
    }

    /// Connects for requests with this header; with `http1`, for HTTP/1.1 only. Also returns whether the connection
    /// uses HTTP/2.
    pub(crate) async fn connect(&self, http1: bool, header: &ClientHeader) -> Result<(Stream, bool), RequestFailure> {
        let deadline = Instant::now().checked_add(self.limit);
        let connected = self.upstream.connect(self.limit).await;
        let mut stream = connected.map_err(|error| RequestFailure::Connect(error.into()))?;
        if let Some(header) = header {
            in_time(deadline, send(header, &mut stream)).await.map_err(RequestFailure::Connect)?;
        }
        #[cfg(feature = "__tls")]
        if let Some(secure) = &self.secure {
            let Stream::Tcp(stream) = stream else { unreachable!("internal: a secured address is one of TCP") };
            let failed = |error| RequestFailure::Handshake(HandshakeError::new(&self.upstream, error));
            let stream = in_time(deadline, secure.connect(stream, http1)).await.map_err(failed)?;
            let is_http2 = stream.is_http2();
            if !http1 {
                self.chose_http1.store(!is_http2, Ordering::Relaxed);
            }
            return Ok((Stream::Tls(stream), is_http2));
        }
        let _ = http1;
        Ok((stream, self.upstream.is_http2()))
    }
}

/// Sends the PROXY header.
async fn send(header: &[u8], stream: &mut Stream) -> io::Result<()> {
    let sent = inner!(stream, stream => stream.write_all(header).await);
    sent.map_err(|error| io::Error::new(error.kind(), format!("the upstream takes no PROXY header: {error}")))
}

/// Fails with `TimedOut` at the deadline.
async fn in_time<T>(deadline: Option<Instant>, doing: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match deadline {
        Some(deadline) => timeout_at(deadline, doing).await?,
        None => doing.await,
    }
}

#[cfg(test)]
mod tests;
