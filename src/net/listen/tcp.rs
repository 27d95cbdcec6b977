//! TCP: a listener and its options.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use tokio::net::ToSocketAddrs;

use super::inherited::Inherited;
use super::listener::{Listener, listener};
use crate::net::options::{Options, stream_options};
use crate::net::profile::{Profile, ProfileSwitch};
use crate::net::stream::TcpStream;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::socket;

/// A TCP listener whose connections are [`TcpStream`]s.
///
/// Replaces `tokio::net::TcpListener` in an accept loop, in `axum::serve` (feature `axum-08`) and in
/// [`server::serve`](crate::server::serve()).
///
/// # Client addresses in axum
///
/// With [`server::serve`](crate::server::serve()) handlers can extract `ConnectInfo<SocketAddr>`. With `axum::serve`
/// the listener needs axum's `tap_io`, because axum implements `Connected` for `SocketAddr` only for its own listeners:
///
/// ```no_run
/// # #[cfg(feature = "axum-08")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use std::net::SocketAddr;
///
/// use axum::extract::ConnectInfo;
/// use axum::{Router, routing::get, serve::ListenerExt};
/// use millstream::net::TcpListener;
///
/// let app = Router::new().route("/", get(async |ConnectInfo(client): ConnectInfo<SocketAddr>| client.to_string()));
/// let listener = TcpListener::bind("127.0.0.1:8080").await?;
/// axum::serve(listener.tap_io(|_| {}), app.into_make_service_with_connect_info::<SocketAddr>()).await
/// # }
/// # #[cfg(not(feature = "axum-08"))]
/// # fn main() {}
/// ```
///
/// `axum::serve` aborts requests of half-closed clients. It has no option for this, and the stream cannot know whether
/// hyper reads for the next request. [`server::serve`](crate::server::serve()) supports such clients by
/// [`Limits::half_close`](crate::server::Limits::half_close).
#[derive(Debug)]
pub struct TcpListener {
    pub(super) listener: Listener,
}

/// Builder of a [`TcpListener`], from [`TcpListener::builder`].
#[derive(Clone, Debug)]
pub struct TcpListenerBuilder {
    pub(super) backlog: u32,
    pub(super) reuse_port: bool,
    inherited: Inherited,
    switch: ProfileSwitch,
    options: Options,
}

stream_options!(TcpListenerBuilder);

