//! Accepts connections. Each has its own task, so a failure affects no other connection.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Extensions;
use tokio::task::JoinHandle;

use super::adapter::Adapter;
use super::body_error::BoxError;
use super::conn_limiter::ConnLimiter;
use super::conn_state::ConnState;
use super::connection::connection;
use super::drain::{DrainSignal, Drained, Draining};
use super::http_service::HttpService;
use super::limits::Limits;
use super::peer::Peer;
use super::protocols::{Hooks, Protocols};
use super::reaper::{Shared, reaper};
use super::refuse::refuse;
#[cfg(feature = "tls")]
use super::secure::secure;
use crate::counters::{log, span};
use crate::net::{Accept, PeerAddr, Seen};
#[cfg(feature = "tls")]
use crate::server::tls::{Tls, Watching};

/// Connections accepted after the signal to drain: more than can have been waiting.
const WAITING: usize = 1 << 16;

/// Serves the connections of `listener` with `service`: HTTP/1.1 and HTTP/2 without TLS on the same port.
///
/// `service` is any tower service for requests with a [`RequestBody`](super::RequestBody), such as an axum `Router` or
/// tonic's `Routes`.
/// Each connection has a clone of it, and each request a clone of that. Await the returned value:
///
/// ```no_run
/// use std::convert::Infallible;
///
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use hyper::{Request, Response};
/// use millstream::net::TcpListener;
/// use millstream::server;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let hello = tower::service_fn(async |_: Request<server::RequestBody>| {
///     Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("Hello, world!"))))
/// });
/// server::serve(TcpListener::bind("127.0.0.1:8080").await?, hello).await
/// # }
/// ```
///
/// The [limits](Serve::limits) below apply by default. [`drain`](Serve::drain) shuts a server down gracefully.
///
/// | | limit | beyond it |
/// |---|---|---|
/// | first request after connecting | 10 s | 408 if it was begun, GOAWAY; closed |
/// | next request head of HTTP/1, from its first byte | 10 s | 408; closed |
/// | no request | 75 s | GOAWAY; closed |
/// | request body that is waited for | 1 KiB in 30 s | reading fails; 408 |
/// | response that the peer takes too slowly | 8 KiB in 30 s | reset |
/// | silent response after an HTTP/1 client has ended its side | 1 s | reset |
/// | HTTP/2 peer that does not answer a PING | 20 s, after 60 s without a byte | closed |
/// | request head | 16 KiB, 100 fields, 8 KiB path and query | 431, 414 |
/// | request body | 2 MiB, unless it streams | 413 |
/// | connections | 10 000, and 1000 from one public address | 503, GOAWAY; closed |
/// | HTTP/2 requests at a time | 100 | refused by stream |
/// | HTTP/2 request bodies in flight | 64 KiB each, 1 MiB together | the client waits |
/// | response bytes queued, besides the body frame in hand | 64 KiB; HTTP/2: for each stream | the body waits |
/// | bytes queued in the process | 256 MiB | `Connection: close`, 503 |
///
/// An axum `Router` needs nothing else: `server::serve(listener, router)`. Its extractors read the
/// [`RequestBody`](super::RequestBody) as
/// any body, and answer with 413 if it is too large. Handlers that accept more than 2 MiB need both
/// `DefaultBodyLimit::disable()` on their route and [`Limits::streaming`] for their path. Where other services answer
/// with 408, axum answers with 400.
///
/// gRPC calls over HTTP/2 stream: their bodies have no size limit, and tonic limits each message. A server that also
/// has handlers that collect whole bodies selects the [streaming](Limits::streaming) requests by path. Other calls
/// beyond the body limit end with `RESOURCE_EXHAUSTED`, also in tonic if the feature `tonic` is on.
///
/// A response to an HTTP/1 request whose body was not read reaches the client, even one that sends all of it first: the
/// server shuts its sending side down, discards what arrives, and closes the connection when the client does, or after
/// 5 s without a byte, 30 s, or 64 MiB.
///
/// The extensions of a request identify its peer. With the feature `axum`, handlers take `ConnectInfo<SocketAddr>`
/// without `into_make_service_with_connect_info`; with the feature `tonic`, `remote_addr` is set by `TcpConnectInfo`.
/// On a Unix socket the address is a [`std::os::unix::net::SocketAddr`], and tonic's services find an
/// `Option<`[`Credentials`](crate::net::Credentials)`>`. With the feature `middleware`, layers and services find a
/// [`Connection`](super::Connection). [`on_connection`](Serve::on_connection) adds other values.
///
/// Requests without exactly one valid `Host` are answered with 400; HTTP/1.0 and HTTP/2 may omit it ([RFC 9112
/// §3.2](https://www.rfc-editor.org/rfc/rfc9112#section-3.2)).
///
/// # Listeners
///
/// A [`TcpListener`](crate::net::TcpListener), a [`UnixListener`](crate::net::UnixListener), those of tokio, and any
/// other that implements [`Accept`]. Streams that are not of this crate are counted only
/// ([`CountedIo`](crate::net::CountedIo)), which a tracing event reports when the server starts:
///
/// | | a counted stream |
/// |---|---|
/// | writes | each is passed on at once; files are read from memory, without `sendfile` |
/// | slow peers | progress is what the stream accepts, not what the peer acknowledges |
/// | half-closed clients | their response is dropped; [`Limits::half_close`] does not apply |
/// | queued bytes | none here, so none count for [`Limits::budget`] |
/// | resets | the stream is dropped, and its peer sees what that type does then |
///
/// # Upgrades
///
/// Upgrades (WebSocket, `CONNECT`) are supported: [`Upgraded::downcast`](hyper::upgrade::Upgraded::downcast) returns
/// the stream, for example a [`TcpStream`](crate::net::TcpStream). The connection still counts, and a [`DrainSignal`]
/// notifies its task when the server drains.
///
/// # Errors
///
/// If the listener fails permanently. An error in a connection ends that connection. A panic in the service or a body
/// ends its connection or, over HTTP/2, its stream; a panic in `call` itself, not in the returned future, always ends
/// the connection.
///
/// # Cancel safety
///
/// Dropping the future closes the listener at once. Open connections are finished by their own tasks, within limits.
pub fn serve<L: Accept, S: HttpService>(listener: L, service: S) -> Serve<L, S> {
    Serve {
        listener,
        service,
        on_connection: None,
        hooks: Hooks::default(),
        limits: Limits::default(),
        limiter: Arc::default(),
        #[cfg(feature = "tls")]
        tls: None,
    }
}

