//! TCP: connections.

use std::io;
use std::net::SocketAddr;

use tokio::net::ToSocketAddrs;

use super::stream::{Stream, stream};
use crate::net::options::Options;
use crate::runtime::Turn;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::socket;

/// A TCP connection that detects the origin of bytes, such as a file, and gathers small writes.
///
/// Implements tokio's [`AsyncRead`](tokio::io::AsyncRead) and [`AsyncWrite`](tokio::io::AsyncWrite) and hyper's
/// [`Read`](hyper::rt::Read) and [`Write`](hyper::rt::Write), so it needs no wrapper for axum, tonic or hyper.
/// `TCP_NODELAY` is set.
///
/// # Writing
///
/// A write that returns `n` has accepted `n` bytes. They are sent once and in order: at the end of the runtime's turn,
/// or, while more writes keep coming, after the gather limit (1 ms unless set on the
/// [listener](crate::net::TcpListener::builder)). The first write after a read leaves at once: the peer waits.
///
/// If the runtime does not reach the end of the turn, because a task blocks or computes, or because `block_on` has
/// returned, a thread of this crate sends the bytes some milliseconds after the gather limit.
///
/// `flush` does not wait. In the future of a `block_on` it offers the bytes to the kernel; in a task the end of the
/// turn does, together with later writes. [`flushed`](Self::flushed) waits until the kernel has accepted everything.
///
/// # Errors
///
/// An error at the end of a turn is returned once, by the next write, `flush` or `shutdown`, or by a read at the end of
/// the stream. Later writes fail as on tokio's stream, and `flushed` keeps failing. Reading continues: the answer of a
/// peer that takes no more bytes can still be read.
///
/// A file that shrinks while it is sent fails the stream permanently with
/// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) and resets the connection, so that the peer notices.
///
/// # Cancel safety and drop
///
/// All methods are cancel safe: a dropped future loses no bytes.
///
/// Dropping the stream hands queued bytes to the kernel and closes the socket; so does process exit by
/// `std::process::exit` or by returning from `main`, for all streams. If the bytes do not fit, the send buffer is
/// enlarged (`SO_SNDBUF`, up to `net.core.wmem_max`). The rest is sent in the background while the peer keeps reading,
/// even after the end of the runtime; process exit waits for it, at most 1 s. With a
/// [linger](https://man7.org/linux/man-pages/man7/socket.7.html) time of zero the rest is discarded and the connection
/// reset.
///
/// `shutdown` does not wait either: it ends the stream behind the queued bytes, and later writes fail.
/// [`flushed`](Self::flushed) then waits until the kernel has accepted the bytes and the end.
///
/// # Differences from tokio's stream
///
/// * A write to a peer that has gone may succeed; a later call returns its error.
/// * Bytes written within the last gather limit, and bytes that wait for a slow peer, are lost if the process is
///   killed, aborts, calls `_exit` or executes another program.
/// * A stream that outlives its runtime still sends while the socket has room; tokio's fails.
/// * A stream whose socket is full is writable until its queue has refused a write, and again when the queue has room.
///   It is readable once the runtime has seen bytes; tokio also takes a new connection for readable.
/// * One task may wait to read, and one to write or for [`flushed`](Self::flushed). Of several, the last one is woken.
/// * [`try_read_vectored`](Self::try_read_vectored) fills one buffer.
/// * [`into_std`](Self::into_std) fails while bytes are queued, or read and given back.
/// * The halves of a split are generic: [`OwnedReadHalf`](crate::net::OwnedReadHalf) stands for
///   `tokio::net::tcp::OwnedReadHalf`, `OwnedReadHalf<UnixStream>` for that of Unix sockets.
/// * There is no `try_io` or `async_io`: calls on the socket itself would overtake queued bytes, and miss those that
///   were received ahead.
pub struct TcpStream {
    pub(in crate::net) stream: Stream,
}

stream!(TcpStream, std::net::TcpStream, SocketAddr);

impl TcpStream {
    /// Connects to the first address that answers.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub async fn connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        Self::from_std(tokio::net::TcpStream::connect(addr).await?.into_std()?)
    }

    /// Takes over a connected stream. Makes it nonblocking and sets `TCP_NODELAY`.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        socket::adopt_tcp(stream.as_fd())?;
        Self::with(stream.into(), Options::default())
    }

    /// Creates a stream of a connected socket, prepared by [`adopt_tcp`](socket::adopt_tcp).
    pub(in crate::net) fn with(socket: OwnedFd, options: Options) -> io::Result<Self> {
        Ok(Self { stream: Stream::new(socket, Turn::current(), options)? })
    }

    /// Returns the local address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        socket::local_addr(self)
    }

    /// Returns the address of the peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        socket::peer_addr(self)
    }
}

#[cfg(feature = "tonic-014")]
impl tonic::transport::server::Connected for TcpStream {
    type ConnectInfo = tonic::transport::server::TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        tonic::transport::server::TcpConnectInfo {
            local_addr: self.local_addr().ok(),
            remote_addr: self.peer_addr().ok(),
        }
    }
}