impl TcpListenerBuilder {
    /// Sets the maximum number of connections that wait to be accepted; 4096 by default, at most `net.core.somaxconn`
    /// ([listen(2)](https://man7.org/linux/man-pages/man2/listen.2.html)).
    #[must_use]
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = connections;
        self
    }

    /// Sets whether listeners share the address (`SO_REUSEPORT`,
    /// [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)) and its connections. Off by default. On macOS
    /// one of them gets all connections; on Windows binding fails with `ErrorKind::Unsupported`.
    #[must_use]
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// Ends connections whose peer acknowledges nothing for `limit` (`TCP_USER_TIMEOUT`, whole milliseconds,
    /// [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)): writes then fail with
    /// [`TimedOut`](io::ErrorKind::TimedOut). The kernel measures the time. By default a connection waits as long as
    /// the peer's machine answers.
    ///
    /// The kernel also counts time in which a slow peer's window closes repeatedly, so choose minutes, not seconds, for
    /// slow readers. [`server::serve`](crate::server::serve()) does not need the option: its
    /// [`Limits::write_stall`](crate::server::Limits::write_stall) counts the bytes that the peer takes. It has no
    /// effect on other systems than Linux.
    #[must_use]
    pub fn send_timeout(mut self, limit: Duration) -> Self {
        self.inherited.send_timeout = Some(limit);
        self
    }

    /// Ends connections whose peer is unreachable, even if nothing is sent: after `idle` without bytes the kernel sends
    /// four probes, `idle / 4` apart (`SO_KEEPALIVE`, [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)). In
    /// whole seconds from 1 to 32 767; 60 s by default, so a dead peer is noticed after two minutes. `None` turns it
    /// off. The kernels send and answer these probes; the processes at both ends are not involved.
    #[must_use]
    pub fn keep_alive(mut self, idle: Option<Duration>) -> Self {
        self.inherited.keep_alive = idle;
        self
    }

    /// Sets the congestion control of new connections, such as `bbr` (`TCP_CONGESTION`,
    /// [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)); by default that of the system. If it is not
    /// available to this process, binding fails with an error that lists the available ones.
    /// [`Handle::set_congestion`](crate::net::Handle::set_congestion) changes a live connection.
    #[must_use]
    pub fn congestion(mut self, name: &str) -> Self {
        self.inherited.congestion = Some(name.into());
        self
    }

    /// Limits the kernel's send rate of each new connection in bytes per second (`SO_MAX_PACING_RATE`,
    /// [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)). The kernel spreads packets evenly and counts
    /// its headers. [`Handle::set_pace`](crate::net::Handle::set_pace) changes a live connection;
    /// [`pace_all`](Self::pace_all) limits all connections together.
    #[must_use]
    pub fn pace(mut self, bytes_per_second: NonZeroU64) -> Self {
        self.inherited.pace = Some(bytes_per_second);
        self
    }

    /// Gives `percent` of 100 new connections another [profile](Self::profile), for trials. They are spread evenly.
    /// [`profile_switch`](Self::profile_switch) changes it later.
    #[must_use]
    pub fn profile_share(self, profile: Profile, percent: u8) -> Self {
        self.switch.set(profile, percent);
        self
    }

    /// Returns a switch that changes the profile of a share of new connections while the listener lives. The builder,
    /// its clones and their listeners share it.
    pub fn profile_switch(&self) -> ProfileSwitch {
        self.switch.clone()
    }

    /// Binds the first usable address and listens.
    ///
    /// # Errors
    ///
    /// The error of the last address, or of [`congestion`](Self::congestion); `InvalidInput` for a wrong option.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub async fn bind(self, addr: impl ToSocketAddrs) -> io::Result<TcpListener> {
        self.options.check()?;
        let mut last = None;
        for addr in tokio::net::lookup_host(addr).await? {
            match socket::listen(addr, self.backlog, self.reuse_port) {
                Ok(fd) => return self.listener(fd),
                Err(e) => last = Some(io::Error::new(e.kind(), format!("cannot listen on {addr}: {e}"))),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name has no address")))
    }

    /// Takes over an existing listener, for instance from a supervisor. Makes it nonblocking, and sets
    /// `TCP_NODELAY` and the options of this builder, also for connections that already wait.
    /// [`backlog`](Self::backlog) and [`reuse_port`](Self::reuse_port) do not apply.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub fn from_std(self, listener: std::net::TcpListener) -> io::Result<TcpListener> {
        self.options.check()?;
        socket::adopt(listener.as_fd())?;
        self.listener(listener.into())
    }

    pub(super) fn check(&self) -> io::Result<()> {
        self.options.check()
    }

    fn listener(self, socket: OwnedFd) -> io::Result<TcpListener> {
        self.inherited.set(socket.as_fd())?;
        let inherited = Some(self.inherited);
        Ok(TcpListener { listener: Listener::new(socket, self.options, self.switch, inherited)? })
    }
}

impl TcpListener {
    /// Returns a builder with default options.
    pub fn builder() -> TcpListenerBuilder {
        TcpListenerBuilder {
            backlog: 4096,
            reuse_port: false,
            inherited: Inherited::default(),
            switch: ProfileSwitch::default(),
            options: Options::default(),
        }
    }

    /// Binds the first usable address and listens; see [`TcpListenerBuilder::bind`] for errors and panics.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        Self::builder().bind(addr).await
    }

    /// Takes over an existing listener; see [`TcpListenerBuilder::from_std`], also for panics.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        Self::builder().from_std(listener)
    }

    /// Returns a switch that changes the profile of a share of new connections.
    pub fn profile_switch(&self) -> ProfileSwitch {
        self.listener.switch.clone()
    }

    /// Returns the local address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        socket::local_addr(self)
    }
}

listener!(TcpListener, TcpStream, std::net::TcpStream, SocketAddr, socket::accept, socket::adopt_tcp);
