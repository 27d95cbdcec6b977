//! Starts servers.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioExecutor;

use super::accept::{AcceptLoop, Connection, Settings};
use super::drain::Drained;
use super::limits::Limits;
use super::request::HttpService;
#[cfg(unix)]
use super::state::Successor;
use crate::net::Accept;
#[cfg(tls)]
use crate::server::tls::Tls;

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
/// The [limits](Server::limits) below apply by default. [`drain`](Server::drain) shuts a server down gracefully.
///
/// | | limit | beyond it |
/// |---|---|---|
/// | first request after connecting | 10 s | 408 if it was begun, GOAWAY; closed |
/// | next request head of HTTP/1, from its first byte | 10 s | 408; closed |
/// | no request | 75 s | GOAWAY; closed |
/// | request body, while the service waits for it | 1 KiB in 30 s | reading fails; 408 if the service returns the error |
/// | response that the peer takes too slowly | 8 KiB in 30 s | reset |
/// | response without bytes to send, after an HTTP/1 client has ended its side | 1 s | reset |
/// | HTTP/2 peer that does not answer a PING | 20 s, after 60 s without a byte | closed |
/// | request head | 16 KiB, 100 fields, 8 KiB path and query | 431, 414 |
/// | connections | 10 000, and 1000 from one public address | 503, GOAWAY; closed |
/// | HTTP/2 requests at a time | 100 | refused by stream |
/// | HTTP/2 request bodies in flight | 3 MiB each, 4 MiB together | the client waits |
/// | response bytes queued, besides the body frame in hand | 64 KiB; HTTP/2: for each stream | the body waits |
/// | bytes queued in the process | 256 MiB | `Connection: close`, 503 |
///
/// An axum `Router` needs nothing else: `server::serve(listener, router)`. Its extractors read the
/// [`RequestBody`](super::RequestBody) as
/// any body, within axum's `DefaultBodyLimit`, and answer with 413 if it is too large. The server has no limit of its own,
/// unless [`Limits::body`] sets one: a service that collects bodies and has no limit needs it. Where other services answer
/// with 408, axum answers with 400.
///
/// gRPC calls over HTTP/2 stream: they may pause, and `Limits::body` does not apply to them; tonic limits each message. A
/// server that also has handlers that collect whole bodies selects the [streaming](Limits::streaming_requests) requests by
/// path. Other calls beyond the body limit end with `RESOURCE_EXHAUSTED`, also in tonic if the feature `tonic-014` is on.
///
/// The last response of an HTTP/1 connection reaches the client, even one that still sends the body of its request, or
/// further requests, and reads later: the server shuts its sending side down, discards what arrives, and closes the
/// connection when the client does, or after 5 s without a byte, 30 s, or 64 MiB.
///
/// The extensions of a request identify its peer. With the feature `axum-08`, handlers take `ConnectInfo<SocketAddr>`: pass
/// the `Router` itself, without `into_make_service_with_connect_info`, which is a service for connections. Without the
/// feature such handlers compile and answer with 500. With the feature `tonic-014`, `remote_addr` is set by `TcpConnectInfo`.
/// On a Unix socket the address is a [`std::os::unix::net::SocketAddr`], and tonic's services find an
/// `Option<`[`Credentials`](crate::net::Credentials)`>`. Layers and services find a
/// `Connection`. [`on_connection`](Server::on_connection) adds other values.
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
/// the stream, for example a [`TcpStream`](crate::net::TcpStream). The connection still counts, and a
/// [`DrainSignal`](super::DrainSignal) notifies its task when the server drains.
///
/// # Errors
///
/// If the listener fails permanently. An error in a connection ends that connection. A panic in the service or a body
/// ends its connection or, over HTTP/2, its stream; a panic in `call` itself, not in the returned future, always ends
/// the connection.
///
/// # Panics
///
/// The future panics outside a tokio runtime with I/O and time enabled.
///
/// # Cancel safety
///
/// Dropping the future closes the listener at once. Open connections are finished by their own tasks, within limits.
pub fn serve<L: Accept, S: HttpService>(listener: L, service: S) -> Server<L, S> {
    Server { listener, service, settings: Settings::default() }
}

/// A server with its settings, from [`serve`] or [`serve_cores`](super::serve_cores()).
///
/// | from | `L` | runs |
/// |---|---|---|
/// | [`serve`] | a listener | when it is awaited, or what [`drain`](Self::drain) returns, in that task |
/// | [`serve_cores`](super::serve_cores()) | cores with listeners | on the cores, from [`run`](Self::run) or its `drain` on |
///
/// `A` is the type of the peer addresses.
#[must_use = "a server does nothing until it is awaited or runs"]
pub struct Server<L, S, A = <L as Accept>::Addr> {
    pub(super) listener: L,
    pub(super) service: S,
    pub(super) settings: Settings<A>,
}

impl<L, S, A> Server<L, S, A> {
    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Sets whether the server takes HTTP/1 responses over from hyper; on by default.
    ///
    /// hyper parses each request and writes the head of its response. A body of unknown length that is then pending,
    /// such as a stream of events, is written by this server, with the same bytes on the wire, and hyper's state of the
    /// connection is freed until the next request. HTTP/2, upgrades, and servers with options for
    /// [`http1`](Self::http1) stay with hyper. `MILLSTREAM_DISABLE=takeover` in the environment turns it off as well.
    pub fn takeover(mut self, on: bool) -> Self {
        self.settings.takeover = on;
        self
    }

