//! Encoded headers are parsed again, and have the bytes of the specification.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use crate::Ssl;
use crate::made::{self, field, kinds, ssl, summed, tcp, unix, v2};

fn parsed(bytes: &[u8]) -> ProxyHeader {
    let (header, len) = ProxyHeader::parse(bytes).unwrap().unwrap();
    assert_eq!(len, bytes.len());
    header
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Returns the header without its checksum.
fn unsummed(header: &ProxyHeader) -> ProxyHeader {
    header.without_field(CRC32C)
}

#[test]
fn the_bytes_are_those_of_the_specification() {
    let (v4, v6) = (("203.0.113.7:4711", "10.0.0.1:443"), ("[2001:db8::7]:4711", "[::1]:443"));
    let [four, six] = [v4, v6].map(|(from, to)| ProxyHeader::builder(addr(from), addr(to)));
    let fields = |builder: crate::ProxyHeaderBuilder| builder.authority("mill.example").unique_id(&[7; 128]);
    let sent = [field(2, "mill.example"), field(5, [7; 128])].concat();
    let (four, six) = (fields(four).build().unwrap(), fields(six).build().unwrap());
    assert_eq!(four.encode(ProxyVersion::V1), b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n");
    assert_eq!(six.encode(ProxyVersion::V1), b"PROXY TCP6 2001:db8::7 ::1 4711 443\r\n");
    assert_eq!(four.encode(ProxyVersion::V2), tcp(v4.0, v4.1, &sent));
    assert_eq!(six.encode(ProxyVersion::V2), tcp(v6.0, v6.1, &sent));
    assert_eq!(six.encode(ProxyVersion::V2WithChecksum), summed(tcp(v6.0, v6.1, &sent)));
    let local = ProxyHeader::local();
    assert_eq!(local.encode(ProxyVersion::V1), b"PROXY UNKNOWN\r\n");
    assert_eq!(local.encode(ProxyVersion::V2), v2(made::LOCAL, 0, []));
    let unknown = ProxyHeader::unknown();
    assert_eq!(unknown.encode(ProxyVersion::V1), b"PROXY UNKNOWN\r\n");
    assert_eq!(unknown.encode(ProxyVersion::V2), v2(made::PROXY, 0, []));
    assert_eq!(parsed(b"PROXY UNKNOWN\r\n"), unknown);
}

#[test]
fn addresses_of_two_families_are_sent_as_ipv6() {
    let mixed = ProxyHeader::builder(addr("203.0.113.7:4711"), addr("[::1]:443")).build().unwrap();
    assert_eq!(mixed.encode(ProxyVersion::V1), b"PROXY TCP6 ::ffff:203.0.113.7 ::1 4711 443\r\n");
    let mapped = tcp("[::ffff:203.0.113.7]:4711", "[::1]:443", &[]);
    assert_eq!(mixed.encode(ProxyVersion::V2), mapped);
}

#[test]
fn the_tls_of_the_client_is_that_of_the_specification() {
    let ssl_of = |is_tls, has_certificate, is_verified, common_name| Ssl {
        is_tls,
        has_certificate,
        is_verified,
        version: Some("TLSv1.3"),
        common_name,
    };
    let names = |name| [field(0x21, "TLSv1.3"), name].concat();
    for (ssl, value) in [
        (ssl_of(true, true, true, Some("mill")), [&[7, 0, 0, 0, 0][..], &names(field(0x22, "mill"))].concat()),
        (ssl_of(true, true, false, None), [&[7, 0, 0, 0, 1][..], &names(vec![])].concat()),
        (ssl_of(true, false, false, None), [&[1, 0, 0, 0, 1][..], &names(vec![])].concat()),
    ] {
        let (from, to) = ("203.0.113.7:4711", "10.0.0.1:443");
        let header = ProxyHeader::builder(addr(from), addr(to)).ssl(ssl).build().unwrap();
        assert_eq!(header.ssl(), Some(ssl));
        assert_eq!(header.encode(ProxyVersion::V2), tcp(from, to, &field(0x20, value)));
    }
}

#[test]
fn received_headers_are_passed_on_whole() {
    let all = kinds().into_iter().map(|(bytes, _)| bytes);
    for bytes in all.chain([v2(made::PROXY, 0x31, [unix(b"/run/a", b"\0b"), field(0x20, ssl(1))].concat())]) {
        let header = parsed(&bytes);
        for version in [ProxyVersion::V2, ProxyVersion::V2WithChecksum] {
            let again = header.encode(version);
            assert!(again.len() <= 4096);
            assert_eq!(unsummed(&parsed(&again)), unsummed(&header), "{bytes:?} by {version:?}");
        }
        assert_eq!(parsed(&header.encode(ProxyVersion::V1)).client(), header.client(), "{bytes:?}");
    }
}

#[test]
fn a_header_without_a_field_keeps_the_others() {
    let (from, to) = ("203.0.113.7:4711", "10.0.0.1:443");
    let header = parsed(&tcp(from, to, &[field(1, "h2"), field(2, "mill.example"), field(1, "h3")].concat()));
    assert_eq!(header.without_field(1).encode(ProxyVersion::V2), tcp(from, to, &field(2, "mill.example")));
    assert_eq!(header.without_field(4), header);
    assert!(ProxyHeader::local().without_field(1).is_local());
}

#[test]
fn parts_that_a_header_cannot_have_are_refused() {
    let builder = || ProxyHeader::builder(addr("[::7]:1"), addr("[::1]:2"));
    let longest = builder().field(0xea, &[0; 4034]).build().unwrap();
    let bytes = longest.encode(ProxyVersion::V2WithChecksum);
    assert_eq!((bytes.len(), parsed(&bytes).field(3).map(<[u8]>::len)), (4096, Some(4)));
    let name = "x".repeat(5000);
    for (builder, why) in [
        (builder().field(0xea, &[0; 4035]), "longer than 4037"),
        (builder().field(0xea, &[0; 4000]).field(0xeb, &[0; 35]), "longer than 4037"),
        (builder().field(0xea, &[0; 70_000]), "longer than 4037"),
        (builder().ssl(Ssl { common_name: Some(&name), ..Ssl::default() }), "longer than 4037"),
        (builder().unique_id(&[0; 129]), "longer than 128"),
        (builder().field(3, &[0; 4]), "checksum"),
        (builder().field(0x20, b"x"), "SSL field"),
        (builder().field(0x20, &[1, 0, 0, 0, 0, 0x21, 0]), "SSL field"),
    ] {
        let error = builder.build().unwrap_err();
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
}

/// Types and values of fields, also malformed ones.
fn any_field() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let value = || prop::collection::vec(any::<u8>(), 0..100);
    prop_oneof![
        6 => (any::<u8>(), value()),
        2 => (Just(crate::fields::SSL), any::<u32>().prop_map(ssl)),
        1 => (Just(crate::fields::SSL), value()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_encoded_header_is_parsed_as_it_was(
        (v6, from, to, ports) in any::<(bool, [u8; 16], [u8; 16], (u16, u16))>(),
        fields in prop::collection::vec(any_field(), 0..6),
        authority in prop::option::of(".{0,40}"),
        behind in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let ip = |octets: [u8; 16]| match v6 {
            true => IpAddr::from(octets),
            false => IpAddr::from(<[u8; 4]>::try_from(&octets[..4]).unwrap()),
        };
        let (from, to): (SocketAddr, SocketAddr) = ((ip(from), ports.0).into(), (ip(to), ports.1).into());
        let (mut builder, mut sent) = (ProxyHeader::builder(from, to), Vec::new());
        for (kind, value) in &fields {
            builder = builder.field(*kind, value);
            sent.extend(field(*kind, value));
        }
        if let Some(authority) = &authority {
            builder = builder.authority(authority);
            sent.extend(field(2, authority));
        }
        // A header is built exactly if it is parsed. A checksum of random bytes is wrong.
        let built = builder.build();
        let by_hand = ProxyHeader::parse(&tcp(&from.to_string(), &to.to_string(), &sent));
        prop_assert_eq!(built.is_ok(), by_hand.is_ok());
        let Ok(header) = built else { return Ok(()) };
        for version in [ProxyVersion::V1, ProxyVersion::V2, ProxyVersion::V2WithChecksum] {
            let mut bytes = header.encode(version);
            let len = bytes.len();
            for cut in 0..len {
                prop_assert_eq!(ProxyHeader::parse(&bytes[..cut]), Ok(None));
            }
            bytes.extend(&behind);
            let (again, taken) = ProxyHeader::parse(&bytes).unwrap().unwrap();
            prop_assert_eq!(taken, len);
            prop_assert_eq!(again.addresses(), header.addresses());
            if version != ProxyVersion::V1 {
                prop_assert_eq!(unsummed(&again), unsummed(&header));
            }
        }
    }
}