/// A server that is ready to run, from [`serve`]. Await it.
#[must_use = "a server does nothing unless awaited"]
pub struct Serve<L: Accept, S> {
    listener: L,
    service: S,
    pub(super) on_connection: Option<OnConnection<L::Addr>>,
    pub(super) hooks: Hooks,
    limits: Limits,
    pub(super) limiter: Arc<ConnLimiter>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Tls>,
}

pub(super) type OnConnection<A> = Arc<dyn Fn(&mut Extensions, &Peer<A>) + Send + Sync>;

impl<L: Accept, S> Serve<L, S> {
    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Calls `hook` for each new connection, with the extensions that each of its requests will have, and its peer.
    pub fn on_connection(mut self, hook: impl Fn(&mut Extensions, &Peer<L::Addr>) + Send + Sync + 'static) -> Self {
        self.on_connection = Some(Arc::new(hook));
        self
    }
}

impl<L: Accept, S: HttpService> Serve<L, S> {
    /// Serves until `signal` is ready, and then shuts down: the listener and idle connections are closed, and other
    /// connections finish their requests and accept no further ones (`Connection: close`, GOAWAY). Responses with a
    /// [`GracefulClose`](crate::body::GracefulClose) are told to end, and tasks that wait for a [`DrainSignal`] are
    /// notified. Connections still open at the `deadline`, counted from the signal, are reset.
    ///
    /// Connections that the kernel has accepted are served, and so is a request that is arriving: a connection is idle
    /// if it receives nothing for a quarter of a second after the signal.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use millstream::files::Files;
    /// use millstream::net::TcpListener;
    /// use millstream::server;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let files = Files::new("public")?;
    /// let listener = TcpListener::bind("127.0.0.1:8080").await?;
    /// let drained = server::serve(listener, files).drain(tokio::signal::ctrl_c(), Duration::from_secs(10)).await?;
    /// println!("{} connections finished, {} were cut off", drained.finished + drained.notified, drained.aborted);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`serve`], before the signal.
    ///
    /// # Cancel safety
    ///
    /// As for [`serve`], before the signal. After it the connections are drained regardless.
    pub fn drain<F>(self, signal: F, deadline: Duration) -> Draining
    where
        F: Future + Send + 'static,
    {
        Draining(Box::pin(async move {
            let mut server = Server::start(self);
            {
                let (mut signal, mut accept) = (pin!(signal), pin!(server.accept()));
                let signalled = poll_fn(|cx| match signal.as_mut().poll(cx) {
                    Poll::Ready(_) => Poll::Ready(Ok(())),
                    Poll::Pending => accept.as_mut().poll(cx).map(|ended| ended.map(|never| match never {})),
                });
                signalled.await?;
            }
            server.accept_waiting().await;
            server.drain(deadline).await
        }))
    }
}

/// A running server; see [`serve`] for its end.
#[must_use = "a server does nothing unless polled"]
pub struct Serving(Pin<Box<dyn Future<Output = io::Result<()>> + Send>>);