    /// Changes options of hyper's HTTP/1 server that [`Limits`] does not have, for example by `.http1(|http1| {
    /// http1.title_case_headers(true); })`. `options` is called when the server starts, once on each core, after the limits,
    /// and overrides them, for instance [`Limits::half_close`]. Options that need a timer also need `timer`.
    pub fn http1(mut self, options: impl Fn(&mut http1::Builder) + Send + Sync + 'static) -> Self {
        self.settings.hooks.one = Some(Arc::new(options));
        self
    }

    /// Changes options of hyper's HTTP/2 server, as [`http1`](Self::http1) does: `enable_connect_protocol` for
    /// WebSockets (RFC 8441), `max_frame_size`, `max_pending_accept_reset_streams` and others. The timer is set.
    pub fn http2(mut self, options: impl Fn(&mut http2::Builder<TokioExecutor>) + Send + Sync + 'static) -> Self {
        self.settings.hooks.two = Some(Arc::new(options));
        self
    }

    /// Gives connections to `take` when the server [drains](Self::drain), and does not close them: another process or
    /// server goes on with them ([`TcpListener::adopt`](crate::net::TcpListener::adopt)), and their clients notice nothing.
    /// The crate `millstream-handoff` does it between processes.
    ///
    /// A connection of HTTP/1 without TLS moves
    ///
    /// - when no request is in progress and none has arrived. Bytes that arrive later wait in the socket. Until then its
    ///   requests are answered without `Connection: close`; a response that is told to end is followed by the move;
    /// - with a response of events of a [`Hub`](crate::sse) that is [handed over](crate::sse::Hub::hand_over), once all
    ///   bytes of it were sent. The [`MovedBody`](crate::body::MovedBody) is the place of its reader. Through layers, such
    ///   as those of axum, the hub needs [`past_layers`](crate::sse::HubBuilder::past_layers). Readers in another framing
    ///   and readers that are behind the ring stay.
    ///
    /// Connections with TLS, HTTP/2 or a PROXY header, upgrades, streams that are not of this crate, and those of servers
    /// without [`takeover`](Self::takeover) drain as usual. So do connections that hyper keeps: the service has not read the
    /// body of a request, or has framed a response itself. [`Drained::moved`] counts the connections, and
    /// [`Drained::stayed`] the others.
    ///
    /// `take` is called in the task of the connection, and must not block.
    #[cfg(unix)]
    pub fn move_connections(
        mut self,
        take: impl Fn(std::os::fd::OwnedFd, Option<crate::body::MovedBody>) + Send + Sync + 'static,
    ) -> Self {
        self.settings.successor = Some(Successor(Arc::new(take)));
        self
    }

    /// Serves over TLS only: HTTP/2 or HTTP/1.1 as negotiated by ALPN, or without ALPN by the client's first bytes. A
    /// client that speaks HTTP without TLS is answered with 400.
    ///
    /// The handshake must complete within the [limit](super::Limits) for the first request. A connection whose
    /// handshake fails is closed and counted. An upgrade yields a [`TlsStream`](crate::server::tls::TlsStream) around
    /// the listener's stream.
    #[cfg(tls)]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.settings.tls = Some(tls);
        self
    }

    /// Calls `hook` for each new connection, with the extensions that each of its requests will have, the connection,
    /// and its address. The hook runs in the task that accepts connections, and must not block. A panic of it closes the
    /// connection.
    pub fn on_connection(mut self, hook: impl Fn(&mut Extensions, &Connection, &A) + Send + Sync + 'static) -> Self {
        self.settings.on_connection = Some(Arc::new(hook));
        self
    }
}

impl<L: Accept, S: HttpService> Server<L, S> {
    /// Serves until `signal` is ready, and then shuts down: the listener and idle connections are closed, and other
    /// connections finish their requests and accept no further ones (`Connection: close`, GOAWAY). Responses with a
    /// [`GracefulClose`](crate::body::GracefulClose) are told to end: those of a [`Hub`](crate::sse), and others to which
    /// [`until_drain`](super::until_drain()) was applied. Tasks that wait for a [`DrainSignal`](super::DrainSignal) are
    /// notified. Both happen one after another over most of the time, if there are [many](Limits::drain_spread), so that
    /// their clients do not reconnect together. Connections still open at the `deadline`, counted from the signal, are reset.
    ///
    /// Connections that the kernel has accepted are served, and so is a request that is arriving: a connection is idle
    /// if it receives nothing for a quarter of a second after the signal and after its last response. If the head of a
    /// response was sent before the signal, the next request on that HTTP/1 connection is answered, with
    /// `Connection: close`. Requests that a client has pipelined behind that one are not ([RFC 9112
    /// §9.6](https://www.rfc-editor.org/rfc/rfc9112#section-9.6)). A connection that is idle at the deadline is closed,
    /// not reset.
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
    pub fn drain<F>(self, signal: F, deadline: Duration) -> Pin<Box<dyn Future<Output = io::Result<Drained>> + Send>>
    where
        F: Future + Send + 'static,
    {
        Box::pin(async move { self.start().accept_until(signal).await?.drain(deadline).await })
    }

    fn start(self) -> AcceptLoop<L, S> {
        AcceptLoop::start(self.listener, self.service, self.settings)
    }
}

impl<L: Accept, S: HttpService> IntoFuture for Server<L, S> {
    type Output = io::Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.start().accept().await.map(|never| match never {}) })
    }
}

impl<L: fmt::Debug, S, A> fmt::Debug for Server<L, S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listener, settings, .. } = self;
        f.debug_struct("Server").field("listener", listener).field("limits", &settings.limits).finish_non_exhaustive()
    }
}
