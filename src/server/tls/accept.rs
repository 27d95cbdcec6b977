//! TLS handshakes, and clients that do not use TLS.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::server::Acceptor;

use super::config::Tls;
use super::stream::TlsStream;
use crate::counters::{Counter, count};
use crate::net::{Rewind, TakeOver};

/// Bytes read to see the first one: most clients' whole first message.
const LOOK: usize = 2 << 10;
/// Most bytes of a request without TLS that are discarded, so that closing does not reset the answer.
const REQUEST_MAX: u64 = 64 << 10;

/// Answer to a client that speaks HTTP without TLS.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    content-type: text/plain; charset=utf-8\r\n\
    content-length: 36\r\n\
    connection: close\r\n\
    \r\n\
    This port speaks TLS: use https://.\n";

impl Tls {
    /// Performs the handshake on a stream of this crate that was accepted and not yet read. A client that speaks HTTP
    /// without TLS is answered with 400.
    ///
    /// A server with [`Server::tls`](crate::server::Server::tls) calls this itself. Other callers should set a timeout:
    /// it waits for the client without a limit.
    ///
    /// # Errors
    ///
    /// Those of the stream; `ErrorKind::InvalidData` for data that is not TLS and for a failed negotiation, of which
    /// the client receives an alert; `ErrorKind::UnexpectedEof` if the client has left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn accept<S>(&self, mut stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Rewind + TakeOver + Unpin,
    {
        let first = peek_first(&mut stream).await?;
        // Counted on drop, so that a timeout counts as well.
        let mut attempt = Attempt { counter: Counter::TlsFailures };
        if first.is_ascii_uppercase() {
            refuse(&mut stream).await?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "HTTP without TLS; answered with 400"));
        }
        let stream = self.shake(stream).await?;
        attempt.counter = if stream.is_resumed() { Counter::TlsResumed } else { Counter::TlsHandshakes };
        Ok(stream)
    }

    /// Performs the handshake.
    async fn shake<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + TakeOver + Unpin,
    {
        let started = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let config = self.config_for(started.client_hello().cipher_suites());
        Ok(TlsStream::new(started.into_stream(config).await?))
    }
}

struct Attempt {
    counter: Counter,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        count(self.counter, 1);
    }
}

/// Returns a client's first byte, and gives it back to the stream. Fails if the client leaves without one.
async fn peek_first<S: AsyncRead + Rewind + Unpin>(stream: &mut S) -> io::Result<u8> {
    let mut bytes = vec![0; LOOK];
    let mut buf = ReadBuf::new(&mut bytes);
    poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut buf)).await?;
    let &first = buf.filled().first().ok_or(io::ErrorKind::UnexpectedEof)?;
    stream.unread(buf.filled());
    Ok(first)
}

async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    stream.write_all(PLAIN).await?;
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(REQUEST_MAX), &mut tokio::io::sink()).await?;
    Ok(())
}
