//! Connections to the upstream: how they are opened, and which version of HTTP they speak.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

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
    /// Time limit of a connection, with its handshake.
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

    /// Connects without TLS, and sends the PROXY header.
    async fn begin(&self, header: &ClientHeader) -> Result<Stream, RequestFailure> {
        let mut stream = self.upstream.connect(self.limit).await.map_err(RequestFailure::Connect)?;
        if let Some(header) = header {
            let sent = async { inner!(&mut stream, stream => stream.write_all(header).await) };
            // An error is also that of the handshake or the request, which follows.
            let _ = timeout(self.limit, sent).await.map_err(|_| RequestFailure::Timeout)?;
        }
        Ok(stream)
    }

    /// Connects for requests with this header; with `http1`, for HTTP/1.1 only. Also returns whether the connection uses
    /// HTTP/2.
    pub(crate) async fn connect(&self, http1: bool, header: &ClientHeader) -> Result<(Stream, bool), RequestFailure> {
        let connecting = self.begin(header);
        #[cfg(feature = "__tls")]
        if let Some(secure) = &self.secure {
            let deadline = tokio::time::Instant::now().checked_add(self.limit);
            let Stream::Tcp(stream) = connecting.await? else {
                unreachable!("internal: a secured address is one of TCP");
            };
            let shaking = secure.connect(stream, http1);
            let shaken = match deadline {
                Some(deadline) => tokio::time::timeout_at(deadline, shaking).await.map_err(std::io::Error::from),
                None => Ok(shaking.await),
            };
            let failed = |error| RequestFailure::Handshake(HandshakeError::new(&self.upstream, error));
            let stream = shaken.and_then(|shaken| shaken).map_err(failed)?;
            let is_http2 = stream.is_http2();
            if !http1 {
                self.chose_http1.store(!is_http2, Ordering::Relaxed);
            }
            return Ok((Stream::Tls(stream), is_http2));
        }
        let _ = http1;
        Ok((connecting.await?, self.upstream.is_http2()))
    }
}
