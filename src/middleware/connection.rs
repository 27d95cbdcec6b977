//! Peer and stream of a connection.

use std::fmt;
use std::net::IpAddr;
#[cfg(any(feature = "axum", feature = "tonic"))]
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64};

use http::Extensions;

use crate::net::{Handle, SendStrategy};

/// A connection for [`Stamp`](super::Stamp) and [`Canary`](super::Canary): its peer and its stream. Created once for
/// each connection and shared by its requests; cheap to clone.
///
/// With axum (feature `axum`), use `app.into_make_service_with_connect_info::<Connection>()`, as for a
/// [`CanaryLayer`](super::CanaryLayer).
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    peer: Option<IpAddr>,
    handle: Handle,
    /// Path of the stream when it was accepted, taken by requests outside the shares.
    base: SendStrategy,
    /// Numbers of paths: that of the stream now, and with a version that which the connection keeps.
    current: AtomicU8,
    kept: AtomicU64,
}

impl Connection {
    /// Creates a connection of `peer`, `None` for a peer without an IP address.
    pub fn new(peer: impl Into<Option<IpAddr>>, handle: Handle) -> Self {
        let base = handle.send_strategy().unwrap_or_default();
        let (current, kept) = (AtomicU8::new(base as u8), AtomicU64::new(0));
        Self(Arc::new(Inner { peer: peer.into(), handle, base, current, kept }))
    }

    /// Returns the address of the peer; `None` if it has no IP address.
    pub fn peer(&self) -> Option<IpAddr> {
        self.0.peer
    }

    /// Returns the handle of the stream.
    pub fn handle(&self) -> &Handle {
        &self.0.handle
    }

    pub(super) fn base(&self) -> SendStrategy {
        self.0.base
    }

    pub(super) fn current(&self) -> &AtomicU8 {
        &self.0.current
    }

    pub(super) fn kept(&self) -> &AtomicU64 {
        &self.0.kept
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("peer", &self.0.peer).field("handle", &self.0.handle).finish_non_exhaustive()
    }
}

#[cfg(feature = "axum")]
impl axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, crate::net::TcpListener>> for Connection {
    fn connect_info(stream: axum::serve::IncomingStream<'_, crate::net::TcpListener>) -> Self {
        Self::new(stream.remote_addr().ip(), stream.io().handle())
    }
}

#[cfg(feature = "axum")]
impl axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, crate::net::UnixListener>> for Connection {
    fn connect_info(stream: axum::serve::IncomingStream<'_, crate::net::UnixListener>) -> Self {
        Self::new(None, stream.io().handle())
    }
}

pub(super) fn connection(extensions: &Extensions) -> Option<&Connection> {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(connection)) = extensions.get() {
        return Some(connection);
    }
    extensions.get()
}

pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    if let Some(connection) = connection(extensions) {
        return connection.peer();
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(addr)) = extensions.get::<axum::extract::ConnectInfo<SocketAddr>>() {
        return Some(addr.ip());
    }
    #[cfg(feature = "tonic")]
    if let Some(info) = extensions.get::<tonic::transport::server::TcpConnectInfo>() {
        return info.remote_addr().map(|addr: SocketAddr| addr.ip());
    }
    None
}
