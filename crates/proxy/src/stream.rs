//! A connection to the upstream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt;

#[cfg(feature = "__tls")]
use super::secure::Secured;
use millstream::internal::Rewind;
use millstream::net::TcpStream;
#[cfg(unix)]
use millstream::net::UnixStream;

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    #[cfg(feature = "__tls")]
    Tls(Secured),
}

/// Calls a method of the stream inside.
macro_rules! inner {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream {
            Stream::Tcp($inner) => $call,
            #[cfg(unix)]
            Stream::Unix($inner) => $call,
            #[cfg(feature = "__tls")]
            Stream::Tls($inner) => $call,
        }
    };
}
pub(crate) use inner;

impl Stream {
    /// Returns whether the stream is unencrypted, so that bytes can be moved from socket to socket.
    pub(crate) fn is_plain(&self) -> bool {
        #[cfg(feature = "__tls")]
        return !matches!(self, Self::Tls(_));
        #[cfg(not(feature = "__tls"))]
        true
    }

    /// Gives bytes back that were read.
    pub(crate) fn unread(&mut self, bytes: &[u8]) {
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
