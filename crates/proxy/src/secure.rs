//! Connections to the upstream over TLS (features `tls-ring` and `tls-aws-lc-rs`), by rustls.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use millstream::internal::Rewind;
use millstream::net::TcpStream;

const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// TLS configuration of connections to the upstream. Clones of the configuration share its sessions.
#[derive(Clone)]
pub(crate) struct Secure {
    name: ServerName<'static>,
    any: Arc<ClientConfig>,
    /// For changes of the protocol, which only HTTP/1.1 supports.
    http1: Option<Arc<ClientConfig>>,
}

impl Secure {
    /// A configuration that names no protocols offers HTTP/2 and HTTP/1.1.
    pub(crate) fn new(name: ServerName<'static>, config: &Arc<ClientConfig>) -> Self {
        let with = |protocols: &[&[u8]]| {
            let mut config = ClientConfig::clone(config);
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            Arc::new(config)
        };
        let any = if config.alpn_protocols.is_empty() { with(&[HTTP2, HTTP1]) } else { Arc::clone(config) };
        let has_http1 = any.alpn_protocols.iter().any(|name| name == HTTP1);
        Self { name, any, http1: has_http1.then(|| with(&[HTTP1])) }
    }

    /// Returns whether HTTP/1.1 is offered.
    pub(crate) fn has_http1(&self) -> bool {
        self.http1.is_some()
    }

    /// Returns whether HTTP/2 is offered.
    pub(crate) fn has_http2(&self) -> bool {
        self.any.alpn_protocols.iter().any(|name| name == HTTP2)
    }

    /// Performs the handshake; with `http1`, offers HTTP/1.1 only.
    pub(crate) async fn connect(&self, stream: TcpStream, http1: bool) -> io::Result<Secured> {
        let config = self.http1.as_ref().filter(|_| http1).unwrap_or(&self.any);
        let stream = TlsConnector::from(Arc::clone(config)).connect(self.name.clone(), stream).await?;
        Ok(Secured { stream: Box::new(stream), unread: Vec::new() })
    }
}

impl fmt::Debug for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secure").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A connection over TLS.
#[derive(Debug)]
pub(crate) struct Secured {
    stream: Box<TlsStream<TcpStream>>,
    /// Received bytes that a reader gave back.
    unread: Vec<u8>,
}

impl Secured {
    /// Returns whether HTTP/2 was agreed on.
    pub(crate) fn is_http2(&self) -> bool {
        self.stream.get_ref().1.alpn_protocol() == Some(HTTP2)
    }

    /// Passes received bytes to `take`, once. An empty slice means the end of the stream.
    fn poll_received(&mut self, cx: &mut Context<'_>, room: usize, take: impl FnOnce(&[u8])) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let n = room.min(self.unread.len());
            take(&self.unread[..n]);
            self.unread.drain(..n);
            return Poll::Ready(Ok(()));
        }
        let mut stream = Pin::new(&mut *self.stream);
        let received = std::task::ready!(stream.as_mut().poll_fill_buf(cx))?;
        let n = received.len().min(room);
        take(&received[..n]);
        stream.consume(n);
        Poll::Ready(Ok(()))
    }
}

impl Rewind for Secured {
    fn unread(&mut self, bytes: &[u8]) {
        self.unread.splice(..0, bytes.iter().copied());
    }
}

impl AsyncRead for Secured {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_received(cx, buf.remaining(), |bytes| buf.put_slice(bytes))
    }
}

impl hyper::rt::Read for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_received(cx, buf.remaining(), |bytes| buf.put_slice(bytes))
    }
}

// The two traits have the same methods.
macro_rules! writes {
    ($($write:ident)::+) => {
        impl $($write)::+ for Secured {
            fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                Pin::new(&mut *self.stream).poll_write(cx, buf)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut *self.stream).poll_write_vectored(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                self.stream.is_write_vectored()
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut *self.stream).poll_flush(cx)
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut *self.stream).poll_shutdown(cx)
            }
        }
    };
}
writes!(AsyncWrite);
writes!(hyper::rt::Write);
