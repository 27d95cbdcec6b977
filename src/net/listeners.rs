//! Several listeners on one address, a core each.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};

use super::tcp::{TcpListener, TcpListenerBuilder};
use crate::sys::socket;

/// Listeners that share an address, one for each core or worker, from [`TcpListenerBuilder::bind_each`]. The kernel spreads
/// connections over them by a hash of their addresses (`SO_REUSEPORT`,
/// [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)).
///
/// They listen from the start, whoever takes them and when: connections that come before wait. So take each of them: the
/// kernel gives its share of connections to one that nobody accepts from, too.
///
/// [`http::serve_cores`](crate::server::serve_cores()) serves them all. By hand, with axum for instance:
///
/// ```no_run
/// # #[cfg(feature = "axum")]
/// # fn main() -> std::io::Result<()> {
/// use axum::{Router, routing::get};
/// use millstream::{net::TcpListener, runtime::Cores};
///
/// let app = Router::new().route("/", get(|| async { "Hello, world!" }));
/// let cores = Cores::new(4)?;
/// let listeners = TcpListener::builder().bind_each("127.0.0.1:8080", cores.count())?;
/// cores.run(move |_| {
///     let (listener, app) = (listeners.take(), app.clone());
///     async move { axum::serve(listener?, app).await }
/// })
/// .wait()?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "axum"))]
/// # fn main() {}
/// ```
///
/// # Closing
///
/// A connection belongs to the listener that the kernel has chosen for it. If that is closed before the connection was
/// accepted, the connection is reset, although other listeners of the address live: Linux moves it only where
/// `net.ipv4.tcp_migrate_req` is set
/// ([ip-sysctl](https://docs.kernel.org/networking/ip-sysctl.html), Linux 5.14). So close all of them at about the same
/// time, as [`Cores`](crate::runtime::Cores) does, and not one while others go on; to restart without losing a connection,
/// have a supervisor keep the sockets and take them by [`TcpListener::from_std`].
///
/// Clones are of the same listeners; when the last is dropped, those that were not taken are closed.
#[derive(Clone, Debug)]
pub struct Listeners {
    addr: SocketAddr,
    builder: TcpListenerBuilder,
    /// Not on a runtime yet: that is for the thread which takes one.
    left: Arc<Mutex<Vec<std::net::TcpListener>>>,
}

impl TcpListenerBuilder {
    /// Binds `count` listeners, at least one, to the first of the addresses that can be bound. With port 0 the kernel
    /// chooses one for all of them.
    ///
    /// Who else listens there is told from a mistake by [`reuse_port`](Self::reuse_port): it lets these listeners share the
    /// address with those of another process of the same user; without it that is an error, unless both start in the same
    /// moment.
    ///
    /// Needs no runtime; looking up a name blocks the thread.
    ///
    /// # Errors
    ///
    /// Those of binding the last of the addresses; `ErrorKind::InvalidInput` if the name has none.
    pub fn bind_each(&self, addr: impl ToSocketAddrs, count: usize) -> io::Result<Listeners> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        for addr in addr.to_socket_addrs()? {
            match self.bind_all(addr, count.max(1)) {
                Ok(listeners) => return Ok(listeners),
                Err(e) => last = io::Error::new(e.kind(), format!("cannot listen on {addr}: {e}")),
            }
        }
        Err(last)
    }

    fn bind_all(&self, addr: SocketAddr, count: usize) -> io::Result<Listeners> {
        if !self.reuse_port && addr.port() != 0 {
            // Alone: fails if somebody listens there.
            drop(socket::listen(addr, self.backlog, false)?);
        }
        let listen = |addr| socket::listen(addr, self.backlog, true).map(std::net::TcpListener::from);
        let first = listen(addr)?;
        let addr = first.local_addr()?;
        let mut left = vec![first];
        while left.len() < count {
            left.push(listen(addr)?);
        }
        Ok(Listeners { addr, builder: self.clone(), left: Arc::new(Mutex::new(left)) })
    }
}

impl Listeners {
    /// The address they listen on.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// One that nobody has taken yet, for the runtime this is called on.
    ///
    /// # Errors
    ///
    /// `ErrorKind::NotFound` if all are taken; those of registering it with the runtime.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    #[track_caller]
    pub fn take(&self) -> io::Result<TcpListener> {
        let taken = self.left.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let none = || io::Error::new(io::ErrorKind::NotFound, "every listener is taken: bind one for each core");
        self.builder.clone().from_std(taken.ok_or_else(none)?)
    }
}
