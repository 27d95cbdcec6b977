//! HTTP/2 connections to the upstream. All requests share them. With the PROXY protocol, the requests of each client
//! share connections of their own.
//!
//! Most requests share one connection whose windows are wide enough for a distant upstream: a response can transfer
//! [`WIDE`] bytes per round trip. If its client reads more slowly than the upstream sends, up to [`WIDE`] bytes are in
//! memory. While [`WIDE_RESPONSES`] are in progress, further requests share a second connection with narrow windows.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio::time::{Instant, timeout};

use super::gate::RequestPlace;
use super::request_body::OutBody;
use super::settled::Settled;

/// Bytes of a response that are read ahead of the client.
const WIDE: u32 = 4 << 20;
pub(crate) const NARROW: u32 = 64 << 10;
/// Responses with [`WIDE`] windows. Together they hold at most 256 MiB.
const WIDE_RESPONSES: usize = 64;
/// The same for all responses together. This is the maximum, so that slow readers of some responses do not stop the
/// others.
const ALL_WINDOWS: u32 = i32::MAX as u32;
/// Time without received bytes after which a connection with requests is tested by a PING. This detects a host that has
/// vanished.
const PING: Duration = Duration::from_secs(20);

/// Maximum number of requests on a connection whose SETTINGS have not arrived. The upstream would refuse requests above
/// its limit. Further requests wait for their [`Turn`], not in hyper: hyper drops a request that waits for a stream when
/// the upstream announces the end of the connection, and does not tell whether it was sent.
const AT_FIRST: usize = 1;

#[derive(Clone)]
pub(crate) struct Sender {
    sender: SendRequest<OutBody>,
    /// Number of the connection.
    pub(crate) number: u64,
    since: Instant,
}

/// The connections that requests share. They end after their requests when this is dropped.
pub(crate) struct Connections {
    wide: Http2,
    narrow: Http2,
    places: Arc<Semaphore>,
}

impl Default for Connections {
    fn default() -> Self {
        Self::new(Arc::new(Semaphore::new(WIDE_RESPONSES)))
    }
}

impl Connections {
    fn new(places: Arc<Semaphore>) -> Self {
        Self { wide: Http2::new(WIDE), narrow: Http2::new(NARROW), places }
    }

    /// Returns others, which have the places for wide windows together with these.
    pub(crate) fn like(&self) -> Self {
        Self::new(Arc::clone(&self.places))
    }

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
    connecting: Arc<tokio::sync::Mutex<()>>,
}

/// The turn of a request to connect, up to the SETTINGS of the upstream.
pub(crate) type Turn = OwnedMutexGuard<()>;

#[derive(Default)]
struct Current {
    sender: Option<Sender>,
    /// The connection whose SETTINGS have not arrived, with the turn of its first request.
    begins: Option<(u64, Turn)>,
    /// Number of the last connection.
    last: u64,
}

/// Forgets a connection when its task or its stream ends. hyper gives back a request that it has not taken only when all
/// senders of the connection are dropped.
struct Ends {
    current: Arc<Mutex<Current>>,
    number: u64,
}

impl Ends {
    /// Lets other requests use the connection, whose SETTINGS have arrived. Returns `false` if its sender is not known
    /// yet.
    fn settle(&self) -> bool {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = current.sender.as_ref().is_some_and(|sender| sender.number == self.number);
        if !is_known && current.begins.as_ref().is_some_and(|(number, _)| *number == self.number) {
            return false;
        }
        let begun = current.settle(self.number);
        drop(current);
        drop(begun);
        true
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        forget(&self.current, self.number);
    }
}

fn forget(current: &Mutex<Current>, number: u64) {
    let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
    let forgotten = current.sender.take_if(|current| current.number == number);
    let begun = current.settle(number);
    drop(current);
    // Dropped without the lock, because dropping the last sender wakes a request.
    drop((forgotten, begun));
}

impl Current {
    /// Returns the turn of the request that has begun this connection, if its SETTINGS have not arrived.
    fn settle(&mut self, number: u64) -> Option<Turn> {
        self.begins.take_if(|(begun, _)| *begun == number).map(|(_, turn)| turn)
    }
}

