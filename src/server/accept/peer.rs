//! The client of a connection.

use std::fmt;
use std::sync::Arc;

use crate::net::Handle;
use crate::server::drain::DrainSignal;
use crate::server::state::ClientGone;

/// A connected client: its address, and a handle to its connection.
#[derive(Clone)]
pub struct Peer<A> {
    addr: A,
    handle: Handle,
    is_tls: bool,
    drain: DrainSignal,
}

impl<A> Peer<A> {
    pub(in crate::server) fn new(addr: A, handle: Handle, is_tls: bool, drain: DrainSignal) -> Self {
        Self { addr, handle, is_tls, drain }
    }

    /// Returns the address: a [`SocketAddr`](std::net::SocketAddr), or that of a Unix socket.
    pub fn addr(&self) -> &A {
        &self.addr
    }

    /// Returns the handle of the connection, which counts the bytes sent and can reset it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns whether the server ends the TLS of this connection.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Returns a future that is ready when the client has left.
    pub fn gone(&self) -> ClientGone {
        let conn_state = Arc::clone(&self.drain.0);
        ClientGone::new(async move { conn_state.absence.wait().await })
    }

    /// Returns the signal that notifies the tasks of the connection when the server drains.
    pub fn drain_signal(&self) -> &DrainSignal {
        &self.drain
    }
}

impl<A: fmt::Debug> fmt::Debug for Peer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("addr", &self.addr)
            .field("handle", &self.handle)
            .field("is_tls", &self.is_tls)
            .field("drain", &self.drain)
            .finish()
    }
}
