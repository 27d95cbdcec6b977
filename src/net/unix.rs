//! Unix sockets: a listener and its connections.

use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;

use super::credentials::Credentials;
use super::listener::{Listener, listener, stream_options};
use super::name::{self, Bound, Name};
use super::options::Options;
use super::profile::ProfileSwitch;
use super::stream::{Stream, stream};
use crate::runtime::Turn;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::{socket, unix};

/// A Unix socket listener whose connections are [`UnixStream`]s.
///
/// Replaces `tokio::net::UnixListener` in an accept loop, in `axum::serve` (feature `axum-08`) and in
/// [`server::serve`](crate::server::serve()).
///
/// # Socket file
///
/// [`bind`](Self::bind) replaces the socket file of a dead server, and fails if a server listens on it. Dropping the
/// listener removes the file, unless the name belongs to another file by then.
#[derive(Debug)]
pub struct UnixListener {
    /// Dropped first: no other file can have this inode number while the socket is open.
    _name: Option<Name>,
    listener: Listener,
}

/// Builder of a [`UnixListener`], from [`UnixListener::builder`].
#[derive(Clone, Debug)]
pub struct UnixListenerBuilder {
    backlog: u32,
    mode: Option<u32>,
    options: Options,
}

stream_options!(UnixListenerBuilder);

impl UnixListenerBuilder {
    /// Sets the maximum number of connections that wait to be accepted; 4096 by default, at most `net.core.somaxconn`
    /// ([listen(2)](https://man7.org/linux/man-pages/man2/listen.2.html)). Further connects fail with `EAGAIN`.
    #[must_use]
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = connections;
        self
    }

    /// Sets the permission bits of the file, such as `0o660`, regardless of the umask; by default `0o777` less the
    /// umask. A client needs write permission, [unix(7)](https://man7.org/linux/man-pages/man7/unix.7.html). The bits
    /// are set before any client can connect. Abstract names have none.
    #[must_use]
    pub fn mode(mut self, bits: u32) -> Self {
        self.mode = Some(bits);
        self
    }

    /// Binds and listens; see [`UnixListener::bind`] for errors, cancel safety and panics.
    pub async fn bind(self, path: impl AsRef<Path>) -> io::Result<UnixListener> {
        let Self { backlog, mode, options } = self;
        options.check()?;
        let Bound { name, socket } = name::bind(path.as_ref().to_owned(), backlog, mode).await?;
        Ok(UnixListener { _name: name, listener: Listener::new(socket, options, ProfileSwitch::default())? })
    }

    /// Takes over an existing listener, for instance from a supervisor, and makes it nonblocking. Its file stays when
    /// the listener is dropped. [`backlog`](Self::backlog) and [`mode`](Self::mode) do not apply.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub fn from_std(self, listener: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
        self.options.check()?;
        socket::adopt(listener.as_fd())?;
        let listener = Listener::new(listener.into(), self.options, ProfileSwitch::default())?;
        Ok(UnixListener { _name: None, listener })
    }
}

impl UnixListener {
    /// Returns a builder with default options.
    pub fn builder() -> UnixListenerBuilder {
        UnixListenerBuilder { backlog: 4096, mode: None, options: Options::default() }
    }

    /// Binds `path` and listens. Other than tokio's it is `async`, because it may wait for another server that starts.
    /// A path that begins with a NUL is an abstract name, without file and permissions: any
    /// process in the network namespace can connect.
    ///
    /// If the directory is readable it is locked meanwhile
    /// ([flock(2)](https://man7.org/linux/man-pages/man2/flock.2.html)), so that exactly one of several starting
    /// servers gets the name. The lock needs the runtime's timer. After 2 s, binding continues without the lock.
    ///
    /// # Errors
    ///
    /// Errors name the path and the step. [`AddrInUse`](io::ErrorKind::AddrInUse): a server listens there, or the file
    /// is not a socket. Paths have at most 107 bytes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no listener and no file behind.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub async fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::builder().bind(path).await
    }

    /// As [`bind`](Self::bind), for an address. An address without a name is
    /// [`InvalidInput`](io::ErrorKind::InvalidInput).
    pub async fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::bind(unix::path(addr)?).await
    }

    /// Takes over an existing listener; see [`UnixListenerBuilder::from_std`], also for panics.
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        Self::builder().from_std(listener)
    }

    /// Returns the local address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix::local_addr(self)
    }
}

listener!(UnixListener, UnixStream, SocketAddr, unix::accept);

/// A Unix socket connection that detects the origin of bytes, such as a file, and gathers small writes.
///
/// Behaves like [`TcpStream`](super::TcpStream), with two exceptions. Unix sockets cannot be reset: when a file shrinks
/// while it is sent, the stream fails and the peer sees an end, at which it must notice missing bytes, as HTTP does.
/// The unsent bytes of a dropped stream are discarded after 30 s by a timer of the runtime, not by the kernel.
pub struct UnixStream {
    stream: Stream,
}

stream!(UnixStream, std::os::unix::net::UnixStream, SocketAddr);

impl UnixStream {
    /// Returns whether bytes were received that another reader of the socket misses.
    pub(crate) fn has_received_ahead(&self) -> bool {
        self.stream.has_received_ahead()
    }

    /// Connects to the listener at `path`, which is an abstract name if it begins with a NUL.
    ///
    /// Other than tokio's it is ready when it is first polled, whether or not the listener has accepted. If the listener
    /// is dropped before it accepts, the connection ends: on Linux the next read fails with
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

    pub(super) fn connect_with(path: &Path, options: Options) -> io::Result<Self> {
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
