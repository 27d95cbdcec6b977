//! TCP: a listener and its connections.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
#[cfg(tls)]
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::ToSocketAddrs;

use super::listener::{Listener, listener, stream_options};
use super::options::Options;
use super::profile::{Profile, ProfileSwitch};
use super::stream::{Stream, stream};
use crate::runtime::Turn;
use crate::sys::fd::{AsFd, OwnedFd};
#[cfg(tls)]
use crate::sys::kernel_tls;
#[cfg(tls)]
use crate::sys::tls_keys::Keys;
use crate::sys::{socket, tcp};

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
/// `axum::serve` aborts requests of half-closed clients, which
/// [`Limits::half_close`](crate::server::Limits::half_close) supports: it has no such option, and the stream cannot
/// know whether hyper reads for a next request.
#[derive(Debug)]
pub struct TcpListener {
    listener: Listener,
}

/// Builder of a [`TcpListener`], from [`TcpListener::builder`].
#[derive(Clone, Debug)]
pub struct TcpListenerBuilder {
    pub(super) backlog: u32,
    pub(super) reuse_port: bool,
    send_timeout: Option<Duration>,
    keep_alive: Option<Duration>,
    congestion: Option<Box<str>>,
    pace: Option<NonZeroU64>,
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
    /// [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)) and its connections. Off by default. On macOS one
    /// of them gets all connections; on Windows binding fails with `ErrorKind::Unsupported`.
    #[must_use]
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// Ends connections whose peer acknowledges nothing for `limit` (`TCP_USER_TIMEOUT`, whole milliseconds,
    /// [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)): writes then fail with
    /// [`TimedOut`](io::ErrorKind::TimedOut). The kernel measures the time. By default a connection waits while the
    /// peer's machine answers.
    ///
    /// The kernel also counts time in which a slow peer's window closes repeatedly, so choose minutes, not seconds, for
    /// slow readers. [`server::serve`](crate::server::serve()) does not need the option: its
    /// [`Limits::write_stall`](crate::server::Limits::write_stall) counts the bytes that the peer takes. It has no effect
    /// on other systems than Linux.
    #[must_use]
    pub fn send_timeout(mut self, limit: Duration) -> Self {
        self.send_timeout = Some(limit);
        self
    }

    /// Ends connections whose peer is unreachable, even if nothing is sent: after `idle` without bytes the kernel sends
    /// four probes, `idle / 4` apart (`SO_KEEPALIVE`, [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)). In
    /// whole seconds from 1 to 32 767; 60 s by default, so a dead peer is noticed after two minutes. `None` turns it
    /// off. The kernels send and answer probes without the processes at either end.
    #[must_use]
    pub fn keep_alive(mut self, idle: Option<Duration>) -> Self {
        self.keep_alive = idle;
        self
    }

    /// Sends pool memory ([`lease`](crate::buf::lease)) of 16 KiB or more without a copy (`IORING_OP_SENDMSG_ZC`, Linux
    /// 6.1). The memory is kept until the kernel has released it. Off by default, and always off on loopback: it pays
    /// only on fast network cards. A connection for which the kernel copies anyway returns to plain sends.
    #[must_use]
    pub fn zero_copy(mut self, on: bool) -> Self {
        self.options.zero_copy = on;
        self
    }

    /// Sets the congestion control of new connections, such as `bbr` (`TCP_CONGESTION`,
    /// [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)); by default that of the system. If it is not
    /// available to this process, binding fails with an error that lists the available ones.
    /// [`Handle::set_congestion`](crate::net::Handle::set_congestion) changes a live connection.
    #[must_use]
    pub fn congestion(mut self, name: &str) -> Self {
        self.congestion = Some(name.into());
        self
    }

    /// Limits the kernel's send rate of each new connection in bytes per second (`SO_MAX_PACING_RATE`,
    /// [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)). The kernel spreads packets evenly and counts
    /// its headers. [`Handle::set_pace`](crate::net::Handle::set_pace) changes a live connection;
    /// [`pace_all`](Self::pace_all) limits all connections together.
    #[must_use]
    pub fn pace(mut self, bytes_per_second: NonZeroU64) -> Self {
        self.pace = Some(bytes_per_second);
        self
    }

    /// Gives `percent` of 100 new connections another [profile](Self::profile), evenly spread, for trials.
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

