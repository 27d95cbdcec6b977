//! Accepting connections: each is a task of its own, so what goes wrong in it stays in it.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::conn_limiter::ConnLimiter;
use super::conn_state::ConnState;
use super::connection::connection;
use super::drain::{DrainSignal, Drained, Draining};
use super::http_service::{BoxError, HttpService};
use super::introduce::Introduced;
use super::limits::Limits;
use super::peer::Peer;
use super::protocols::{Hooks, Protocols};
use super::reaper::{Shared, reaper};
use super::refuse::refuse;
#[cfg(feature = "tls")]
use super::secure::secure;
use crate::counters::{log, span};
use crate::net::{Accept, Origin, Seen};
#[cfg(feature = "tls")]
use crate::server::tls::{Tls, Watching};

/// Connections that are accepted after the signal to drain: more than can have been waiting.
const WAITING: usize = 1 << 16;

/// Serves the connections of `listener`, TCP or Unix, with `service`: HTTP/1.1 and HTTP/2 without TLS on the same port.
///
/// `service` is any tower service that takes requests with a [`RequestBody`], such as an axum `Router` or tonic's `Routes`; each
/// connection has a clone, and each request one of that. Await what is returned:
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
/// [`limits`](Serve::limits) are on, whether or not they are set; see [`Limits`] for each. [`drain`](Serve::drain) ends a
/// server without cutting off what it has begun.
///
/// | | limit | beyond it |
/// |---|---|---|
/// | first request after connecting | 10 s | 408 if it was begun, GOAWAY; closed |
/// | next request head of HTTP/1, from its first byte | 10 s | 408; closed |
/// | no request | 75 s | GOAWAY; closed |
/// | request body that is waited for | 1 KiB in 30 s | the service is told; 408 |
/// | answer that the peer takes too slowly | 8 KiB in 30 s | reset |
/// | silent answer after an HTTP/1 client has ended its side | 1 s | reset |
/// | HTTP/2 peer that does not answer a PING | 20 s, after 60 s without a byte | closed |
/// | request head | 16 KiB, 100 fields, 8 KiB path and query | 431, 414 |
/// | request body | 2 MiB, unless it streams | 413 |
/// | connections | 10 000, and 1000 from one public address | 503, GOAWAY; closed |
/// | HTTP/2 requests at a time | 100 | refused by stream |
/// | HTTP/2 request bodies in flight | 64 KiB each, 1 MiB together | the client waits |
/// | response bytes queued, besides the body frame in hand | 64 KiB; HTTP/2: for each stream | the body waits |
/// | bytes queued in the process | 256 MiB | `Connection: close`, 503 |
///
/// With an axum `Router` nothing else is needed: `server::serve(listener, router)`. Its extractors read the
/// [`RequestBody`] as they read any body, and answer 413 where it is too large. Handlers that are to take more than 2 MiB
/// need both `DefaultBodyLimit::disable()` on their route, and [`Limits::streaming`] for their path. axum answers 400
/// where a service that fails would have been answered for with 408.
///
/// Calls of gRPC over HTTP/2 stream: their bodies have no limit of size, and the limit of tonic for each message holds. A
/// server that also has handlers that collect whole bodies names by path what streams. Other calls that go beyond the
/// limit for bodies then end with `RESOURCE_EXHAUSTED`, also in tonic if the feature `tonic` is on:
///
/// ```
/// # use millstream::server::Limits;
/// let limits = Limits::default().streaming(|head| head.uri.path().starts_with("/route_guide.RouteGuide/"));
/// # drop(limits);
/// ```
///
/// An answer to an HTTP/1 request whose body was not read reaches the client, also one that sends all of it first: the
/// server shuts its sending side down, discards what comes, and closes the connection when the client does, after 5 s
/// without a byte, 30 s, or 64 MiB.
///
/// Services learn from the extensions of a request who has sent it: with the feature `axum` handlers take
/// `ConnectInfo<SocketAddr>`, without `into_make_service_with_connect_info`, and with the feature `tonic` the `remote_addr` of a
/// request is known, by `TcpConnectInfo`. On a Unix socket the address is a [`std::os::unix::net::SocketAddr`], and tonic's
/// services find an `Option<`[`Credentials`](crate::net::Credentials)`>`. [`on_connection`](Serve::on_connection) tells others.
///
/// Requests are answered 400 before the service sees them unless they have exactly one valid `Host`, which HTTP/1.0 and HTTP/2
/// may lack ([RFC 9112 §3.2](https://www.rfc-editor.org/rfc/rfc9112#section-3.2)).
///
/// Upgrades (WebSocket, `CONNECT`) work; [`Upgraded::downcast`](hyper::upgrade::Upgraded::downcast) gives the
/// stream back, a [`TcpStream`](crate::net::TcpStream) for example. Such a connection goes on counting as one, and a [`DrainSignal`]
/// tells its task when the server drains.
///
/// # Errors
///
/// The future ends only when the listener fails for good. What fails in a connection ends that connection, and what panics
/// in the service or a body ends its connection or, over HTTP/2, its stream; only what panics in `call` itself, not in the
/// future that it gives, ends the connection there too.
///
/// # Cancellation
///
/// Dropping the future closes the listener at once. Connections that run are finished by their own tasks, within the
/// limits.
pub fn serve<L: Accept, S: HttpService>(listener: L, service: S) -> Serve<L, S> {
    Serve {
        listener,
        service,
        greet: None,
        hooks: Hooks::default(),
        limits: Limits::default(),
        limiter: Arc::default(),
        #[cfg(feature = "tls")]
        tls: None,
    }
}

