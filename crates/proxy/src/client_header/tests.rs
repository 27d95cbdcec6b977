//! Which client a header names, for requests that no server of this crate has accepted, or that a layer has changed.

use millstream::net::CountedIo;
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

#[test]
fn the_header_is_that_of_the_peer() {
    let line = |extensions: &Extensions| String::from_utf8(encoded(extensions, ProxyVersion::V1).to_vec()).unwrap();
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
    let mut checked = extensions("10.0.0.9", None);
    checked.insert(ProxyHeader::local());
    assert_eq!(line(&checked), "PROXY UNKNOWN\r\n", "a check of the load balancer");
    assert_eq!(line(&Extensions::new()), "PROXY UNKNOWN\r\n");
}
