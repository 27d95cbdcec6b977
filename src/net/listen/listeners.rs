//! Several listeners on one address, one per core.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};

use super::accept::Accept;
use super::tcp::{TcpListener, TcpListenerBuilder};
use crate::sys::socket;

/// Listeners that share an address, one for each core or worker, from [`TcpListenerBuilder::bind_each`]. The kernel
/// distributes connections by a hash of their addresses (`SO_REUSEPORT`,
/// [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)).
///
/// All of them listen from the start, and early connections wait. Take all of them: the kernel also assigns connections
/// to a listener on which no task accepts.
///
/// [`server::serve_cores`](crate::server::serve_cores()) serves them all. By hand, with axum for instance:
///
/// ```no_run
/// # #[cfg(feature = "axum-08")]
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
/// # #[cfg(not(feature = "axum-08"))]
/// # fn main() {}
/// ```
///
/// # Closing
///
/// A connection belongs to the listener that the kernel chose for it. If that listener closes before it has accepted
/// the connection, the connection is reset, even if the address has other listeners. Linux moves it to another listener
/// only if `net.ipv4.tcp_migrate_req` is set ([ip-sysctl](https://docs.kernel.org/networking/ip-sysctl.html), Linux
/// 5.14). So close all listeners together, as [`Cores`](crate::runtime::Cores) does. To restart without losing a
/// connection, let a supervisor keep the sockets and pass them to [`TcpListener::from_std`].
///
/// Clones share the same listeners; dropping the last clone closes those that were not taken.
#[derive(Clone, Debug)]
pub struct Listeners {
    addr: SocketAddr,
    builder: TcpListenerBuilder,
    /// Listeners without a runtime; the taking thread registers them.
    left: Arc<Mutex<Vec<std::net::TcpListener>>>,
}

/// Gives each core its listener, for [`serve_cores`](crate::server::serve_cores()): [`Listeners`], or a function that is
/// called on each core and wraps one of them. The function of this example could make a listener of another crate:
///
/// ```no_run
/// use millstream::files::Files;
/// use millstream::net::TcpListener;
/// use millstream::runtime::Cores;
/// use millstream::server::serve_cores;
///
/// # fn main() -> std::io::Result<()> {
/// let cores = Cores::new(4)?;
/// let listeners = TcpListener::builder().bind_each("127.0.0.1:8080", cores.count())?;
/// serve_cores(&cores, move || listeners.take(), Files::new("public")?).run().wait()
/// # }
/// ```
pub trait EachListener: Clone + Send + 'static {
    /// Type of the listeners.
    type Listener: Accept;

    /// Returns the listener of a core. Called in its runtime.
    ///
    /// # Errors
    ///
    /// If there is none. Then the server ends on all cores.
    fn listen(&self) -> io::Result<Self::Listener>;
}

impl EachListener for Listeners {
    type Listener = TcpListener;

    fn listen(&self) -> io::Result<TcpListener> {
        self.take()
    }
}

impl<L: Accept, F: Fn() -> io::Result<L> + Clone + Send + 'static> EachListener for F {
    type Listener = L;

    fn listen(&self) -> io::Result<L> {
        self()
    }
}

impl TcpListenerBuilder {
    /// Binds `count` listeners, at least one, to the first usable address. Port 0 chooses one port for all of them.
    ///
    /// With [`reuse_port`](Self::reuse_port) other processes of the same user can share the address. Without it, an
    /// address in use is an error, unless both processes start at the same moment.
    ///
    /// Needs no runtime; looking up a name blocks the thread.
    ///
    /// # Errors
    ///
    /// The error of the last address; `ErrorKind::InvalidInput` if the name has no address.
    pub fn bind_each(&self, addr: impl ToSocketAddrs, count: usize) -> io::Result<Listeners> {
        self.check()?;
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
            // Binds without `SO_REUSEPORT`, so that this fails if the address is in use.
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
    /// Returns the shared address.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Takes a listener and registers it with the current runtime.
    ///
    /// # Errors
    ///
    /// `ErrorKind::NotFound` if all are taken, or the error of the registration.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    #[track_caller]
    pub fn take(&self) -> io::Result<TcpListener> {
        let taken = self.left.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let none = || io::Error::new(io::ErrorKind::NotFound, "all listeners are taken; bind one for each core");
        self.builder.clone().from_std(taken.ok_or_else(none)?)
    }
}
