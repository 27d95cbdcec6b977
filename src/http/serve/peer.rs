//! Who has connected.

use std::fmt;

use super::drain::DrainSignal;
use crate::net::Handle;

/// A client that has connected: its address, and its connection seen from outside.
#[derive(Clone)]
pub struct Peer<A> {
    addr: A,
    handle: Handle,
    drain: DrainSignal,
}

impl<A> Peer<A> {
    pub(super) fn new(addr: A, handle: Handle, drain: DrainSignal) -> Self {
        Self { addr, handle, drain }
    }

    /// Its address: a [`SocketAddr`](std::net::SocketAddr), or that of a Unix socket.
    pub fn addr(&self) -> &A {
        &self.addr
    }

    /// Its connection seen from outside: how much has been sent, and an end by force.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// What tells its tasks that the server drains.
    pub fn drain_signal(&self) -> &DrainSignal {
        &self.drain
    }
}

impl<A: fmt::Debug> fmt::Debug for Peer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("addr", &self.addr)
            .field("handle", &self.handle)
            .field("drain", &self.drain)
            .finish()
    }
}
