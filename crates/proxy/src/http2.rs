//! The connections to an upstream that speaks HTTP/2, which all requests share.
//!
//! Most requests share one connection whose windows are wide enough for a distant upstream: a response carries
//! [`WIDE`] bytes in each round trip, and as many are in memory if its client reads slower than the upstream sends. While
//! [`WIDE_RESPONSES`] are in progress, further requests share a second connection with narrow windows.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::{MutexGuard, Semaphore};
use tokio::time::Instant;

use super::failure::RequestFailure;
use super::gate::RequestPlace;
use super::request_body::OutBody;

/// Bytes of a response that are read ahead of the client.
const WIDE: u32 = 4 << 20;
pub(crate) const NARROW: u32 = 64 << 10;
/// Responses with [`WIDE`] windows. Together they hold at most 256 MiB.
const WIDE_RESPONSES: usize = 64;
/// The same of all responses: as much as possible, because the readers of some must not stop the others.
const ALL_WINDOWS: u32 = i32::MAX as u32;
/// Silence after which the connection is tested while it has requests, so that a host that vanishes is noticed.
const PING: Duration = Duration::from_secs(20);

/// Requests on a connection whose settings have not arrived. The upstream refuses those above its limit.
const AT_FIRST: usize = 1;

#[derive(Clone)]
pub(crate) struct Sender {
    sender: SendRequest<OutBody>,
    /// Number of the connection.
    pub(crate) number: u64,
    since: Instant,
}

/// The connections that requests share.
pub(crate) struct Connections {
    wide: Http2,
    narrow: Http2,
    places: Arc<Semaphore>,
}

impl Default for Connections {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(WIDE_RESPONSES));
        Self { wide: Http2::new(WIDE), narrow: Http2::new(NARROW), places }
    }
}

impl Connections {
    /// Returns the connection for the next request, with a place if its window is wide.
    pub(crate) fn choose(&self) -> (&Http2, Option<RequestPlace>) {
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => (&self.wide, Some(place)),
            Err(_) => (&self.narrow, None),
        }
    }
}

/// The current connection, if there is one.
pub(crate) struct Http2 {
    /// Bytes of a response that are read ahead of the client.
    window: u32,
    current: Arc<Mutex<Current>>,
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Current {
    sender: Option<Sender>,
    /// Number of the last connection.
    last: u64,
}

/// Forgets a connection when its task ends. hyper gives back a request that it did not take before the end when no sender of
/// the connection is left.
struct Ends {
    current: Arc<Mutex<Current>>,
    number: u64,
}

impl Drop for Ends {
    fn drop(&mut self) {
        forget(&self.current, self.number);
    }
}

fn forget(current: &Mutex<Current>, number: u64) {
    let forgotten =
        current.lock().unwrap_or_else(PoisonError::into_inner).sender.take_if(|current| current.number == number);
    // Without the lock: the last sender wakes a request.
    drop(forgotten);
}

impl Http2 {
    fn new(window: u32) -> Self {
        Self { window, current: Arc::default(), connecting: tokio::sync::Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection, if it is not older than `age`.
    pub(crate) fn current(&self, age: Duration) -> Option<Sender> {
        self.lock().sender.clone().filter(|current| !current.sender.is_closed() && current.since.elapsed() < age)
    }

    /// Waits for the others that connect. The next one is the first to look whether they have succeeded.
    pub(crate) async fn connecting(&self) -> MutexGuard<'_, ()> {
        self.connecting.lock().await
    }

    /// Begins to use a connection for all requests. `head` is the maximum size of the head of a response.
    pub(crate) async fn begin<S>(&self, stream: S, head: usize) -> Result<Sender, RequestFailure>
    where
        S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(self.window).initial_connection_window_size(ALL_WINDOWS);
        builder.max_header_list_size(head.try_into().unwrap_or(u32::MAX));
        builder.initial_max_send_streams(AT_FIRST);
        builder.timer(TokioTimer::new()).keep_alive_interval(PING);
        let (sender, connection) = builder.handshake(stream).await.map_err(RequestFailure::Upstream)?;
        let mut current = self.lock();
        current.last += 1;
        let sender = Sender { sender, number: current.last, since: Instant::now() };
        let last = current.sender.replace(sender.clone());
        drop(current);
        drop(last);
        let ends = Ends { current: Arc::clone(&self.current), number: sender.number };
        tokio::spawn(async move {
            let _ends = ends;
            // Its error is that of its requests.
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// Makes the next request open a connection if this one is current. Requests in progress keep theirs.
    pub(crate) fn forget(&self, number: u64) {
        forget(&self.current, number);
    }
}

/// Sends a request and receives the head of its response.
pub(crate) async fn send(mut sender: Sender, request: Request<OutBody>) -> Result<Response<Incoming>, RequestFailure> {
    let answered = sender.sender.try_send_request(request);
    // A sender that is kept while the request waits would hold the request, if the connection ends before hyper takes it.
    drop(sender);
    answered.await.map_err(|mut failed| match failed.take_message() {
        Some(request) => RequestFailure::Unsent(Box::new(request)),
        None => RequestFailure::Upstream(failed.into_error()),
    })
}

/// Whether the upstream has processed a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processed {
    Maybe,
    /// It was not, because the upstream ends the connection (RFC 9113 §6.8).
    Unseen,
    /// It was not, because the upstream refused its stream (RFC 9113 §8.7).
    Refused,
}

pub(crate) fn processed(error: &hyper::Error) -> Processed {
    match of_frames(error).filter(|error| error.is_remote()) {
        Some(error) if error.is_go_away() => Processed::Unseen,
        Some(error) if error.reason() == Some(h2::Reason::REFUSED_STREAM) => Processed::Refused,
        _ => Processed::Maybe,
    }
}

/// Returns whether only the stream of a request has failed, and not its connection.
pub(crate) fn is_of_stream(error: &hyper::Error) -> bool {
    of_frames(error).is_some_and(|error| !error.is_go_away())
}

/// Returns the error of HTTP/2 itself. The streams that a received GOAWAY does not cover have it as their error, and no others.
fn of_frames(error: &hyper::Error) -> Option<&h2::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

#[cfg(test)]
mod tests;
