//! Unix sockets: a listener and its connections.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::SocketAddr;
use std::path::Path;

use super::listener::{Listener, listener, stream_options};
use super::name::{self, Bound, Name};
use super::options::Options;
use super::profile::ProfileSwitch;
use super::stream::{Stream, stream};
use crate::runtime::Turn;
use crate::sys::{socket, unix};

/// A listener on a Unix socket whose connections are [`UnixStream`]s.
///
/// Stands where `tokio::net::UnixListener` does: in an accept loop, in `axum::serve` (feature `axum`), in
/// [`http::serve`](crate::server::serve()).
///
/// # The file
///
/// A socket file that a dead server has left is replaced by [`bind`](Self::bind); one on which a server listens is an
/// error that says so. Dropping the listener removes the file, unless the name is another file's by then.
#[derive(Debug)]
pub struct UnixListener {
    /// Dropped first: while the socket is open no other file can have its number.
    _name: Option<Name>,
    listener: Listener,
}

/// Options of a [`UnixListener`], from [`UnixListener::builder`].
#[derive(Clone, Debug)]
pub struct UnixListenerBuilder {
    backlog: u32,
    mode: Option<u32>,
    options: Options,
}

stream_options!(UnixListenerBuilder);

impl UnixListenerBuilder {
    /// Connections that may wait to be accepted; 4096 by default. The kernel takes `net.core.somaxconn` if that is less
    /// ([listen(2)](https://man7.org/linux/man-pages/man2/listen.2.html)). Beyond that connecting fails with `EAGAIN`.
    #[must_use]
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = connections;
        self
    }

    /// Permission bits of the file, `0o660` for instance, exactly as given; by default what the process's umask leaves of
    /// `0o777`. Who connects needs to be allowed to write, [unix(7)](https://man7.org/linux/man-pages/man7/unix.7.html).
    /// Set before anybody can connect. Abstract names have none.
    #[must_use]
    pub fn mode(mut self, bits: u32) -> Self {
        self.mode = Some(bits);
        self
    }

    /// Binds and listens; see [`UnixListener::bind`].
    ///
    /// # Errors
    ///
    /// As [`UnixListener::bind`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub async fn bind(self, path: impl AsRef<Path>) -> io::Result<UnixListener> {
        let Self { backlog, mode, options } = self;
        let Bound { name, socket } = name::bind(path.as_ref().to_owned(), backlog, mode).await?;
        Ok(UnixListener { _name: name, listener: Listener::new(socket, options, ProfileSwitch::default())? })
    }

    /// Takes over a listener made elsewhere, by a supervisor for instance; makes it non-blocking. Its file stays when the
    /// listener is dropped. [`backlog`](Self::backlog) and [`mode`](Self::mode) do not apply.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub fn from_std(self, listener: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
        socket::adopt(listener.as_fd())?;
        let listener = Listener::new(listener.into(), self.options, ProfileSwitch::default())?;
        Ok(UnixListener { _name: None, listener })
    }
}

impl UnixListener {
    /// Options other than the defaults.
    pub fn builder() -> UnixListenerBuilder {
        UnixListenerBuilder { backlog: 4096, mode: None, options: Options::default() }
    }

    /// Binds `path` and listens. A path that begins with a NUL is an abstract name, without a file and without
    /// permissions: any process of the network namespace can connect.
    ///
    /// The directory is locked meanwhile ([flock(2)](https://man7.org/linux/man-pages/man2/flock.2.html)) if it may be
    /// read, so that of several servers that are started at once with one name exactly one gets it. Waiting for the lock
    /// needs the runtime's timer. If somebody else keeps the directory locked for 2 s, this goes on without the lock.
    ///
    /// # Errors
    ///
    /// They name the path and the step. [`AddrInUse`](io::ErrorKind::AddrInUse): a server listens there, or the name is
    /// taken by something that is no socket. Paths have at most 107 bytes.
    ///
    /// # Cancellation
    ///
    /// A dropped future leaves no listener and no file behind.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub async fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::builder().bind(path).await
    }

    /// Takes over a listener made elsewhere; see [`UnixListenerBuilder::from_std`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        Self::builder().from_std(listener)
    }

    /// The address that is listened on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix::local_addr(self)
    }
}

listener!(UnixListener, UnixStream, SocketAddr, unix::accept);

/// A connection by Unix socket that recognises where the bytes it is given came from, and gathers small writes.
///
/// All that is said of [`TcpStream`](super::TcpStream) holds, with two exceptions. Unix sockets know no reset: when a file
/// shrinks while it is being sent the stream fails, and the peer sees an end, at which it has to notice that something is
/// missing, as HTTP does. And what a dropped stream has left is given up after 30 s by a timer of the runtime, not by the
/// kernel.
pub struct UnixStream {
    stream: Stream,
}

stream!(UnixStream);

impl UnixStream {
    /// Connects to the listener at `path`, which is an abstract name if it begins with a NUL.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) says that the listener's queue is full: unlike TCP, Unix sockets cannot
    /// wait for room there without blocking. [`ConnectionRefused`](io::ErrorKind::ConnectionRefused): nobody listens.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::connect_with(path.as_ref(), Options::default())
    }

    /// As [`connect`](Self::connect), which never waits.
    pub(super) fn connect_with(path: &Path, options: Options) -> io::Result<Self> {
        let socket = unix::stream()?;
        unix::connect_blocking(socket.as_fd(), path)?;
        Self::with(socket, options)
    }

    /// Two streams that are connected to each other.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = unix::pair()?;
        Ok((Self::with(one, Options::default())?, Self::with(other, Options::default())?))
    }

    /// Takes over a connected stream; makes it non-blocking.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        socket::adopt(stream.as_fd())?;
        Self::with(stream.into(), Options::default())
    }

    fn with(socket: OwnedFd, options: Options) -> io::Result<Self> {
        Ok(Self { stream: Stream::new(socket, Turn::current(), options)? })
    }

    /// The address of this end; unnamed if it has connected.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix::local_addr(self)
    }

    /// The address of the other end; unnamed if that has connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        unix::peer_addr(self)
    }

    /// Who is at the other end.
    pub fn peer_cred(&self) -> io::Result<Credentials> {
        Credentials::of(self)
    }
}

/// Who was at the other end of a Unix socket when the connection was made (`SO_PEERCRED`,
/// [unix(7)](https://man7.org/linux/man-pages/man7/unix.7.html)). The kernel vouches for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// The process. By the time it is looked at this may be another one: decide by user and group. 0 if it is not visible
    /// from this process's namespace.
    pub pid: i32,
    /// The effective user.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
}

impl Credentials {
    pub(super) fn of(socket: &impl AsFd) -> io::Result<Self> {
        let (pid, uid, gid) = socket::peer_credentials(socket)?;
        Ok(Self { pid, uid, gid })
    }
}

#[cfg(feature = "tonic")]
impl tonic::transport::server::Connected for UnixStream {
    /// Found in a request's extensions under this type; `None` if the kernel does not say.
    type ConnectInfo = Option<Credentials>;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.peer_cred().ok()
    }
}
