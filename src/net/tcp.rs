//! TCP: a listener and its connections.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tokio::net::ToSocketAddrs;

use super::listener::{Listener, listener, stream_options};
use super::options::Options;
use super::profile::{Profile, ProfileSwitch};
use super::stream::{Stream, stream};
use crate::runtime::Turn;
use crate::sys::{socket, tcp};

/// A TCP listener whose connections are [`TcpStream`]s.
///
/// Stands where `tokio::net::TcpListener` does: in an accept loop, in `axum::serve` (feature `axum`), in
/// [`http::serve`](crate::server::serve()).
///
/// # Addresses of clients in axum
///
/// Under [`http::serve`](crate::server::serve()) handlers take `ConnectInfo<SocketAddr>` without more. With `axum::serve` the
/// listener needs axum's `tap_io`, because axum implements `Connected` for `SocketAddr` only for its own listeners, of which
/// that makes one:
///
/// ```no_run
/// # #[cfg(feature = "axum")]
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
/// # #[cfg(not(feature = "axum"))]
/// # fn main() {}
/// ```
///
/// Half-closed clients, which [`Limits::half_close`](crate::server::Limits::half_close) serves, are cut off by `axum::serve`: it
/// has no such option, and the stream cannot know whether hyper reads for a next request.
#[derive(Debug)]
pub struct TcpListener {
    listener: Listener,
}

/// Options of a [`TcpListener`], from [`TcpListener::builder`].
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
    /// Connections that may wait to be accepted; 4096 by default. The kernel takes `net.core.somaxconn` if that is less
    /// ([listen(2)](https://man7.org/linux/man-pages/man2/listen.2.html)).
    #[must_use]
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = connections;
        self
    }

    /// Lets several listeners share the address; the kernel spreads connections over them (`SO_REUSEPORT`,
    /// [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)). Off by default.
    #[must_use]
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// Ends connections whose peer acknowledges nothing of what is sent to it for so long (`TCP_USER_TIMEOUT`, whole
    /// milliseconds, [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)): writes then fail with
    /// [`TimedOut`](io::ErrorKind::TimedOut). The kernel watches that, no timer of the runtime does. By default it waits
    /// for as long as the peer's machine answers.
    ///
    /// The kernel also counts the time in which the peer's window closes again and again, though the peer reads a little in
    /// between: choose minutes, not seconds, where readers may be slow. [`http::serve`](crate::server::serve()) needs no such
    /// option: its [`Limits::write_stall`](crate::server::Limits::write_stall) counts what the peer has taken.
    #[must_use]
    pub fn send_timeout(mut self, limit: Duration) -> Self {
        self.send_timeout = Some(limit);
        self
    }

    /// Ends connections whose peer is no longer reachable, also while nothing is sent to it: a peer from which nothing has come
    /// for `idle` is probed, and given up after four probes without an answer, `idle / 4` apart (`SO_KEEPALIVE`,
    /// [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)). In whole seconds from 1 to 32 767. By default 60 s, so that a
    /// dead peer is noticed after two minutes; `None` turns it off. The kernel does this, and answers probes, without the
    /// processes at either end.
    #[must_use]
    pub fn keep_alive(mut self, idle: Option<Duration>) -> Self {
        self.keep_alive = idle;
        self
    }

    /// Lets memory of the [pool](crate::buf::lease) that waits to be sent, 16 KiB or more of it, go without a copy
    /// (`IORING_OP_SENDMSG_ZC`, Linux 6.1). It is kept until the kernel has notified that it needs it no longer.
    /// Off by default, and always off on loopback: it pays on fast network cards only. A connection for which the kernel
    /// reports that it has copied after all goes back to plain sends.
    #[must_use]
    pub fn zero_copy(mut self, on: bool) -> Self {
        self.options.zero_copy = on;
        self
    }

    /// The congestion control of new connections, `bbr` for instance (`TCP_CONGESTION`,
    /// [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)); by default the system's. If the kernel has none of that
    /// name, or this process may not use it, binding fails with an error that lists what the kernel offers.
    /// [`Handle::set_congestion`](crate::net::Handle::set_congestion) changes it for a connection that lives.
    #[must_use]
    pub fn congestion(mut self, name: &str) -> Self {
        self.congestion = Some(name.into());
        self
    }

    /// Has the kernel send no faster than so many bytes per second on each new connection (`SO_MAX_PACING_RATE`,
    /// [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)): spread evenly, by timers of its own, and with all its
    /// headers. [`Handle::set_pace`](crate::net::Handle::set_pace) changes it for a connection that lives,
    /// [`pace_all`](Self::pace_all) is a rate for all of them together.
    #[must_use]
    pub fn pace(mut self, bytes_per_second: NonZeroU64) -> Self {
        self.pace = Some(bytes_per_second);
        self
    }

    /// Gives `percent` of a hundred new connections another [profile](Self::profile), evenly spread, to try it on some of
    /// them. [`switch`](Self::switch) changes that later.
    #[must_use]
    pub fn profile_share(self, profile: Profile, percent: u8) -> Self {
        self.switch.set(profile, percent);
        self
    }

    /// What changes the profile of a share of new connections while the listener lives. All listeners of this builder, and of
    /// its clones, have the same.
    pub fn switch(&self) -> ProfileSwitch {
        self.switch.clone()
    }

    /// Binds the first of the addresses that can be bound, and listens.
    ///
    /// # Errors
    ///
    /// Those of binding the last of the addresses, and of [`congestion`](Self::congestion).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub async fn bind(self, addr: impl ToSocketAddrs) -> io::Result<TcpListener> {
        let mut last = None;
        for addr in tokio::net::lookup_host(addr).await? {
            match socket::listen(addr, self.backlog, self.reuse_port) {
                Ok(fd) => return self.listener(fd),
                Err(e) => last = Some(io::Error::new(e.kind(), format!("cannot listen on {addr}: {e}"))),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name has no address")))
    }

    /// Takes over a listener made elsewhere, by a supervisor for instance; makes it non-blocking and sets `TCP_NODELAY`,
    /// which its connections inherit. [`backlog`](Self::backlog) and [`reuse_port`](Self::reuse_port) do not apply.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub fn from_std(self, listener: std::net::TcpListener) -> io::Result<TcpListener> {
        socket::adopt_tcp(listener.as_fd())?;
        self.listener(listener.into())
    }

    fn listener(self, socket: OwnedFd) -> io::Result<TcpListener> {
        if let Some(limit) = self.send_timeout {
            // Connections inherit it.
            socket::give_up_after(socket.as_fd(), limit);
        }
        if let Some(idle) = self.keep_alive {
            // As above.
            socket::keep_alive(socket.as_fd(), idle)?;
        }
        if let Some(name) = &self.congestion {
            // As above.
            tcp::set_congestion(socket.as_fd(), name)?;
        }
        if let Some(rate) = self.pace {
            tcp::set_pacing(socket.as_fd(), Some(rate))?;
        }
        Ok(TcpListener { listener: Listener::new(socket, self.options, self.switch)? })
    }
}

