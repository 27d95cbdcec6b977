//! Tells the tasks of a connection that its client has left.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::sync::Notify;

/// Whether the client of a connection has left.
#[derive(Debug, Default)]
pub(in crate::server) struct Absence {
    gone: AtomicBool,
    notify: Notify,
}

impl Absence {
    pub(in crate::server) fn set(&self) {
        self.gone.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    fn is_set(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(in crate::server) async fn wait(&self) {
        let mut notified = std::pin::pin!(self.notify.notified());
        // Registered before the check, so that no notification is missed.
        notified.as_mut().enable();
        if !self.is_set() {
            notified.await;
        }
    }
}

/// A future that is ready when the client of a connection has left, from
/// [`Connection::gone`](crate::server::Connection::gone). The connection is in the extensions of requests.
///
/// It is ready when the client has reset or closed the connection, or has ended its side, and when the connection has
/// ended in any other way. It works at any time: before the first byte of a response, while the service waits for
/// something else, and while the body of the response is pending. When a client has left, the server also drops the
/// future of the service and the body. But an HTTP/1 client that has only ended its side may still read: its response
/// continues, within [`Limits::half_close`](crate::server::Limits::half_close). A service that stops when this future
/// is ready does not answer such clients:
///
/// | what the client does | this future | the response |
/// |---|---|---|
/// | resets, or closes both directions of a Unix socket | ready | dropped |
/// | closes, or ends its side (`FIN`; `nc -N` does, and waits for its answer) | ready | goes on while it sends; dropped after [`half_close`](crate::server::Limits::half_close) of silence |
/// | closes or ends its side while the response is a stream of events that is silent | ready | dropped, unless [`half_close_events`](crate::server::Limits::half_close_events) is on |
/// | closes or ends its side behind further requests that the server has not read | ready | goes on, unless it is a silent stream of events |
/// | closes or ends its side of a connection over TLS | ready | dropped, unless the server holds a further request |
/// | ends a connection of HTTP/2 | ready | dropped |
/// | ends a stream that is not of this crate | ready, unless the server holds a further request | dropped, unless the server holds a further request |
/// | cancels one request of HTTP/2 | pending: the connection goes on | dropped |
/// | leaves an upgraded connection | ready a quarter of a second after the service has dropped the stream, at the latest | - |
///
/// ```no_run
/// # async fn expensive() -> String { String::new() }
/// use millstream::server::Connection;
///
/// async fn answer(connection: Connection) -> Option<String> {
///     tokio::select! {
///         answer = expensive() => Some(answer),
///         () = connection.gone() => None,
///     }
/// }
/// # drop(answer);
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct ClientGone(Pin<Box<dyn Future<Output = ()> + Send>>);

impl ClientGone {
    pub(in crate::server) fn new(wait: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(wait))
    }
}

impl Future for ClientGone {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ClientGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientGone").finish_non_exhaustive()
    }
}
