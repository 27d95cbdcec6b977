//! The connection to an upstream that speaks HTTP/2, which all requests share.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::TokioExecutor;

use super::failure::Failure;
use super::request_body::OutBody;
use super::upstream::Upstream;

/// Bytes of a response that are read ahead of the client.
const WINDOW: u32 = 64 << 10;

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
    pub(super) async fn sender(&self, upstream: &Upstream, limit: Duration) -> Result<SendRequest<OutBody>, Failure> {
        if let Some(sender) = self.current() {
            return Ok(sender);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(sender) = self.current() {
            return Ok(sender);
        }
        let stream = upstream.connect(limit).await.map_err(Failure::Connect)?;
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(WINDOW);
        let (sender, connection) = builder.handshake(stream).await.map_err(Failure::Upstream)?;
        tokio::spawn(connection);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender.clone());
        Ok(sender)
    }
}
