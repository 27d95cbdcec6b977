//! The PROXY header of a connection to the upstream: the client whose requests it carries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use http::Extensions;
use millstream::internal::identity;
use millstream_proxy_protocol::{ProxyHeader, ProxyVersion};

/// The encoded header; `None` without the PROXY protocol. Connections carry only requests with an equal one, as in
/// HAProxy.
pub(crate) type ClientHeader = Option<Bytes>;

/// `PP2_TYPE_ALPN`, the protocol between the client and the load balancer. This proxy may speak another one to the
/// upstream.
const ALPN: u8 = 0x01;

/// Returns the encoded header for the client of a request.
pub(crate) fn encoded(extensions: &Extensions, version: ProxyVersion) -> Bytes {
    header(extensions).encode(version).into()
}

fn header(extensions: &Extensions) -> ProxyHeader {
    let peer = identity::peer(extensions).map(|peer| peer.to_canonical());
    let socket_peer = identity::socket_peer(extensions).map(canonical);
    // The header that a load balancer in front has sent, unless a layer has named another client since. With a header
    // without a client, the peer of the socket counts.
    let is_of_peer = |found: &&ProxyHeader| match found.client() {
        Some(client) => peer == Some(client.ip().to_canonical()),
        None => peer.is_none() || peer == socket_peer.map(|addr| addr.ip()),
    };
    if let Some(found) = extensions.get::<ProxyHeader>().filter(is_of_peer) {
        return found.without_field(ALPN);
    }
    let Some(peer) = peer else { return ProxyHeader::unknown() };
    let source = socket_peer.filter(|addr| addr.ip() == peer).unwrap_or((peer, 0).into());
    let local_addr = identity::connection(extensions).and_then(|connection| connection.handle().local_addr());
    let unspecified: IpAddr = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let destination = local_addr.map_or((unspecified, 0).into(), canonical);
    ProxyHeader::builder(source, destination).build().expect("internal: a header without fields")
}

/// An IPv4 client may have connected to an IPv6 socket.
fn canonical(addr: SocketAddr) -> SocketAddr {
    (addr.ip().to_canonical(), addr.port()).into()
}

#[cfg(test)]
mod tests;
