//! Unit tests of `trusted`.

use super::*;
use http::HeaderValue;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn networks_contain_their_addresses() {
    let trusted: Trusted = "10.0.0.0/8, 192.0.2.7 ,2001:db8::/33,203.0.113.128/25,,fe80::1".parse().unwrap();
    for (addr, expected) in [
        ("10.0.0.0", true),
        ("10.255.255.255", true),
        ("11.0.0.0", false),
        ("9.255.255.255", false),
        ("::ffff:10.1.1.1", true),
        ("192.0.2.7", true),
        ("192.0.2.6", false),
        ("203.0.113.127", false),
        ("203.0.113.128", true),
        ("2001:db8:7fff::1", true),
        ("2001:db8:8000::1", false),
        ("fe80::1", true),
        ("fe80::2", false),
        ("127.0.0.1", false),
        ("::1", false),
        // The bits of 10.0.0.0 in another family.
        ("a00::", false),
    ] {
        assert_eq!(trusted.contains(ip(addr)), expected, "{addr}");
    }
    assert!(!Trusted::none().contains(ip("127.0.0.1")));
    let all: Trusted = "0.0.0.0/0, ::/0".parse().unwrap();
    assert!(all.contains(ip("255.255.255.255")) && all.contains(ip("ffff::")));
    assert!(!"0.0.0.0/0".parse::<Trusted>().unwrap().contains(ip("::1")));
    assert_eq!(trusted.to_string().parse::<Trusted>().unwrap(), trusted);
}

#[test]
fn private_networks_end_where_public_ones_begin() {
    let private = Trusted::private();
    for (inside, outside) in [
        ("127.255.0.1", "128.0.0.1"),
        ("10.255.255.255", "11.0.0.0"),
        ("172.31.255.255", "172.32.0.0"),
        ("172.16.0.0", "172.15.255.255"),
        ("192.168.7.7", "192.169.0.0"),
        ("100.127.255.255", "100.128.0.0"),
        ("169.254.1.1", "169.255.0.0"),
        ("::1", "::2"),
        ("fdff::1", "fe00::1"),
        ("febf::1", "fec0::1"),
        ("::ffff:10.0.0.1", "::ffff:8.8.8.8"),
    ] {
        assert!(private.contains(ip(inside)), "{inside}");
        assert!(!private.contains(ip(outside)), "{outside}");
    }
    assert_eq!(private.to_string().parse::<Trusted>().unwrap(), private);
    let more = private.and("192.0.2.0/24".parse().unwrap());
    assert!(more.contains(ip("192.0.2.9")) && more.contains(ip("10.0.0.1")) && !more.contains(ip("8.8.8.8")));
}

#[test]
fn invalid_networks_are_refused_by_name() {
    for (list, why) in [
        ("10.0.0.1/8", "write 10.0.0.0/8"),
        ("2001:db8::1/64", "write 2001:db8::/64"),
        ("10.0.0.0/33", "not an address or a network"),
        ("10.0.0.0/+8", "not an address or a network"),
        ("::/129", "not an address or a network"),
        ("10.0.0.0/", "not an address or a network"),
        ("localhost", "not an address or a network"),
        ("10.0.0.0/8 10.0.0.0/8", "not an address or a network"),
        ("::ffff:10.0.0.0/104", "write the IPv4 address itself"),
    ] {
        let error = list.parse::<Trusted>().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(why), "{list}: {error}");
    }
}

#[test]
fn the_client_is_the_rightmost_that_is_not_trusted() {
    let trusted: Trusted = "10.0.0.0/8, 2001:db8::/32".parse().unwrap();
    for (peer, lines, client) in [
        ("198.51.100.1", &["1.1.1.1"][..], "198.51.100.1"),
        ("10.0.0.1", &[], "10.0.0.1"),
        ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", &["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", &["1.1.1.1, 198.51.100.1,10.0.0.2 , 10.0.0.3"], "198.51.100.1"),
        ("10.0.0.1", &["1.1.1.1", "198.51.100.1", "10.0.0.2"], "198.51.100.1"),
        ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", &["198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", &["[2001:db9::1]:80, 2001:db8::1"], "2001:db9::1"),
        ("::ffff:10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", &["198.51.100.1, , 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", &[""], "10.0.0.1"),
    ] {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
        }
        assert_eq!(trusted.client(ip(peer), &headers), ip(client), "{peer} {lines:?}");
    }
}