impl<L: Accept, S: HttpService> IntoFuture for Serve<L, S> {
    type Output = io::Result<()>;
    type IntoFuture = Serving;

    fn into_future(self) -> Serving {
        Serving(Box::pin(async move { Server::start(self).accept().await.map(|never| match never {}) }))
    }
}

struct Server<L: Accept, S> {
    serve: Serve<L, S>,
    shared: Arc<Shared>,
    reaper: Option<JoinHandle<Drained>>,
    #[cfg(feature = "tls")]
    _watching: Option<Watching>,
}

impl<L: Accept, S> Drop for Server<L, S> {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

impl<L: Accept, S: HttpService> Server<L, S> {
    fn start(mut serve: Serve<L, S>) -> Self {
        let limits = std::mem::take(&mut serve.limits);
        // These clients are noticed to leave only by reading; over TLS they end their side by `close_notify`.
        let must_read = !L::Stream::SEES_LEAVING;
        #[cfg(feature = "tls")]
        let must_read = must_read || serve.tls.is_some();
        let limits = if must_read { limits.half_close(Duration::ZERO) } else { limits };
        if !L::Stream::SEES_LEAVING {
            log::streams_of_others();
        }
        let protocols = Protocols::new(&limits, &serve.hooks);
        let shared = Shared::new(limits, protocols, Arc::clone(&serve.limiter));
        let reaper = Some(tokio::spawn(reaper(Arc::clone(&shared))));
        Self {
            shared,
            reaper,
            #[cfg(feature = "tls")]
            _watching: serve.tls.as_ref().and_then(Tls::watching),
            serve,
        }
    }

    async fn accept(&mut self) -> io::Result<Infallible> {
        loop {
            let (stream, addr) = self.serve.listener.accept().await?;
            self.begin(stream, addr);
        }
    }

    async fn accept_waiting(&mut self) {
        let mut asks_again = false;
        for _ in 0..WAITING {
            let mut accept = pin!(self.serve.listener.accept());
            match poll_fn(|cx| Poll::Ready(accept.as_mut().poll(cx))).await {
                Poll::Ready(Ok((stream, addr))) => {
                    asks_again = false;
                    self.begin(stream, addr);
                }
                // The task's budget may be used up, or the runtime may not have polled the socket yet.
                Poll::Pending if !asks_again => {
                    asks_again = true;
                    tokio::task::yield_now().await;
                }
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
    }

    fn begin(&self, stream: L::Stream, addr: L::Addr) {
        let (shared, handle) = (&self.shared, stream.seen());
        let Some(permit) = shared.limiter.admit(addr.ip(), &shared.limits) else {
            // A handshake is most of the cost of a connection, and before it a TLS client understands no answer.
            #[cfg(feature = "tls")]
            if self.serve.tls.is_some() {
                return handle.reset();
            }
            return refuse(&shared.limiter.refused, stream, handle);
        };
        let conn_state = ConnState::new(Arc::clone(&shared.limits), handle.clone(), permit);
        let mut extensions = Extensions::new();
        addr.identify(&handle, &mut extensions);
        #[cfg(feature = "middleware")]
        extensions.insert(super::Connection::new(addr.ip(), handle.clone()));
        let peer = Peer::new(addr, handle, DrainSignal::new(&conn_state));
        if let Some(hook) = &self.serve.on_connection {
            hook(&mut extensions, &peer);
        }
        let adapter = Adapter::new(self.serve.service.clone(), extensions, Arc::clone(&conn_state));
        let (id, addr) = (peer.handle().id(), peer.addr());
        let (running, shared) = (shared.enter(&conn_state), Arc::clone(shared));
        #[cfg(feature = "tls")]
        if let Some(tls) = self.serve.tls.clone() {
            let task = async move {
                let _running = running;
                ended(secure(&tls, &shared.protocols, stream, adapter).await);
            };
            tokio::spawn(span::connection(id, addr, task));
            return;
        }
        let task = async move {
            let _running = running;
            ended(connection(&shared.protocols, stream, adapter).await);
        };
        tokio::spawn(span::connection(id, addr, task));
    }

    async fn drain(mut self, deadline: Duration) -> io::Result<Drained> {
        self.shared.drain(deadline);
        let reaper = self.reaper.take().expect("internal: drained once");
        drop(self);
        reaper.await.map_err(io::Error::other)
    }
}

/// Logs how a connection ended.
fn ended(how: Result<(), BoxError>) {
    if let Err(error) = how {
        log::connection_failed(&*error);
    }
}

impl Future for Serving {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll(cx)
    }
}

impl<L: Accept + fmt::Debug, S> fmt::Debug for Serve<L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listener, limits, .. } = self;
        f.debug_struct("Serve").field("listener", listener).field("limits", limits).finish_non_exhaustive()
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}
