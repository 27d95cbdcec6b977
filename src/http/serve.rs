//! A server: connections of a listener, HTTP/1.1 or HTTP/2, to one service.
//!
//! Each connection is a task of its own, so what goes wrong in it stays in it. The limits are those a reviewer would ask
//! for; hyper has most of them switched off or set wide, and its header timeout does nothing until a timer is given.
//!
//! Invariant: a connection that has not brought a whole request in time is closed. hyper watches the HTTP/1 head; the time
//! before that, while the protocol is not known, and an HTTP/2 connection without a request are watched here.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::io::AsyncRead;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::adapter::Adapter;
use super::version::{Version, version};
use crate::net::{Accept, Unread};
use crate::observe::counters::{Gauge, Present};
use crate::observe::log;

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// From accepting a connection to its first request, and from each answer to the next request head of HTTP/1.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// For saying goodbye to a client that has let [`HEAD_TIMEOUT`] pass.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);

/// HTTP/1: bytes of body hyper queues before it writes, and the most it reads at once. A request head that is not complete
/// when so much of it has come is refused, which is looked at between reads: so a head may be twice as long. A
/// body frame is queued if there is any room, whatever its size, so a mapped file stays one piece. The smallest hyper
/// takes is 8 KiB; its default of 408 KiB is what each slow reader could make a connection keep, and on loopback it saved
/// calls but no CPU time that could be told from noise.
const H1_BUFFER: usize = 64 << 10;
/// HTTP/2: requests of one connection in flight.
const H2_STREAMS: u32 = 100;
/// HTTP/2: bytes of request body a stream may have in flight. Smaller than the connection's, so that no stream can
/// stall the others by not being read.
const H2_STREAM_WINDOW: u32 = 64 << 10;
/// HTTP/2: bytes of request bodies a connection may have in flight.
const H2_CONNECTION_WINDOW: u32 = 1 << 20;
/// HTTP/2: bytes of a request's header list, decoded.
const H2_HEADER_LIST: u32 = 16 << 10;
/// HTTP/2: response bytes a stream may have queued before its body is polled again. As for HTTP/1 a frame of any size is
/// taken if there is room for its first byte. hyper's default is 400 KiB; on loopback the
/// difference in CPU time could not be told from noise.
const H2_SEND_BUFFER: usize = 64 << 10;

/// Serves the connections of `listener`, TCP or Unix, with `service`: HTTP/1.1 and HTTP/2 without TLS on the same port.
///
/// `service` is any tower service for hyper's requests, such as an axum `Router`; each connection has a clone, and each
/// request one of that. Await what is returned:
///
/// ```no_run
/// use std::convert::Infallible;
///
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use hyper::{Request, Response, body::Incoming};
/// use millstream::{http, net::TcpListener};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let hello = tower::service_fn(async |_: Request<Incoming>| {
///     Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("Hello, world!"))))
/// });
/// http::serve(TcpListener::bind("127.0.0.1:8080").await?, hello).await
/// # }
/// ```
///
/// What holds for each connection:
///
/// | | limit |
/// |---|---|
/// | first request after connecting; next request head of HTTP/1 | 10 s |
/// | request head | HTTP/1: 64 KiB, twice that where it comes in large pieces, 100 fields; HTTP/2: 16 KiB |
/// | HTTP/2 requests at a time | 100 |
/// | HTTP/2 request bodies in flight | 64 KiB each, 1 MiB together |
/// | response bytes queued, besides the body frame in hand | 64 KiB; HTTP/2: for each stream |
///
/// Upgrades (WebSocket, `CONNECT`) work; [`Upgraded::downcast`](hyper::upgrade::Upgraded::downcast) gives the
/// stream back, a [`TcpStream`](crate::net::TcpStream) for example.
///
/// # Errors
///
/// The future ends only when the listener fails for good. What fails in a connection ends that connection, and what panics
/// in the service or a body ends its connection or, over HTTP/2, its stream.
///
/// # Cancellation
///
/// Dropping the future closes the listener at once. Connections that run are finished by their own tasks.
pub fn serve<L, S, B>(listener: L, service: S) -> Serve<L, S>
where
    L: Accept,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    Serve { listener, service, greet: None }
}

/// A server that is ready to run: await it. Made by [`serve`].
#[must_use = "a server does nothing unless awaited"]
pub struct Serve<L: Accept, S> {
    listener: L,
    service: S,
    greet: Option<Greet<S, L::Addr>>,
}