/// A server that is ready to run: await it. Made by [`serve`].
#[must_use = "a server does nothing unless awaited"]
pub struct Serve<L: Accept, S> {
    listener: L,
    service: S,
    pub(super) greet: Option<Greet<S, L::Addr>>,
    pub(super) hooks: Hooks,
    limits: Limits,
    pub(super) limiter: Arc<ConnLimiter>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Tls>,
}

pub(super) type Greet<S, A> = Arc<dyn Fn(&mut S, &Peer<A>) + Send + Sync>;

impl<L: Accept, S> Serve<L, S> {
    /// Sets what the server puts up with.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Has `greet` tell each connection's clone of the service who has connected, for a proxy that names its clients or a
    /// layer that needs the [`Handle`](crate::net::Handle) of the connection.
    pub fn on_connection(mut self, greet: impl Fn(&mut S, &Peer<L::Addr>) + Send + Sync + 'static) -> Self {
        self.greet = Some(Arc::new(greet));
        self
    }
}

impl<L: Accept, S: HttpService> Serve<L, S> {
    /// Serves until `signal` is ready, whatever it gives, and then ends: the listener is closed, idle connections are
    /// closed, the others finish what they have begun and take no further requests (`Connection: close`, GOAWAY). Answers
    /// that have an [`GracefulClose`](crate::body::GracefulClose) are told to end, and tasks that wait for a [`DrainSignal`]. What is left at the `deadline`, counted from the
    /// signal, is reset.
    ///
    /// Connections that the kernel had accepted are served, and so is a request that is just coming: a connection is
    /// idle if it has received nothing for a quarter of a second after the signal.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use millstream::net::TcpListener;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let files = files::Files::new("public")?;
    /// let listener = TcpListener::bind("127.0.0.1:8080").await?;
    /// let drained = server::serve(listener, files).drain(tokio::signal::ctrl_c(), Duration::from_secs(10)).await?;
    /// println!("{} connections finished, {} were cut off", drained.finished + drained.told, drained.aborted);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`serve`], before the signal.
    ///
    /// # Cancellation
    ///
    /// Dropping the future before the signal is as for [`serve`]; after it the connections are drained all the same.
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

/// A running server; see [`serve`] for how it ends.
#[must_use = "a server does nothing unless polled"]
pub struct Serving(Pin<Box<dyn Future<Output = io::Result<()>> + Send>>);

impl<L: Accept, S: HttpService> IntoFuture for Serve<L, S> {
    type Output = io::Result<()>;
    type IntoFuture = Serving;

    fn into_future(self) -> Serving {
        Serving(Box::pin(async move { Server::start(self).accept().await.map(|never| match never {}) }))
    }
}

/// A server that runs.
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
        // A client of TLS says by `close_notify` when it has left, which has to be read to be noticed.
        #[cfg(feature = "tls")]
        let limits = if serve.tls.is_some() { limits.half_close(Duration::ZERO) } else { limits };
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

    /// Accepts the connections that wait.
    async fn accept_waiting(&mut self) {
        let mut asks_again = false;
        for _ in 0..WAITING {
            let mut accept = pin!(self.serve.listener.accept());
            match poll_fn(|cx| Poll::Ready(accept.as_mut().poll(cx))).await {
                Poll::Ready(Ok((stream, addr))) => {
                    asks_again = false;
                    self.begin(stream, addr);
                }
                // This task may have had its turn, or the runtime not have looked yet.
                Poll::Pending if !asks_again => {
                    asks_again = true;
                    tokio::task::yield_now().await;
                }
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
    }

    /// Starts the task of a connection, unless there are too many.
    fn begin(&self, stream: L::Stream, addr: L::Addr) {
        let (shared, handle) = (&self.shared, stream.seen());
        let Some(permit) = shared.limiter.admit(addr.ip(), &shared.limits) else {
            // A handshake is most of what a connection costs, and before it a client of TLS understands nothing.
            #[cfg(feature = "tls")]
            if self.serve.tls.is_some() {
                return handle.reset();
            }
            return refuse(&shared.limiter.refused, stream, handle);
        };
        let conn_state = ConnState::new(Arc::clone(&shared.limits), handle.clone(), permit);
        let mut service = self.serve.service.clone();
        let identity = addr.identity(&stream);
        let peer = Peer::new(addr, handle, DrainSignal::new(&conn_state));
        if let Some(greet) = &self.serve.greet {
            greet(&mut service, &peer);
        }
        let service = Introduced::new(service, identity);
        let (id, addr) = (peer.handle().id(), peer.addr());
        let (running, shared) = (shared.enter(&conn_state), Arc::clone(shared));
        #[cfg(feature = "tls")]
        if let Some(tls) = self.serve.tls.clone() {
            let task = async move {
                let _running = running;
                ended(secure(&tls, &shared.protocols, stream, service, &conn_state).await);
            };
            tokio::spawn(span::connection(id, addr, task));
            return;
        }
        let task = async move {
            let _running = running;
            ended(connection(&shared.protocols, stream, service, &conn_state).await);
        };
        tokio::spawn(span::connection(id, addr, task));
    }

    /// Closes the listener, and has the connections end.
    async fn drain(mut self, deadline: Duration) -> io::Result<Drained> {
        self.shared.drain(deadline);
        let reaper = self.reaper.take().expect("internal: drained once");
        drop(self);
        reaper.await.map_err(io::Error::other)
    }
}

/// The one place that learns how a connection ended.
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

impl<L: Accept, S> fmt::Debug for Serve<L, S> {
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
