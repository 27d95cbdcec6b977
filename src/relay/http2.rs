//! The connection to an upstream that speaks HTTP/2, which all requests share.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::failure::Failure;
use super::request_body::OutBody;
use super::upstream::Upstream;

/// Bytes of a response that are read ahead of the client.
const WINDOW: u32 = 64 << 10;
/// The same of all responses: as much as possible, because the readers of some must not stop the others.
const ALL_WINDOWS: u32 = i32::MAX as u32;
/// Silence after which the connection is tested while it has requests, so that a host that vanishes is noticed.
const PING: Duration = Duration::from_secs(20);

/// The current connection, if there is one.
#[derive(Default)]
pub(super) struct Http2 {
    current: Mutex<Option<SendRequest<OutBody>>>,
    connecting: tokio::sync::Mutex<()>,
}

impl Http2 {
    fn current(&self) -> Option<SendRequest<OutBody>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone().filter(|sender| !sender.is_closed())
    }

    /// Returns the connection. Requests that need a new one wait for the same.
    async fn sender(&self, upstream: &Upstream, limit: Duration) -> Result<SendRequest<OutBody>, Failure> {
        if let Some(sender) = self.current() {
            return Ok(sender);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(sender) = self.current() {
            return Ok(sender);
        }
        let stream = upstream.connect(limit).await.map_err(Failure::Connect)?;
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(WINDOW).initial_connection_window_size(ALL_WINDOWS);
        builder.timer(TokioTimer::new()).keep_alive_interval(PING);
        let (sender, connection) = builder.handshake(stream).await.map_err(Failure::Upstream)?;
        tokio::spawn(connection);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender.clone());
        Ok(sender)
    }

    /// Sends a request, and once more if hyper has given it back, because the upstream has ended the connection before.
    pub(super) async fn send(
        &self,
        mut request: Request<OutBody>,
        upstream: &Upstream,
        limit: Duration,
    ) -> Result<Response<Incoming>, Failure> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.sender(upstream, limit).await?.try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) if attempts == 1 => {
                        request = unsent;
                        self.forget();
                    }
                    _ => return Err(Failure::Upstream(failed.into_error())),
                },
            }
        }
    }

    /// Makes the next request open a connection. Requests in progress keep theirs.
    pub(super) fn forget(&self) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
