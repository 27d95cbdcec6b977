//! A listener that does not end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Once};
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::ToSocketAddrs;

use super::egress::Gather;
use super::stream::TcpStream;
use crate::kernel::caps::{Capabilities, Support};
use crate::kernel::socket;
use crate::observe::counters::{Counter, count};
use crate::observe::log;
use crate::turn::Turn;

/// How long accepting pauses when the process or the machine is out of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(50);

/// A TCP listener whose connections are [`TcpStream`]s.
///
/// Stands where `tokio::net::TcpListener` does: in an accept loop, in `axum::serve` (feature `axum`), in
/// [`http::serve`](crate::http::serve()).
#[derive(Debug)]
pub struct TcpListener {
    io: AsyncFd<OwnedFd>,
    turn: Arc<Turn>,
    gather: Gather,
}

/// Options of a [`TcpListener`], from [`TcpListener::builder`].
#[derive(Clone, Debug)]
pub struct TcpListenerBuilder {
    pub(super) backlog: u32,
    pub(super) reuse_port: bool,
    gather: Gather,
}

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

    /// Longest time a written byte waits for company while it is written to again and again; 1 ms by default. Zero sends every
    /// write at once, as tokio's stream does.
    #[must_use]
    pub fn gather_limit(mut self, limit: Duration) -> Self {
        self.gather.limit = limit;
        self
    }

    /// Queued bytes of one connection beyond which its writer waits; 64 KiB by default. It is woken at half of that.
    #[must_use]
    pub fn high_mark(mut self, bytes: usize) -> Self {
        self.gather.high = bytes;
        self
    }

    /// Binds the first of the addresses that can be bound, and listens.
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
        socket::adopt(listener.as_fd())?;
        self.listener(listener.into())
    }

    fn listener(self, fd: OwnedFd) -> io::Result<TcpListener> {
        log_capabilities();
        let io = socket::watch(fd, Interest::READABLE)?;
        Ok(TcpListener { io, turn: Turn::current(), gather: self.gather })
    }
}

impl TcpListener {
    /// Options other than the defaults.
    pub fn builder() -> TcpListenerBuilder {
        TcpListenerBuilder { backlog: 4096, reuse_port: false, gather: Gather::default() }
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

    /// The address that is listened on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        socket::local_addr(self)
    }

    /// Accepts a connection.
    ///
    /// Connections that were gone before they could be accepted are skipped. While the process or the machine is out of
    /// descriptors or memory (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`) this waits 50 ms and tries again, which needs the
    /// runtime's timer.
    ///
    /// # Errors
    ///
    /// Only such as will not go away: the socket does not listen any more.
    ///
    /// # Cancellation
    ///
    /// Safe: a connection that was not returned waits to be accepted.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let accepted = self.io.async_io(Interest::READABLE, |fd| socket::accept(fd.as_fd())).await;
            let accepted =
                accepted.and_then(|(fd, peer)| Ok((TcpStream::new(fd, Arc::clone(&self.turn), self.gather)?, peer)));
            match accepted {
                Ok(connection) => {
                    count(Counter::Accepted, 1);
                    return Ok(connection);
                }
                Err(e) => match after(&e) {
                    After::Next => {}
                    After::Pause => {
                        count(Counter::AcceptPauses, 1);
                        log::accept_paused(&e);
                        tokio::time::sleep(PAUSE).await;
                    }
                    After::Give => return Err(e),
                },
            }
        }
    }
}

/// Tells the log, once, what this machine cannot do.
fn log_capabilities() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (name, support) in Capabilities::get().entries() {
            if let Support::No(reason) = support {
                log::unsupported(name, reason);
            }
        }
    });
}

/// What to do after a failed accept.
#[derive(Debug, PartialEq, Eq)]
enum After {
    /// That connection was gone; others are not.
    Next,
    /// Nothing can be accepted until something is freed.
    Pause,
    /// The listener itself is broken.
    Give,
}

fn after(error: &io::Error) -> After {
    match Errno::from_io_error(error) {
        Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP | Errno::FAULT) | None => After::Give,
        // NOSPC: the limit of epoll watches (fs.epoll.max_user_watches).
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC) => After::Pause,
        // Network errors that were pending on the new socket; accept(2) asks to treat them like EAGAIN.
        Some(_) => After::Next,
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.get_ref().as_fd()
    }
}

#[cfg(feature = "axum")]
impl axum::serve::Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    /// As [`TcpListener::accept`]; if the listener itself is broken, which nothing can mend, this waits forever.
    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match Self::accept(self).await {
            Ok(connection) => connection,
            Err(_) => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Self::local_addr(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_broken_listener_ends_the_loop() {
        for (errno, expected) in [
            (Errno::CONNABORTED, After::Next),
            (Errno::PROTO, After::Next),
            (Errno::HOSTUNREACH, After::Next),
            (Errno::PERM, After::Next),
            (Errno::MFILE, After::Pause),
            (Errno::NFILE, After::Pause),
            (Errno::NOMEM, After::Pause),
            (Errno::BADF, After::Give),
            (Errno::INVAL, After::Give),
        ] {
            assert_eq!(after(&errno.into()), expected, "{errno}");
        }
    }
}