type Greet<S, A> = Box<dyn Fn(&mut S, &A) + Send>;

impl<L: Accept, S> Serve<L, S> {
    /// Has `greet` tell each connection's clone of the service who has connected, for a proxy that names its clients or a
    /// limit for each of them.
    pub fn on_connection(mut self, greet: impl Fn(&mut S, &L::Addr) + Send + 'static) -> Self {
        self.greet = Some(Box::new(greet));
        self
    }
}

/// A running server; see [`serve`] for how it ends.
#[must_use = "a server does nothing unless polled"]
pub struct Serving(Pin<Box<dyn Future<Output = io::Result<()>> + Send>>);

impl<L, S, B> IntoFuture for Serve<L, S>
where
    L: Accept,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Output = io::Result<()>;
    type IntoFuture = Serving;

    fn into_future(self) -> Serving {
        let Self { listener, service, greet } = self;
        let protocols = Arc::new(Protocols::limited());
        Serving(Box::pin(async move {
            loop {
                let (stream, peer) = listener.accept().await?;

                let (protocols, mut service) = (Arc::clone(&protocols), service.clone());
                if let Some(greet) = &greet {
                    greet(&mut service, &peer);
                }
                tokio::spawn(async move {
                    let _open = Present::in_(Gauge::OpenConnections);
                    // The one place that learns how a connection ended.
                    if let Err(error) = connection(&protocols, stream, service).await {
                        log::connection_failed(&*error);
                    }
                });
            }
        }))
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
        f.debug_struct("Serve").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

/// hyper's servers.
struct Protocols {
    one: http1::Builder,
    two: http2::Builder<TokioExecutor>,
}

impl Protocols {
    fn limited() -> Self {
        let mut one = http1::Builder::new();
        one.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(H1_BUFFER);
        let mut two = http2::Builder::new(TokioExecutor::new());
        two.timer(TokioTimer::new())
            .max_concurrent_streams(H2_STREAMS)
            .initial_stream_window_size(H2_STREAM_WINDOW)
            .initial_connection_window_size(H2_CONNECTION_WINDOW)
            .max_header_list_size(H2_HEADER_LIST)
            .max_send_buf_size(H2_SEND_BUFFER);
        Self { one, two }
    }
}

/// Runs one connection to its end.
async fn connection<I, S, B>(protocols: &Protocols, mut stream: I, service: S) -> Result<(), BoxError>
where
    I: hyper::rt::Read + hyper::rt::Write + AsyncRead + Unread + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let deadline = Instant::now() + HEAD_TIMEOUT;
    let requested = AtomicBool::new(false);
    let service = Adapter { service, requested: &requested };
    match timeout_at(deadline, version(&mut stream)).await?? {
        Version::One => {
            let connection = pin!(protocols.one.serve_connection(stream, service).with_upgrades());
            watched(connection, |connection| connection.graceful_shutdown(), deadline, &requested).await
        }
        Version::Two => {
            // Twice as large as one of HTTP/1, and every task would have to have room for it.
            let mut connection = Box::pin(protocols.two.serve_connection(stream, service));
            watched(connection.as_mut(), |connection| connection.graceful_shutdown(), deadline, &requested).await
        }
    }
}

/// Runs a connection that has to bring a request by `deadline`; else it is told so by `farewell`, and then closed.
async fn watched<C>(
    mut connection: Pin<&mut C>,
    farewell: impl Fn(Pin<&mut C>),
    deadline: Instant,
    requested: &AtomicBool,
) -> Result<(), BoxError>
where
    C: Future<Output = hyper::Result<()>>,
{
    for (deadline, last) in [(deadline, false), (deadline + FAREWELL_TIMEOUT, true)] {
        // `Some` when the connection has ended, `None` when it has brought a request.
        let opening = poll_fn(|cx| match connection.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending if requested.load(Ordering::Relaxed) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        match timeout_at(deadline, opening).await {
            Ok(Some(ended)) => return Ok(ended?),
            Ok(None) => return Ok(connection.await?),
            Err(_) if last => break,
            // An HTTP/2 client is told by GOAWAY, so a request it is just sending can be sent again elsewhere.
            Err(_) => farewell(connection.as_mut()),
        }
    }
    Err(io::Error::from(io::ErrorKind::TimedOut).into())
}