impl TcpListener {
    /// Options other than the defaults.
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

    /// Binds the first of the addresses that can be bound, and listens.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        Self::builder().bind(addr).await
    }

    /// Takes over a listener made elsewhere; see [`TcpListenerBuilder::from_std`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        Self::builder().from_std(listener)
    }

    /// What changes the profile of a share of new connections.
    pub fn switch(&self) -> ProfileSwitch {
        self.listener.switch.clone()
    }

    /// The address that is listened on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        socket::local_addr(self)
    }
}

listener!(TcpListener, TcpStream, SocketAddr, socket::accept);

/// A TCP connection that recognises where the bytes it is given came from, and gathers small writes.
///
/// Implements tokio's [`AsyncRead`](tokio::io::AsyncRead) and [`AsyncWrite`](tokio::io::AsyncWrite) and hyper's
/// [`Read`](hyper::rt::Read) and [`Write`](hyper::rt::Write), so it needs no wrapper under axum, tonic or hyper.
/// `TCP_NODELAY` is set.
///
/// # Writing
///
/// A write that returned `n` has taken `n` bytes: they are sent in order, once, at the end of the runtime's turn at the
/// latest, or after the gather limit (1 ms unless the [listener](super::TcpListener::builder) says otherwise) while
/// more writes keep coming. The first write after something was received leaves at once: somebody waits for it.
///
/// If the runtime does not come to the end of the turn, because a task blocks or computes, or because `block_on` has
/// returned, a thread of this crate sends the bytes: some milliseconds after the gather limit.
///
/// `flush` does not wait. In the future of a `block_on` it offers the bytes to the kernel; in a task the end of the turn
/// does, together with what is written until then. [`flushed`](Self::flushed) waits until the kernel has taken everything.
///
/// # Errors
///
/// An error that is met while bytes are sent at the end of a turn is returned once, by the next write, `flush` or
/// `shutdown`, or by a read that meets the end of the stream. Later writes fail as they do for tokio's stream, `flushed`
/// goes on failing, and reading goes on: the answer of a peer that takes no more bytes can still be read.
///
/// A file that shrinks while it is being sent fails the stream with [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) for
/// good and resets the connection, so that the peer cannot take what it got for the whole.
///
/// # Cancel safety and drop
///
/// All methods are cancel safe: a dropped future has lost no bytes.
///
/// Dropping the stream hands what is queued to the kernel and closes the socket; so does the end of the process by
/// `std::process::exit` or by returning from `main`, for every stream. For what does not fit, the send buffer is enlarged
/// (`SO_SNDBUF`, up to `net.core.wmem_max`). What still does not fit is sent in the background, for as long as the peer
/// goes on reading, after the runtime's end too; the exit of the process waits for it, 1 s at most. With a
/// [linger](https://man7.org/linux/man-pages/man7/socket.7.html) time of zero it is discarded, and the connection reset.
/// After `shutdown` has returned nothing is queued.
///
/// # Differences from tokio's stream
///
/// * A write to a peer that is gone may succeed, and its error be returned later; see above.
/// * Bytes that were taken less than the gather limit before the process is killed, aborts, calls `_exit` or executes
///   another program are lost, as is what then waits for a peer that does not read.
/// * A stream that outlives its runtime still sends as long as the socket has room; tokio's fails.
/// * There is no `into_split`, `peek` or `try_write`: use [`tokio::io::split`], whose halves do not end the stream when
///   they are dropped.
pub struct TcpStream {
    stream: Stream,
}

stream!(TcpStream);

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
        socket::adopt_tcp(stream.as_fd())?;
        Self::with(stream.into(), Options::default())
    }

    /// Around a socket that is connected and [fit](socket::adopt_tcp).
    pub(super) fn with(socket: OwnedFd, options: Options) -> io::Result<Self> {
        Ok(Self { stream: Stream::new(socket, Turn::current(), options)? })
    }

    /// The address of this end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        socket::local_addr(self)
    }

    /// The address of the other end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        socket::peer_addr(self)
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
