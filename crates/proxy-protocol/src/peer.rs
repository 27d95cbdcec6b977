//! The peer of a connection.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;
use millstream::net::{Handle, PeerAddr};

use crate::header::{Addresses, ProxyHeader};

/// The peer of a connection of a [`ProxyListener`](crate::ProxyListener): a client, and the load balancer between. `A`
/// is the address of the inner listener.
#[derive(Clone, Debug)]
pub struct ProxyPeer<A> {
    addr: A,
    header: Option<ProxyHeader>,
}

impl<A> ProxyPeer<A> {
    pub(crate) fn new(addr: A, header: Option<ProxyHeader>) -> Self {
        Self { addr, header }
    }

    /// Returns the address of the other end of the socket: the load balancer, if there is a header.
    pub fn socket_addr(&self) -> &A {
        &self.addr
    }

    /// Returns the header; `None` if the peer is not trusted, and connected by itself.
    pub fn header(&self) -> Option<&ProxyHeader> {
        self.header.as_ref()
    }

    fn addresses(&self) -> Option<&Addresses> {
        self.header.as_ref()?.addresses()
    }
}

impl ProxyPeer<SocketAddr> {
    /// Returns the address of the client: the one in the header or, without one, the other end of the socket.
    /// `None` for the client of a Unix socket.
    pub fn client(&self) -> Option<SocketAddr> {
        match self.addresses() {
            Some(_) => self.header()?.client(),
            None => Some(self.addr),
        }
    }
}

impl<A: PeerAddr> PeerAddr for ProxyPeer<A> {
    /// Returns the address of the client. If the header has none, returns the address of the other end of the socket;
    /// `None` for the client of a Unix socket.
    fn ip(&self) -> Option<IpAddr> {
        match self.addresses() {
            Some(Addresses::Ip { source, .. }) => Some(source.ip()),
            Some(Addresses::Unix { .. }) => None,
            None => self.addr.ip(),
        }
    }

    /// Adds the [`ProxyHeader`], and the values of a direct connection of the client, such as axum's
    /// `ConnectInfo<SocketAddr>`.
    fn identify(&self, handle: &Handle, extensions: &mut Extensions) {
        match self.addresses() {
            Some(Addresses::Ip { source, .. }) => source.identify(handle, extensions),
            Some(Addresses::Unix { .. }) => {}
            None => self.addr.identify(handle, extensions),
        }
        if let Some(header) = &self.header {
            extensions.insert(header.clone());
        }
    }
}
