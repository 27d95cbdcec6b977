//! A listener whose peers send a header first.
//!
//! A header that is there when the connection is accepted is read at once. A connection whose header is not has a task
//! until it comes, so that others do not wait for it. Bytes behind a header are given back to the stream.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use millstream::internal::socket::{TakeOver, is_resumed};
use millstream::net::{Accept, PeerAddr, Transport};
use millstream::server::Trusted;
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::events;
use crate::header::ProxyHeader;
use crate::parse::parse;
use crate::peer::ProxyPeer;

/// Bytes of one read: most headers, and the requests behind them.
const LOOK: usize = 512;
/// Maximum number of connections that wait for their headers.
const WAITING_MAX: usize = 4096;

/// A listener whose trusted peers, load balancers, begin each connection with a PROXY header. `L` is any
/// [listener](Accept), such as [`TcpListener`](millstream::net::TcpListener).
///
/// | for | the service has |
/// |---|---|
/// | [`serve`] | the address of the client as if it had connected directly, and the [`ProxyHeader`] |
/// | [`serve_cores`], with a function that wraps each listener | the same |
/// | `axum::serve` (feature `axum-08`) | `ConnectInfo<ProxyPeer<SocketAddr>>`, or `ConnectInfo<Connection>` |
/// | tonic's server (feature `tonic-014`), with `ProxyListener::incoming` | `remote_addr` of a request |
///
/// With `Server::tls`, TLS begins behind the header. Layers of millstream under
/// `axum::serve` need `ConnectInfo<Connection>`.
///
/// [`serve`]: millstream::server::serve()
/// [`serve_cores`]: millstream::server::serve_cores()
///
/// ```no_run
/// use millstream::files::Files;
/// use millstream::net::TcpListener;
/// use millstream::runtime::Cores;
/// use millstream::server::{Trusted, serve_cores};
/// use millstream_proxy_protocol::ProxyListener;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cores = Cores::new(4)?;
/// let listeners = TcpListener::builder().bind_each("0.0.0.0:8080", cores.count())?;
/// let balancers: Trusted = "10.1.0.0/24".parse()?;
/// let each = move || Ok(ProxyListener::new(listeners.take()?, balancers.clone()));
/// serve_cores(&cores, each, Files::new("public")?).run().wait()?;
/// # Ok(())
/// # }
/// ```
///
/// # Headers
///
/// | peer | its connections |
/// |---|---|
/// | trusted | a header is read and removed; without a valid one, the connection is closed |
/// | not trusted | are passed on as they are, or closed with [`refuse_others`](Self::refuse_others) |
/// | without an IP address, as of a Unix socket | like those of trusted peers: the socket has permissions |
///
/// A header has at most 107 bytes in version 1 and 4096 in version 2. [`ProxyHeader`] lists the fields that are read. A
/// checksum, if there is one, is verified. A connection that is closed for its header counts in
/// [`Snapshot::proxy_headers_refused`](millstream::metrics::Snapshot::proxy_headers_refused), and an event of `tracing`
/// (feature `tracing`) says why; but not if the peer has sent nothing and closes or resets it, as a check of health
/// does.
///
/// Headers come within 5 s, or within the [`header_time`](Self::header_time) that is set. At most 4096 connections wait
/// for theirs; further ones are closed if their headers are not there. The limits of the server begin behind the
/// header. When the server drains, connections without a complete header are closed.
///
/// # Successors
///
/// A connection whose header was read does not [move](millstream::server::Server::move_connections): the successor of the
/// server would not know its client. It drains, and its client reconnects. A trusted peer's connection that another server
/// has served before, as from [`TcpListener::adopt`](millstream::net::TcpListener::adopt), has no header any more. It is
/// closed, counted and reported like one without a valid header.
///
/// One task accepts at a time.
pub struct ProxyListener<L: Accept> {
    listener: L,
    trusted: Trusted,
    header_time: Duration,
    refuses_others: bool,
    waiting: Mutex<JoinSet<Option<Accepted<L>>>>,
}

type Accepted<L> = (<L as Accept>::Stream, ProxyPeer<<L as Accept>::Addr>);

impl<L: Accept> ProxyListener<L> {
    /// Wraps a listener. `trusted` are the addresses of the load balancers.
    pub fn new(listener: L, trusted: Trusted) -> Self {
        let (header_time, waiting) = (Duration::from_secs(5), Mutex::default());
        Self { listener, trusted, header_time, refuses_others: false, waiting }
    }

