//! A TCP connection for tokio and hyper alike.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::ToSocketAddrs;

use super::egress::{Egress, Gather};
use crate::kernel::{call, socket};
use crate::turn::Turn;

/// A TCP connection that recognises where the bytes it is given came from, and gathers small writes.
///
/// Implements tokio's [`AsyncRead`] and [`AsyncWrite`] and hyper's [`Read`](hyper::rt::Read) and
/// [`Write`](hyper::rt::Write), so it needs no wrapper under axum, tonic or hyper. `TCP_NODELAY` is set.
///
/// # Writing
///
/// A write that returned `n` has taken `n` bytes: they are sent in order, once, at the end of the runtime's turn at the
/// latest, or after the gather limit (1 ms unless the [listener](super::TcpListener::builder) says otherwise) while
/// more writes keep coming. The first write after something was received leaves at once: somebody waits for it. `flush`
/// returns at once; call [`flushed`](Self::flushed) to wait until the kernel has taken everything.
///
/// # Errors
///
/// An error met while bytes were sent at the end of a turn is returned by the next call, and by all after it. A file
/// that shrinks while it is being sent fails the stream with [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) and resets
/// the connection, so that the peer cannot take what it got for the whole.
///
/// # Cancellation and drop
///
/// All methods are cancel safe: a dropped future has lost no bytes. Dropping the stream sends what is queued and then
/// closes it; for what the socket cannot take at that moment a task keeps it open for as long as the peer goes on
/// reading. After `shutdown` has returned nothing is queued.
pub struct TcpStream {
    egress: Arc<Egress>,
}

impl TcpStream {
    /// Connects to the first of the addresses that answers.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub async fn connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        Self::from_std(tokio::net::TcpStream::connect(addr).await?.into_std()?)
    }

    /// Takes over a connected stream; makes it non-blocking and sets `TCP_NODELAY`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        socket::adopt(stream.as_fd())?;
        Self::new(stream.into(), Turn::current(), Gather::default())
    }

    pub(super) fn new(socket: OwnedFd, turn: Arc<Turn>, gather: Gather) -> io::Result<Self> {
        Ok(Self { egress: Egress::new(socket, turn, gather)? })
    }

    /// The address of this end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        socket::local_addr(self)
    }

    /// The address of the other end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        socket::peer_addr(self)
    }

    /// Bytes that were written and wait to be handed to the kernel.
    pub fn queued(&self) -> usize {
        self.egress.queued()
    }

    /// Waits until the kernel has taken every byte that was written.
    ///
    /// # Errors
    ///
    /// The error that ended the stream, if one did; the bytes that were queued then are lost.
    pub async fn flushed(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.egress.poll_drained(cx)).await
    }

    /// Has `receive` take bytes from the socket, `room` of them at most, and says how many came when they have. It must
    /// not block. With a `room` of 1 a short answer is not taken for a socket that is empty.
    pub(crate) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        mut receive: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<()>> {
        if room == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            let mut ready = ready!(self.egress.io().poll_read_ready(cx))?;
            match receive(self.as_fd()) {
                Ok(n) => {
                    if n > 0 {
                        self.egress.peer_spoke();
                    }
                    // A short read has emptied the socket: asking again would only be told to wait.
                    if (1..room).contains(&n) {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// Has `send` send bytes of its own, behind all that were written before.
    pub(crate) fn poll_send_with(
        &self,
        cx: &mut Context<'_>,
        send: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.egress.poll_send_with(cx, send)
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpStream");
        if let Ok(peer) = self.peer_addr() {
            debug.field("peer", &peer);
        }
        debug.field("egress", &self.egress).finish()
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.egress.io().get_ref().as_fd()
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        Arc::clone(&self.egress).abandon();
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_receive(cx, buf.remaining(), |fd| call::receive(fd, buf))
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.egress.poll_write(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.egress.poll_write(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.egress.check())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.egress.poll_shutdown(cx)
    }
}

impl hyper::rt::Read for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_receive(cx, buf.remaining(), |fd| call::receive_cursor(fd, &mut buf))
    }
}

impl hyper::rt::Write for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(self, cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write_vectored(self, cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(self, cx)
    }
}

#[cfg(feature = "tonic")]
impl tonic::transport::server::Connected for TcpStream {
    type ConnectInfo = tonic::transport::server::TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        tonic::transport::server::TcpConnectInfo {
            local_addr: self.local_addr().ok(),
            remote_addr: self.peer_addr().ok(),
        }
    }
}