    /// Takes over an existing listener, for instance from a supervisor. Makes it nonblocking and sets `TCP_NODELAY`,
    /// which its connections inherit. [`backlog`](Self::backlog) and [`reuse_port`](Self::reuse_port) do not apply.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub fn from_std(self, listener: std::net::TcpListener) -> io::Result<TcpListener> {
        self.options.check()?;
        socket::adopt_tcp(listener.as_fd())?;
        self.listener(listener.into())
    }

    pub(super) fn check(&self) -> io::Result<()> {
        self.options.check()
    }

    fn listener(self, socket: OwnedFd) -> io::Result<TcpListener> {
        if let Some(limit) = self.send_timeout {
            // Connections inherit these options.
            socket::give_up_after(socket.as_fd(), limit);
        }
        if let Some(idle) = self.keep_alive {
            socket::keep_alive(socket.as_fd(), idle)?;
        }
        if let Some(name) = &self.congestion {
            tcp::set_congestion(socket.as_fd(), name)?;
        }
        if let Some(rate) = self.pace {
            tcp::set_pacing(socket.as_fd(), Some(rate))?;
        }
        Ok(TcpListener { listener: Listener::new(socket, self.options, self.switch)? })
    }
}

impl TcpListener {
    /// Returns a builder with default options.
    pub fn builder() -> TcpListenerBuilder {
        TcpListenerBuilder {
            backlog: 4096,
            reuse_port: false,
            send_timeout: None,
            keep_alive: Some(Duration::from_secs(60)),
            congestion: None,
            pace: None,
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

listener!(TcpListener, TcpStream, SocketAddr, socket::accept);

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
/// [listener](super::TcpListener::builder)). The first write after a read leaves at once: the peer waits.
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
/// * A stream whose socket is full is writable until its queue has refused a write, and again when the queue has room. It
///   is readable once the runtime has seen bytes; tokio also takes a new connection for readable. With
///   [`Receive::Multishot`](super::Receive::Multishot) it is no longer readable once all received bytes were read; tokio's
///   is readable until a read finds nothing or does not fill its buffer.
/// * One task may wait to read, and one to write or for [`flushed`](Self::flushed). Of several, the last one is woken.
/// * [`try_read_vectored`](Self::try_read_vectored) fills one buffer.
/// * [`into_std`](Self::into_std) fails while bytes are queued or received ahead.
/// * The halves of a split are generic: [`OwnedReadHalf`](super::OwnedReadHalf) stands for
///   `tokio::net::tcp::OwnedReadHalf`, `OwnedReadHalf<UnixStream>` for that of Unix sockets.
/// * There is no `try_io` or `async_io`: calls on the socket itself would overtake queued bytes, and miss those that were
///   received ahead.
pub struct TcpStream {
    stream: Stream,
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
    pub(super) fn with(socket: OwnedFd, options: Options) -> io::Result<Self> {
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

/// Encryption by the kernel.
#[cfg(tls)]
impl TcpStream {
    /// Makes the kernel encrypt what is written from now on, or replaces its keys. It must have taken all bytes.
    pub(crate) fn encrypt(&self, keys: &Keys) -> io::Result<()> {
        kernel_tls::encrypt(self.as_fd(), keys)
    }

    /// Sends `bytes` as one record of this type, behind all earlier bytes.
    pub(crate) fn poll_send_record(&self, cx: &mut Context<'_>, kind: u8, bytes: &[u8]) -> Poll<io::Result<()>> {
        self.poll_send_with(cx, |socket| kernel_tls::send_record(socket, kind, bytes)).map_ok(drop)
    }

    /// As [`poll_send_record`](Self::poll_send_record), for the last one: the connection may be closed afterwards.
    pub(crate) fn poll_send_last_record(&self, cx: &mut Context<'_>, kind: u8, bytes: &[u8]) -> Poll<io::Result<()>> {
        self.poll_send_with(cx, |socket| kernel_tls::send_last_record(socket, kind, bytes)).map_ok(drop)
    }

    /// Sends `bytes` as one record of this type, unless bytes wait before it, or the socket is full.
    pub(crate) fn try_send_record(&self, kind: u8, bytes: &[u8]) {
        if self.queued() == 0 {
            let _ = kernel_tls::send_record(self.as_fd(), kind, bytes);
        }
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