impl Http2 {
    fn new(window: u32) -> Self {
        Self { window, current: Arc::default(), connecting: Arc::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection, if its SETTINGS have arrived and it is not older than `age`.
    pub(crate) fn current(&self, age: Duration) -> Option<Sender> {
        let current = self.lock();
        if current.begins.is_some() {
            return None;
        }
        current.sender.clone().filter(|current| !current.sender.is_closed() && current.since.elapsed() < age)
    }

    /// Waits until no other request is connecting, at most for `limit`. The caller then checks whether there is a
    /// connection.
    pub(crate) async fn connecting(&self, limit: Duration) -> Option<Turn> {
        let turn = timeout(limit, Arc::clone(&self.connecting).lock_owned()).await;
        if turn.is_err() {
            // An upstream that sends no SETTINGS would keep all requests waiting.
            let begun = self.lock().begins.as_ref().map(|(number, _)| *number);
            begun.into_iter().for_each(|number| self.forget(number));
        }
        turn.ok()
    }

    /// Begins to use a connection for all requests, which wait for the `turn` until its SETTINGS have arrived. `head` is
    /// the maximum size of the head of a response.
    pub(crate) async fn begin<S>(&self, stream: S, head: usize, turn: Option<Turn>) -> hyper::Result<Sender>
    where
        S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(self.window).initial_connection_window_size(ALL_WINDOWS);
        builder.max_header_list_size(head.try_into().unwrap_or(u32::MAX));
        builder.initial_max_send_streams(AT_FIRST);
        builder.timer(TokioTimer::new()).keep_alive_interval(PING);
        let number = self.number(turn);
        let ends = Ends { current: Arc::clone(&self.current), number };
        let stream = Settled::new(stream, move || ends.settle());
        let (sender, connection) = builder.handshake(stream).await?;
        let sender = Sender { sender, number, since: Instant::now() };
        let last = self.lock().sender.replace(sender.clone());
        drop(last);
        let ends = Ends { current: Arc::clone(&self.current), number };
        tokio::spawn(async move {
            let _ends = ends;
            // The requests return its error.
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// Returns the number of a connection that begins.
    fn number(&self, turn: Option<Turn>) -> u64 {
        let mut current = self.lock();
        current.last += 1;
        let number = current.last;
        if let Some(turn) = turn {
            current.begins = Some((number, turn));
        }
        number
    }

    /// Makes the next request open a connection if this one is current. Requests in progress keep theirs.
    pub(crate) fn forget(&self, number: u64) {
        forget(&self.current, number);
    }
}

/// The task of the connection has a sender too, which would keep it open.
impl Drop for Http2 {
    fn drop(&mut self) {
        let last = self.lock().sender.take();
        drop(last);
    }
}

/// Sends a request and receives the head of its response.
pub(crate) async fn send(
    mut sender: Sender,
    request: Request<OutBody>,
) -> Result<Response<Incoming>, TrySendError<Request<OutBody>>> {
    let answered = sender.sender.try_send_request(request);
    // If the connection ends before hyper takes the request, hyper gives it back only when all senders are dropped.
    drop(sender);
    answered.await
}

/// Whether the upstream has processed a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processed {
    Maybe,
    /// Not processed: the upstream has ended the connection (RFC 9113 §6.8).
    Unseen,
    /// Not processed: the upstream has refused the stream (RFC 9113 §8.7).
    Refused,
}

pub(crate) fn processed(error: &hyper::Error) -> Processed {
    match of_frames(error).filter(|error| error.is_remote()) {
        Some(error) if error.is_go_away() => Processed::Unseen,
        Some(error) if error.reason() == Some(h2::Reason::REFUSED_STREAM) => Processed::Refused,
        _ => Processed::Maybe,
    }
}

/// Returns whether only the stream of the request has failed, and not the connection.
pub(crate) fn is_of_stream(error: &hyper::Error) -> bool {
    of_frames(error).is_some_and(|error| !error.is_go_away())
}

/// Returns the HTTP/2 error. It is a GOAWAY exactly for the streams that a received GOAWAY reports as not processed.
fn of_frames(error: &hyper::Error) -> Option<&h2::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

#[cfg(test)]
mod tests;
