//! Unix sockets: connections.

use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;

use super::credentials::Credentials;
use super::stream::{Stream, stream};
use crate::net::options::Options;
use crate::runtime::Turn;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::{socket, unix};

/// A Unix socket connection that detects the origin of bytes, such as a file, and gathers small writes.
///
/// Behaves like [`TcpStream`](crate::net::TcpStream), with two exceptions. Unix sockets cannot be reset: when a file
/// shrinks while it is sent, the stream fails and the peer sees the end of the stream. The peer must detect from this
/// that bytes are missing, as HTTP does. The unsent bytes of a dropped stream are discarded after 30 s by a timer of
/// the runtime, not by the kernel.
pub struct UnixStream {
    pub(in crate::net) stream: Stream,
}

stream!(UnixStream, std::os::unix::net::UnixStream, SocketAddr);

impl UnixStream {
    /// Connects to the listener at `path`, which is an abstract name if it begins with a NUL.
    ///
    /// Unlike tokio's `connect` it is ready when it is first polled, whether or not the listener has accepted the
    /// connection. If the listener is dropped before it accepts, the connection ends: on Linux the next read fails with
    /// [`ConnectionReset`](io::ErrorKind::ConnectionReset).
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock): the listener's queue is full, and Unix sockets cannot wait for room
    /// without blocking. [`ConnectionRefused`](io::ErrorKind::ConnectionRefused): no server listens.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::connect_with(path.as_ref(), Options::default())
    }

    /// As [`connect`](Self::connect), for an address. An address without a name is
    /// [`InvalidInput`](io::ErrorKind::InvalidInput).
    pub async fn connect_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::connect(unix::path(addr)?).await
    }

    pub(in crate::net) fn connect_with(path: &Path, options: Options) -> io::Result<Self> {
        let socket = unix::stream()?;
        unix::connect_blocking(socket.as_fd(), path)?;
        Self::with(socket, options)
    }

    /// Creates two connected streams.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = unix::pair()?;
        Ok((Self::with(one, Options::default())?, Self::with(other, Options::default())?))
    }

    /// Takes over a connected stream and makes it nonblocking.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        socket::adopt(stream.as_fd())?;
        Self::with(stream.into(), Options::default())
    }

    fn with(socket: OwnedFd, options: Options) -> io::Result<Self> {
        Ok(Self { stream: Stream::new(socket, Turn::current(), options)? })
    }

    /// Returns the local address; unnamed at the connecting end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix::local_addr(self)
    }

    /// Returns the address of the peer; unnamed if the peer has connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        unix::peer_addr(self)
    }

    /// Returns the credentials of the peer.
    pub fn peer_cred(&self) -> io::Result<Credentials> {
        Credentials::of(self)
    }
}

#[cfg(feature = "tonic-014")]
impl tonic::transport::server::Connected for UnixStream {
    /// Type in a request's extensions; `None` if the kernel does not report the credentials.
    type ConnectInfo = Option<Credentials>;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.peer_cred().ok()
    }
}
