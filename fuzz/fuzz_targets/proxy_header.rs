//! PROXY headers of load balancers, whole and cut anywhere: a decision is final, and what a header has is the same after
//! it was encoded and parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millstream_proxy_protocol::{Addresses, ProxyHeader, ProxyVersion, Ssl};

/// Returns what a header has.
fn parts(header: &ProxyHeader) -> (bool, Option<&Addresses>, Option<&str>, Option<&[u8]>, Option<Ssl<'_>>) {
    (header.is_local(), header.addresses(), header.authority(), header.unique_id(), header.ssl())
}

fn parsed(bytes: &[u8]) -> ProxyHeader {
    let (header, len) = ProxyHeader::parse(bytes).expect("a valid header").expect("a whole header");
    assert_eq!(len, bytes.len());
    header
}

fuzz_target!(|bytes: &[u8]| {
    let all = ProxyHeader::parse(bytes);
    // Each prefix before the decision is incomplete, and each one behind it is decided in the same way.
    let mut is_decided = false;
    for cut in 0..=bytes.len() {
        let cut_off = ProxyHeader::parse(&bytes[..cut]);
        if is_decided || cut_off != Ok(None) {
            assert_eq!(cut_off.is_err(), all.is_err(), "{cut} of {bytes:?}");
            assert!(cut_off.is_err() || cut_off == all, "{cut} of {bytes:?}");
            let is_whole = cut_off.is_ok_and(|taken| taken.is_some_and(|(_, len)| is_decided || len == cut));
            assert!(is_whole || all.is_err(), "{cut} of {bytes:?}");
            is_decided = true;
        }
    }
    let Ok(Some((header, _))) = all else { return };
    for version in [ProxyVersion::V2, ProxyVersion::V2WithChecksum] {
        let again = parsed(&header.encode(version));
        assert_eq!(parts(&again), parts(&header));
        assert_eq!(again.encode(version), header.encode(version));
    }
    assert_eq!(parsed(&header.encode(ProxyVersion::V1)).client(), header.client());

    // The same header of its parts, if an id is not too long.
    let Some(Addresses::Ip { source, destination, .. }) = header.addresses() else { return };
    let mut builder = ProxyHeader::builder(*source, *destination);
    if let Some(authority) = header.authority() {
        builder = builder.authority(authority);
    }
    if let Some(id) = header.unique_id() {
        builder = builder.unique_id(id);
    }
    if let Some(ssl) = header.ssl() {
        builder = builder.ssl(ssl);
    }
    if let Ok(made) = builder.build() {
        assert_eq!(parts(&parsed(&made.encode(ProxyVersion::V2WithChecksum))), parts(&header));
    }
});
