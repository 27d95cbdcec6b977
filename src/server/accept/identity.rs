//! A connection: who the client is, in the extensions of its requests.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::Extensions;

use crate::net::Handle;
#[cfg(feature = "axum-08")]
use crate::net::{Accept, PeerAddr, Seen};
use crate::server::drain::DrainSignal;
use crate::server::state::{ClientGone, ConnState, Peer, Slot};

/// A connection: its peer and its stream. Created once for each connection and shared by its requests; cheap to clone.
/// Keeps neither the connection nor the server open.
///
/// Services and layers find it in the extensions of a request. [`serve`](crate::server::serve()) adds it to all. With
/// `axum::serve` (feature `axum-08`), use `app.into_make_service_with_connect_info::<server::Connection>()`.
#[derive(Clone)]
pub struct Connection(Owner);

#[derive(Clone)]
enum Owner {
    Accepted(DrainSignal),
    /// A connection that no server of this crate has accepted.
    Other(Arc<(Peer, Handle)>),
}

impl Connection {
    /// Creates a connection of `peer`, `None` for a peer without an IP address, that no server of this crate has
    /// accepted.
    pub fn new(peer: impl Into<Option<IpAddr>>, handle: Handle) -> Self {
        Self(Owner::Other(Arc::new((Peer { ip: peer.into(), ..Peer::default() }, handle))))
    }

    /// Creates a connection that a server has accepted.
    pub(super) fn accepted(conn_state: &Arc<ConnState>) -> Self {
        Self(Owner::Accepted(DrainSignal::new(conn_state)))
    }

    fn parts(&self) -> (&Peer, &Handle) {
        match &self.0 {
            Owner::Accepted(accepted) => (&accepted.0.peer, &accepted.0.handle),
            Owner::Other(other) => (&other.0, &other.1),
        }
    }

    /// Returns the address of the peer; `None` if it has no IP address.
    pub fn peer(&self) -> Option<IpAddr> {
        self.parts().0.ip
    }

    /// Returns whether a [server](crate::server::serve()) of this crate terminates the TLS of this connection. It does
    /// not detect TLS that a proxy in front of the server terminates.
    pub fn is_tls(&self) -> bool {
        self.parts().0.is_tls
    }

    /// Returns the handle of the stream, which counts the bytes sent and can reset it.
    pub fn handle(&self) -> &Handle {
        self.parts().1
    }

    /// Returns a future that is ready when the client has left; never for a connection that no server of this crate has
    /// accepted.
    pub fn gone(&self) -> ClientGone {
        let conn_state = self.drain_signal().map(|drain| Arc::clone(&drain.0));
        ClientGone::new(async move {
            match conn_state {
                Some(conn_state) => conn_state.absence.wait().await,
                None => std::future::pending().await,
            }
        })
    }

    /// Returns the signal that notifies the tasks of the connection when the server drains; `None` if no server of this
    /// crate has accepted it.
    pub fn drain_signal(&self) -> Option<&DrainSignal> {
        if let Owner::Accepted(accepted) = &self.0 { Some(accepted) } else { None }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer())
            .field("handle", self.handle())
            .field("is_tls", &self.is_tls())
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "axum-08")]
impl<L> axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, L>> for Connection
where
    L: Accept + axum::serve::Listener<Io = <L as Accept>::Stream, Addr = <L as Accept>::Addr>,
{
    fn connect_info(stream: axum::serve::IncomingStream<'_, L>) -> Self {
        Self::new(PeerAddr::ip(stream.remote_addr()), stream.io().seen())
    }
}

/// Returns the slot in which the canary keeps its state of `connection`.
pub fn connection_slot(connection: &Connection) -> &Slot {
    &connection.parts().0.slot
}

/// Returns the connection of a request.
pub fn connection(extensions: &Extensions) -> Option<&Connection> {
    #[cfg(feature = "axum-08")]
    if let Some(axum::extract::ConnectInfo(connection)) = extensions.get() {
        return Some(connection);
    }
    extensions.get()
}

/// Returns the address of the peer of a request.
pub fn peer(extensions: &Extensions) -> Option<IpAddr> {
    match connection(extensions) {
        Some(connection) => connection.peer(),
        None => connect_info(extensions).map(|addr| addr.ip()),
    }
}

/// Returns the address of the other end of the socket, with its port, if both are known.
pub fn socket_peer(extensions: &Extensions) -> Option<SocketAddr> {
    let connected = connection(extensions).and_then(|connection| connection.handle().peer_addr());
    connected.or_else(|| connect_info(extensions))
}

/// Returns the address that the server of axum or tonic gives.
fn connect_info(extensions: &Extensions) -> Option<SocketAddr> {
    #[cfg(feature = "axum-08")]
    if let Some(axum::extract::ConnectInfo(addr)) = extensions.get() {
        return Some(*addr);
    }
    #[cfg(feature = "tonic-014")]
    if let Some(info) = extensions.get::<tonic::transport::server::TcpConnectInfo>() {
        return info.remote_addr();
    }
    let _ = extensions;
    None
}
