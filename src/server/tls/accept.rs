//! The handshake, and those who do not know that there is one.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::TlsAcceptor;

use super::config::Tls;
use super::stream::TlsStream;
use crate::counters::{Counter, count};
use crate::net::Rewind;

/// Bytes that are read at once to look at the first: most clients' first message.
const LOOK: usize = 2 << 10;
/// Most bytes of a request without TLS that are read and thrown away, so that closing does not reset the answer.
const REQUEST_MAX: u64 = 64 << 10;

/// What a client is told that speaks HTTP without TLS.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    content-type: text/plain; charset=utf-8\r\n\
    content-length: 36\r\n\
    connection: close\r\n\
    \r\n\
    This port speaks TLS: use https://.\n";

impl Tls {
    /// Makes a connection of this crate's, which was accepted and not read from, one over TLS. A client that speaks
    /// HTTP without TLS is answered with 400.
    ///
    /// A server that was given [`Serve::tls`](crate::server::Serve::tls) does this by itself. By hand, wrap it into a
    /// time-out: it waits for the client as long as that takes.
    ///
    /// # Errors
    ///
    /// Those of the connection; `ErrorKind::InvalidData` for what is no TLS and for what cannot be agreed on, of which
    /// the client has been told by an alert; `ErrorKind::UnexpectedEof` if it has left.
    ///
    /// # Cancellation
    ///
    /// Dropping the future closes the connection.
    pub async fn accept<S>(&self, mut stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Rewind + Unpin,
    {
        let first = look(&mut stream).await?;
        // Counted when it is dropped, which is what a time-out does.
        let mut attempt = Attempt { counter: Counter::TlsFailures };
        if first.is_ascii_uppercase() {
            refuse(&mut stream).await?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "HTTP without TLS; answered with 400"));
        }
        let stream = TlsStream::new(TlsAcceptor::from(self.config()).accept(stream).await?);
        attempt.counter = if stream.is_resumed() { Counter::TlsResumed } else { Counter::TlsHandshakes };
        Ok(stream)
    }
}

/// What a handshake has come to.
struct Attempt {
    counter: Counter,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        count(self.counter, 1);
    }
}

/// The first byte that a client sends, which is given back. An error if it leaves without one, as those do that only
/// look whether somebody listens.
async fn look<S: AsyncRead + Rewind + Unpin>(stream: &mut S) -> io::Result<u8> {
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