    /// Sets the time in which the header must come; 5 s by default.
    #[must_use]
    pub fn header_time(mut self, limit: Duration) -> Self {
        self.header_time = limit;
        self
    }

    /// Sets whether the connections of peers that are not trusted are closed. Off by default: they are clients that
    /// connect by themselves.
    #[must_use]
    pub fn refuse_others(mut self, on: bool) -> Self {
        self.refuses_others = on;
        self
    }

    /// Returns the inner listener, for its address.
    pub fn get_ref(&self) -> &L {
        &self.listener
    }

    fn waiting(&self) -> MutexGuard<'_, JoinSet<Option<Accepted<L>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a new connection, or one whose header has come.
    async fn next(&self) -> io::Result<Next<L>> {
        let mut accept = pin!(self.listener.accept());
        poll_fn(|cx| {
            while let Poll::Ready(Some(done)) = self.waiting().poll_join_next(cx) {
                if let Ok(Some(accepted)) = done {
                    return Poll::Ready(Ok(Next::Complete(accepted)));
                }
            }
            accept.as_mut().poll(cx).map_ok(|(stream, addr)| Next::New(stream, addr))
        })
        .await
    }
}

enum Next<L: Accept> {
    New(L::Stream, L::Addr),
    Complete(Accepted<L>),
}

impl<L: Accept> Accept for ProxyListener<L> {
    type Stream = L::Stream;
    type Addr = ProxyPeer<L::Addr>;

    async fn accept(&self) -> io::Result<Accepted<L>> {
        loop {
            let (stream, addr) = match self.next().await? {
                Next::Complete(accepted) => return Ok(accepted),
                Next::New(stream, addr) => (stream, addr),
            };
            let peer = addr.ip();
            if !peer.is_none_or(|ip| self.trusted.contains(ip)) {
                if self.refuses_others {
                    events::not_trusted(peer);
                    continue;
                }
                return Ok((stream, ProxyPeer::new(addr, None)));
            }
            if is_resumed(&stream) {
                // What comes next is not its header, although a client can make it look like one.
                events::refused(peer, &io::Error::other("another server has read the PROXY header of the connection"));
                continue;
            }
            let mut header = Box::pin(receive(stream, addr, self.header_time));
            match poll_fn(|cx| Poll::Ready(header.as_mut().poll(cx))).await {
                Poll::Ready(Some(accepted)) => return Ok(accepted),
                Poll::Ready(None) => {}
                Poll::Pending if self.waiting().len() < WAITING_MAX => drop(self.waiting().spawn(header)),
                Poll::Pending => {
                    events::refused(peer, &io::Error::other("too many connections wait for their PROXY headers"))
                }
            }
        }
    }
}

/// Receives the header of a connection. `None` if there is none, and the connection is closed.
async fn receive<S: Transport, A: PeerAddr>(mut stream: S, addr: A, limit: Duration) -> Option<(S, ProxyPeer<A>)> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("the PROXY header did not come within {limit:?}"));
    let read = timeout(limit, read(&mut stream)).await.unwrap_or_else(|elapsed| Err(late(elapsed)));
    let header = read.unwrap_or_else(|error| {
        events::refused(addr.ip(), &error);
        None
    });
    let peer = ProxyPeer::new(addr, Some(header?));
    // A successor of the server does not get the header.
    TakeOver::stay(&mut stream);
    Some((stream, peer))
}

/// Reads the header. `None` if the peer has closed or reset the connection, and has sent nothing.
async fn read<S: Transport>(stream: &mut S) -> io::Result<Option<ProxyHeader>> {
    let mut bytes = Vec::new();
    loop {
        bytes.reserve(LOOK);
        match stream.read_buf(&mut bytes).await {
            Ok(0) | Err(_) if bytes.is_empty() => return Ok(None),
            Ok(0) => {
                let cut = "the peer has closed within the PROXY header";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, cut));
            }
            read => read?,
        };
        let malformed = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        if let Some((header, len)) = parse(&bytes).map_err(malformed)? {
            stream.unread(&bytes[len..]);
            return Ok(Some(header));
        }
    }
}

impl<L: Accept + fmt::Debug> fmt::Debug for ProxyListener<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyListener")
            .field("listener", &self.listener)
            .field("trusted", &self.trusted)
            .field("header_time", &self.header_time)
            .field("refuses_others", &self.refuses_others)
            .finish_non_exhaustive()
    }
}
