//! Headers of all kinds, cut and changed.

use proptest::prelude::*;

use super::*;
use crate::ProxyVersion;
use crate::made::{PROXY, crc32c, field, kinds, ssl, summed, tcp, unix, v2, wrong};

fn whole(bytes: &[u8]) -> ProxyHeader {
    let (header, len) = parse(bytes).unwrap().unwrap();
    assert_eq!(len, bytes.len());
    header
}

#[test]
fn every_kind_is_read_and_is_incomplete_at_every_cut() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    for (header, client) in kinds() {
        for cut in 0..header.len() {
            assert_eq!(parse(&header[..cut]), Ok(None), "{cut} of {header:?}");
        }
        assert_eq!(whole(&header).client(), client.map(|client| client.parse().unwrap()), "{header:?}");
        let more = [&header[..], &header].concat();
        assert_eq!(parse(&more), Ok(Some((whole(&header), header.len()))));
    }
}

#[test]
fn invalid_bytes_are_refused_as_soon_as_they_are_known() {
    for (bytes, why) in wrong() {
        let known = (0..=bytes.len()).find(|&cut| parse(&bytes[..cut]).is_err());
        let known = known.unwrap_or_else(|| panic!("{bytes:?} is taken"));
        for cut in known..=bytes.len() {
            let error = parse(&bytes[..cut]).unwrap_err();
            assert!(error.contains(why), "{bytes:?}: {error}");
        }
        let last = match bytes.first() {
            Some(b'P') if bytes.starts_with(TEXT) => LINE_MAX,
            _ if why.starts_with("do not") => SIGNATURE.len(),
            _ if why.starts_with("longer") => HEAD,
            _ => bytes.len(),
        };
        assert!(known <= last, "{known} bytes of {bytes:?}");
    }
}

#[test]
fn the_fields_are_read() {
    let fields = [
        field(2, "mill.example"),
        field(5, [1, 2, 3]),
        field(4, [0; 3]),
        field(0xea, "first"),
        field(0xea, "second"),
        field(0x20, ssl(0)),
    ];
    let header = whole(&summed(tcp("203.0.113.7:4711", "10.0.0.1:443", &fields.concat())));
    assert_eq!((header.authority(), header.unique_id()), (Some("mill.example"), Some(&[1, 2, 3][..])));
    assert_eq!((header.field(0xea), header.field(0xeb)), (Some(&b"first"[..]), None));
    let ssl_of = |header: &ProxyHeader| {
        let ssl = header.ssl().unwrap();
        assert_eq!((ssl.version, ssl.common_name), (Some("TLSv1.3"), Some("mill")));
        (ssl.is_tls, ssl.has_certificate, ssl.is_verified)
    };
    assert_eq!(ssl_of(&header), (true, true, true));
    let refused = whole(&tcp("203.0.113.7:4711", "10.0.0.1:443", &field(0x20, ssl(19))));
    assert_eq!(ssl_of(&refused), (true, true, false));
    // Without a certificate nothing is verified, although the number means success.
    let plain = whole(&tcp("203.0.113.7:4711", "10.0.0.1:443", &field(0x20, [1, 0, 0, 0, 0])));
    let ssl = plain.ssl().unwrap();
    assert_eq!((ssl.is_tls, ssl.is_verified, ssl.version), (true, false, None));
    let odd = whole(&tcp("203.0.113.7:4711", "10.0.0.1:443", &field(2, [0xff])));
    assert_eq!((odd.authority(), odd.ssl()), (None, None));
}

#[test]
fn the_addresses_are_read() {
    let header = whole(&tcp("203.0.113.7:4711", "10.0.0.1:443", &[]));
    let (source, destination) = ("203.0.113.7:4711".parse().unwrap(), "10.0.0.1:443".parse().unwrap());
    assert_eq!(header.addresses(), Some(&Addresses::Ip { source, destination }));
    for (client, server) in [(&b"/run/a"[..], &b"\0abstract"[..]), (b"", b""), (&[b'x'; 108], &[b'y'; 107])] {
        let header = whole(&v2(PROXY, 0x31, unix(client, server)));
        let (source, destination) = (client.into(), server.into());
        assert_eq!(header.addresses(), Some(&Addresses::Unix { source, destination }));
        assert_eq!(header.client(), None);
    }
}

#[test]
fn a_checksum_finds_every_flipped_bit() {
    let header = summed(tcp("203.0.113.7:4711", "10.0.0.1:443", &[]));
    // Not the type and length of its field, without which there is no checksum.
    let (field, all) = (header.len() - 7, header.len());
    for at in (16..field).chain(field + 3..all) {
        for bit in 0..8 {
            let mut flipped = header.clone();
            flipped[at] ^= 1 << bit;
            assert_eq!(parse(&flipped), Err("the checksum of the PROXY header is wrong"), "bit {bit} of byte {at}");
        }
    }
}

/// Checks that the encoded header has the same parts, and is encoded in the same way again.
fn encodes(header: &ProxyHeader) {
    let parts = |header: &ProxyHeader| {
        let (authority, id) = (header.authority().map(str::to_owned), header.unique_id().map(<[u8]>::to_vec));
        (header.is_local(), header.addresses().cloned(), authority, id, format!("{:?}", header.ssl()))
    };
    for version in [ProxyVersion::V2, ProxyVersion::V2WithChecksum] {
        let bytes = header.encode(version);
        let again = whole(&bytes);
        assert_eq!(parts(&again), parts(header));
        assert_eq!(again.encode(version), bytes);
    }
    assert_eq!(whole(&header.encode(ProxyVersion::V1)).client(), header.client());
}

/// Any bytes, and headers with some bytes changed.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let random = prop::collection::vec(any::<u8>(), 0..200);
    let begun = (prop::sample::select(vec![SIGNATURE, TEXT, b"PROXY TCP4 ", b"PROXY TCP6 "]), random.clone());
    let begun = begun.prop_map(|(start, rest)| [start, &rest[..]].concat());
    let all: Vec<_> =
        kinds().into_iter().map(|(header, _)| header).chain(wrong().into_iter().map(|(bytes, _)| bytes)).collect();
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let changed = (prop::sample::select(all), changes).prop_map(|(mut header, changes)| {
        for (at, byte) in changes {
            let at = at.index(header.len().min(64));
            header[at] = byte;
        }
        header
    });
    prop_oneof![random, begun, changed]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any bytes: a decision is final, each header has one length, and is parsed again after it was encoded. The
    /// fuzz target `proxy_header` checks the same.
    #[test]
    fn more_bytes_change_no_decision(bytes in bytes()) {
        let mut decided = None;
        for cut in 0..=bytes.len() {
            let parsed = parse(&bytes[..cut]);
            match (&decided, &parsed) {
                (None, Ok(None)) => {}
                (None, _) => {
                    if let Ok(Some((header, len))) = &parsed {
                        prop_assert_eq!(*len, cut);
                        encodes(header);
                    }
                    decided = Some(parsed);
                }
                (Some(Err(_)), _) => prop_assert!(parsed.is_err()),
                (Some(before), _) => prop_assert_eq!(before, &parsed),
            }
        }
    }
}
