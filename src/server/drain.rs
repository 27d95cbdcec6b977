//! Graceful shutdown of a server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::state::{ConnState, Protocol};
use crate::body::GracefulClose;

/// Outcome of the connections of a server that was drained by [`Server::drain`](super::Server::drain).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Connections that were open when the signal came: the sum of the next four.
    pub connections: usize,
    /// Connections that finished by themselves.
    pub finished: usize,
    /// Connections that finished after a [`GracefulClose`] or a [`DrainSignal`] had notified a response or a task.
    pub notified: usize,
    /// Connections that were reset at the deadline.
    pub aborted: usize,
    /// Connections whose socket was [given away](super::Server::move_connections).
    pub moved: usize,
    /// Why the others were not, if the server [gives connections away](super::Server::move_connections).
    pub stayed: Stayed,
    /// Time from the signal to the end of the last connection.
    pub duration: Duration,
}

/// Connections of a drain that did not move, by the reason, in [`Drained::stayed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stayed {
    /// The connection is more than its socket: HTTP/2, TLS, a PROXY header, or an upgrade. Or the body of a request was not
    /// read, or a response had a framing of its own.
    pub protocol: usize,
    /// A response was in progress that cannot move, or its client read too slowly.
    pub response: usize,
    /// It ended before it could move.
    pub ended: usize,
}

impl Stayed {
    fn and(self, other: Self) -> Self {
        Self {
            protocol: self.protocol + other.protocol,
            response: self.response + other.response,
            ended: self.ended + other.ended,
        }
    }
}

impl Drained {
    /// Adds a connection that has ended during the drain.
    pub(super) fn add(&mut self, conn_state: &ConnState) {
        let how = match conn_state.was_notified() {
            _ if conn_state.moving.is_done() => &mut self.moved,
            true => &mut self.notified,
            false => &mut self.finished,
        };
        *how += 1;
        self.connections += 1;
        self.add_stayed(conn_state, false);
    }

    pub(super) fn add_aborted(&mut self, conn_state: &ConnState) {
        self.aborted += 1;
        self.connections += 1;
        self.add_stayed(conn_state, true);
    }

    fn add_stayed(&mut self, conn_state: &ConnState, was_aborted: bool) {
        let moving = &conn_state.moving;
        if !moving.is_left() {
            return;
        }
        let is_bound = conn_state.protocol() == Protocol::Two || conn_state.is_tunnel() || moving.stays();
        let why = match moving.was_asked() || was_aborted {
            _ if is_bound => &mut self.stayed.protocol,
            true => &mut self.stayed.response,
            false => &mut self.stayed.ended,
        };
        *why += 1;
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            finished: self.finished + other.finished,
            notified: self.notified + other.notified,
            aborted: self.aborted + other.aborted,
            moved: self.moved + other.moved,
            stayed: self.stayed.and(other.stayed),
            duration: self.duration.max(other.duration),
        }
    }
}

/// Notifies the tasks of a connection when its server drains, or when it has reached its [age](super::Limits::age), so that
/// they can finish. A server that drains does not notify all at [once](super::Limits::drain_spread). An upgraded connection that
/// ignores it, such as a WebSocket, stays open until the deadline. Cheap to clone; keeps neither the connection nor the
/// server open.
///
/// It is in the [extensions](http::Request::extensions) of requests with an `Upgrade` field and of `CONNECT`. For other
/// requests [`Connection::drain_signal`](super::Connection::drain_signal) returns it. A [`GracefulClose`] ends endless
/// responses, and [`until_drain`](super::until_drain()) adds one.
///
/// A WebSocket that closes gracefully, in a service for [`serve`](super::serve()):
///
/// ```
/// use futures_util::{SinkExt, StreamExt};
/// use hyper::upgrade::Upgraded;
/// use hyper_util::rt::TokioIo;
/// use millstream::server::DrainSignal;
/// use tokio_tungstenite::WebSocketStream;
/// use tokio_tungstenite::tungstenite::Message;
///
/// async fn echo(mut socket: WebSocketStream<TokioIo<Upgraded>>, drain: DrainSignal) {
///     loop {
///         let message = tokio::select! {
///             message = socket.next() => message,
///             () = drain.draining() => break,
///         };
///         let Some(Ok(message)) = message else { return };
///         if message.is_text() && socket.send(message).await.is_err() {
///             return;
///         }
///     }
///     // Sends a close frame, and reads until the client has confirmed it.
///     let _ = socket.close(None).await;
///     while let Some(Ok(_)) = socket.next().await {}
/// }
/// ```
///
/// In axum the extractor is `Extension<DrainSignal>`, after that of the WebSocket, and the handler returns
/// `ws.on_upgrade(|socket| echo(socket, drain))`.
#[derive(Clone)]
pub struct DrainSignal(pub(super) Arc<ConnState>);

impl DrainSignal {
    pub(super) fn new(conn_state: &Arc<ConnState>) -> Self {
        Self(Arc::clone(conn_state))
    }

    /// Returns whether the server drains, or the connection has reached its age.
    pub fn is_draining(&self) -> bool {
        self.0.is_draining()
    }

    /// Waits until the server [drains](super::Server::drain) and it is the turn of this connection, or until the connection
    /// has reached its age. Never ready if the server is dropped without draining.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no notification: later futures are ready as well.
    pub async fn draining(&self) {
        let notify = Arc::new(Notify::new());
        let notifier = Arc::clone(&notify);
        let _registered = self.0.register_ending(GracefulClose::new(move || notifier.notify_one()));
        notify.notified().await;
    }
}

impl fmt::Debug for DrainSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainSignal").field("is_draining", &self.is_draining()).finish_non_exhaustive()
    }
}
