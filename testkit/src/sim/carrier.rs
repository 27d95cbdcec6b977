//! A side of a simulated connection, with TLS or without.

use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
#[cfg(feature = "tls")]
use tokio_rustls::client::TlsStream;

use super::socket::Socket;

/// A socket, or TLS over one. Dropping it closes the socket, without a `close_notify`.
pub enum Carrier {
    Plain(Socket),
    #[cfg(feature = "tls")]
    Sealed(Box<TlsStream<Socket>>),
}

impl Carrier {
    pub fn is_sealed(&self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    /// Returns the socket, over which what is read or written is not TLS.
    pub fn into_socket(self) -> Socket {
        match self {
            Self::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Self::Sealed(stream) => stream.into_inner().0,
        }
    }

    /// As [`into_socket`](Self::into_socket).
    pub fn socket_mut(&mut self) -> &mut Socket {
        match self {
            Self::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Self::Sealed(stream) => stream.get_mut().0,
        }
    }

    /// Resets the connection.
    pub fn reset(self) {
        self.into_socket().reset();
    }

    /// Vanishes, as [`Socket::vanish`].
    pub fn vanish(self) {
        self.into_socket().vanish();
    }

    /// Returns the record of `bytes`, which is not sent; that of a `close_notify` if there are none.
    ///
    /// # Panics
    ///
    /// Without TLS.
    #[cfg(feature = "tls")]
    pub fn seal(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Self::Sealed(stream) = self else { panic!("a connection without TLS") };
        let session = stream.get_mut().1;
        // Bytes that the server takes no more may fill it.
        session.set_buffer_limit(None);
        match bytes {
            [] => session.send_close_notify(),
            _ => io::Write::write_all(&mut session.writer(), bytes).expect("a session that takes bytes"),
        }
        let mut record = Vec::new();
        session.write_tls(&mut record).expect("memory");
        record
    }

    fn stream(&mut self) -> Pin<&mut dyn Duplex> {
        match self {
            Self::Plain(socket) => Pin::new(socket),
            #[cfg(feature = "tls")]
            Self::Sealed(stream) => Pin::new(&mut **stream),
        }
    }
}

/// The socket has the state of the connection.
impl Deref for Carrier {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Self::Sealed(stream) => stream.get_ref().0,
        }
    }
}

impl From<Socket> for Carrier {
    fn from(socket: Socket) -> Self {
        Self::Plain(socket)
    }
}

#[cfg(feature = "tls")]
impl From<TlsStream<Socket>> for Carrier {
    fn from(stream: TlsStream<Socket>) -> Self {
        Self::Sealed(Box::new(stream))
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl AsyncRead for Carrier {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buf)
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
