//! The connection to an upstream that speaks HTTP/2, which all requests share.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::MutexGuard;

use super::failure::Failure;
use super::request_body::OutBody;
use super::stream::Stream;

/// Bytes of a response that are read ahead of the client.
const WINDOW: u32 = 64 << 10;
/// The same of all responses: as much as possible, because the readers of some must not stop the others.
const ALL_WINDOWS: u32 = i32::MAX as u32;
/// Silence after which the connection is tested while it has requests, so that a host that vanishes is noticed.
const PING: Duration = Duration::from_secs(20);

pub(super) type Sender = SendRequest<OutBody>;

/// The current connection, if there is one.
#[derive(Default)]
pub(super) struct Http2 {
    current: Mutex<Option<Sender>>,
    connecting: tokio::sync::Mutex<()>,
}

impl Http2 {
    pub(super) fn current(&self) -> Option<Sender> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone().filter(|sender| !sender.is_closed())
    }

    /// Waits for the others that connect. The next one is the first to look whether they have succeeded.
    pub(super) async fn connecting(&self) -> MutexGuard<'_, ()> {
        self.connecting.lock().await
    }

    /// Begins to use a connection for all requests. `head` is the maximum size of the head of a response.
    pub(super) async fn begin(&self, stream: Stream, head: usize) -> Result<Sender, Failure> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(WINDOW).initial_connection_window_size(ALL_WINDOWS);
        builder.max_header_list_size(head.try_into().unwrap_or(u32::MAX));
        builder.timer(TokioTimer::new()).keep_alive_interval(PING);
        let (sender, connection) = builder.handshake(stream).await.map_err(Failure::Upstream)?;
        tokio::spawn(connection);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender.clone());
        Ok(sender)
    }

    /// Makes the next request open a connection. Requests in progress keep theirs.
    pub(super) fn forget(&self) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Sends a request and receives the head of its response.
pub(super) async fn send(mut sender: Sender, request: Request<OutBody>) -> Result<Response<Incoming>, Failure> {
    sender.try_send_request(request).await.map_err(|mut failed| match failed.take_message() {
        Some(request) => Failure::Unsent(Box::new(request)),
        None => Failure::Upstream(failed.into_error()),
    })
}
