//! The PROXY header of a connection to the upstream: the client whose requests it carries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use http::Extensions;
use millstream::internal::identity;
use millstream_proxy_protocol::{ProxyHeader, ProxyVersion};

/// The encoded header; `None` without the PROXY protocol. Connections carry only requests with an equal one, as in
/// HAProxy.
pub(crate) type ClientHeader = Option<Bytes>;

/// Returns the encoded header for the client of a request.
pub(crate) fn encoded(extensions: &Extensions, version: ProxyVersion) -> Bytes {
    header(extensions).encode(version).into()
}

fn header(extensions: &Extensions) -> ProxyHeader {
    let peer = identity::peer(extensions).map(|peer| peer.to_canonical());
    // The header that a load balancer in front has sent. Without a client it is a check of that load balancer. A layer
    // may have named another client since.
    let is_of_peer =
        |found: &&ProxyHeader| found.client().is_none_or(|client| peer == Some(client.ip().to_canonical()));
    if let Some(found) = extensions.get::<ProxyHeader>().filter(is_of_peer) {
        return found.clone();
    }
    let Some(peer) = peer else { return ProxyHeader::local() };
    let handle = identity::connection(extensions).map(|connection| connection.handle());
    let ends = handle.and_then(|handle| Some((handle.peer_addr()?, handle.local_addr()?)));
    let ends = ends.map(|(from, to)| (canonical(from), canonical(to)));
    let unspecified: IpAddr = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let (source, destination) = match ends {
        Some((from, to)) if from.ip() == peer => (from, to),
        Some((_, to)) => ((peer, 0).into(), to),
        None => ((peer, 0).into(), (unspecified, 0).into()),
    };
    ProxyHeader::builder(source, destination).build().expect("internal: a header without fields")
}

/// An IPv4 client may have connected to an IPv6 socket.
fn canonical(addr: SocketAddr) -> SocketAddr {
    (addr.ip().to_canonical(), addr.port()).into()
}

#[cfg(test)]
mod tests;
