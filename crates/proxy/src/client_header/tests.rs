//! Which client a header names, for requests that no server of this crate has accepted, or that a layer has changed.

use millstream::net::{CountedIo, PeerAddr};
use millstream::server::Connection;

use super::*;

fn extensions(peer: &str, found: Option<&str>) -> Extensions {
    let mut extensions = Extensions::new();
    let handle = CountedIo::new(tokio::io::empty()).handle();
    extensions.insert(Connection::new(peer.parse::<IpAddr>().unwrap(), handle));
    if let Some(found) = found {
        let builder = ProxyHeader::builder(found.parse().unwrap(), "10.0.0.1:443".parse().unwrap());
        extensions.insert(builder.authority("mill.example").build().unwrap());
    }
    extensions
}

fn line(extensions: &Extensions) -> String {
    String::from_utf8(encoded(extensions, ProxyVersion::V1).to_vec()).unwrap()
}

#[test]
fn the_header_is_that_of_the_peer() {
    for (peer, found, expected) in [
        ("203.0.113.7", Some("203.0.113.7:4711"), "TCP4 203.0.113.7 10.0.0.1 4711 443"),
        ("203.0.113.7", Some("[::ffff:203.0.113.7]:4711"), "TCP6 ::ffff:203.0.113.7 ::ffff:10.0.0.1 4711 443"),
        // A layer has named another client than the load balancer.
        ("203.0.113.8", Some("203.0.113.7:4711"), "TCP4 203.0.113.8 0.0.0.0 0 0"),
        ("::ffff:203.0.113.8", None, "TCP4 203.0.113.8 0.0.0.0 0 0"),
        ("2001:db8::7", None, "TCP6 2001:db8::7 :: 0 0"),
    ] {
        assert_eq!(line(&extensions(peer, found)), format!("PROXY {expected}\r\n"), "{peer} {found:?}");
    }
    // A layer has named a client that the load balancer does not name.
    let mut named = extensions("203.0.113.8", None);
    for header in [ProxyHeader::local(), ProxyHeader::unknown()] {
        named.insert(header);
        assert_eq!(line(&named), "PROXY TCP4 203.0.113.8 0.0.0.0 0 0\r\n");
    }
    assert_eq!(line(&Extensions::new()), "PROXY UNKNOWN\r\n");
}

#[test]
fn a_header_without_a_client_keeps_its_command() {
    let mut extensions = Extensions::new();
    assert!(!header(&extensions).is_local());
    extensions.insert(Connection::new(None, CountedIo::new(tokio::io::empty()).handle()));
    assert!(!header(&extensions).is_local());
    for received in [ProxyHeader::unknown(), ProxyHeader::local()] {
        extensions.insert(received.clone());
        assert_eq!(header(&extensions), received);
    }
}

#[test]
fn the_alpn_of_the_load_balancer_is_left_out() {
    let mut extensions = extensions("203.0.113.7", None);
    let builder = ProxyHeader::builder("203.0.113.7:4711".parse().unwrap(), "10.0.0.1:443".parse().unwrap());
    let builder = builder.authority("mill.example");
    extensions.insert(builder.clone().field(1, b"h2").build().unwrap());
    assert_eq!(header(&extensions), builder.build().unwrap());
}

#[test]
fn the_port_of_a_stream_without_addresses_is_that_of_its_listener() {
    let (peer, handle): (SocketAddr, _) =
        ("203.0.113.7:4711".parse().unwrap(), CountedIo::new(tokio::io::empty()).handle());
    let mut extensions = Extensions::new();
    peer.identify(&handle, &mut extensions);
    assert_eq!(line(&extensions), "PROXY TCP4 203.0.113.7 0.0.0.0 4711 0\r\n");
    extensions.insert(Connection::new(peer.ip(), handle.clone()));
    assert_eq!(line(&extensions), "PROXY TCP4 203.0.113.7 0.0.0.0 4711 0\r\n");
    // A layer has named another client.
    extensions.insert(Connection::new(IpAddr::from([203, 0, 113, 8]), handle));
    assert_eq!(line(&extensions), "PROXY TCP4 203.0.113.8 0.0.0.0 0 0\r\n");
}
