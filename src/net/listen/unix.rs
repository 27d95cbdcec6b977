//! Unix sockets: a listener and its options.

use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;

use super::listener::{Listener, listener};
use super::name::{self, Bound, Name};
use crate::net::options::{Options, stream_options};
use crate::net::profile::ProfileSwitch;
use crate::net::stream::UnixStream;
use crate::sys::fd::AsFd;
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
    name: Option<Name>,
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
        Ok(UnixListener { name, listener: Listener::new(socket, options, ProfileSwitch::default(), None)? })
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
        let listener = Listener::new(listener.into(), self.options, ProfileSwitch::default(), None)?;
        Ok(UnixListener { name: None, listener })
    }
}

impl UnixListener {
    /// Returns a builder with default options.
    pub fn builder() -> UnixListenerBuilder {
        UnixListenerBuilder { backlog: 4096, mode: None, options: Options::default() }
    }

    /// Binds `path` and listens. Unlike tokio's `bind` it is `async`, because it may wait for another server that
    /// starts. A path that begins with a NUL is an abstract name, without file and permissions: any process in the
    /// network namespace can connect.
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

    /// Returns the listener of the standard library, which is nonblocking. Its file stays when it is dropped, for instance
    /// because another process has the socket too.
    pub fn into_std(self) -> io::Result<std::os::unix::net::UnixListener> {
        let socket = self.as_fd().try_clone_to_owned()?;
        if let Some(name) = self.name {
            name.keep();
        }
        Ok(socket.into())
    }
}

listener!(UnixListener, UnixStream, std::os::unix::net::UnixStream, SocketAddr, unix::accept, socket::adopt);
