//! Unit tests of `host`.

use proptest::prelude::*;

use super::*;

#[test]
fn a_host_is_a_name_or_an_address_with_an_optional_port() {
    let name = |name, port| Some(Host { name: Name::Registered(name), port });
    let address = |address: &str, port| Some(Host { name: Name::Address(address.parse().unwrap()), port });
    for (text, expected) in [
        ("mill", name("mill", None)),
        ("mill:", name("mill", None)),
        ("mill:8080", name("mill", Some(8080))),
        ("", name("", None)),
        ("127.0.0.1:80", address("127.0.0.1", Some(80))),
        ("[::1]", address("::1", None)),
        ("[::1]:443", address("::1", Some(443))),
        // Not an address, so a name.
        ("127.0.0.1.", name("127.0.0.1.", None)),
        ("mill::80", None),
        ("mill:+80", None),
        ("[::1", None),
        ("[::1]8", None),
        ("[::1]80", None),
        ("[127.0.0.1]", None),
        ("::1", None),
        ("a@mill", None),
        ("mill%zz", None),
        ("m\u{fc}hle", None),
    ] {
        assert_eq!(Host::parse(text.as_bytes()), expected, "{text}");
    }
    assert_eq!(Host::parse(b"\xff"), None);
}

#[test]
fn neither_the_target_nor_the_field_may_be_invalid() {
    for (uri, host, expected) in [
        ("http://mill/", Some("MILL:80"), true),
        ("http://mill/", Some("other"), true),
        ("http://mill/", Some("a@mill"), false),
        ("http://a@mill/", Some("mill"), false),
        ("/", Some("mill"), true),
        ("mill:80", Some("mill:80"), true),
    ] {
        let host: Option<HeaderValue> = host.map(|host| host.parse().unwrap());
        let field = host.as_ref().map_or(HostField::Missing, HostField::One);
        for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
            assert_eq!(is_valid(version, &uri.parse().unwrap(), field), expected, "{version:?} {uri} {host:?}");
        }
    }
    for (version, expected) in [(Version::HTTP_10, true), (Version::HTTP_11, false), (Version::HTTP_2, true)] {
        assert_eq!(is_valid(version, &"http://mill/".parse().unwrap(), HostField::Missing), expected, "{version:?}");
    }
}

#[test]
fn several_hosts_are_invalid() {
    let host = HeaderValue::from_static("mill");
    let field = HostField::Missing.and(&host).and(&host);
    for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
        assert!(!is_valid(version, &"/".parse().unwrap(), field), "{version:?}");
    }
}

proptest! {
    /// The short way agrees with the parser.
    #[test]
    fn what_is_a_host_can_be_parsed(text in "([a-zA-Z0-9._%~:@\\[\\]-]|\\PC){0,12}(:[0-9]{0,6})?", bytes: Vec<u8>) {
        for bytes in [text.as_bytes(), &bytes] {
            prop_assert_eq!(is_host(bytes), Host::parse(bytes).is_some(), "{}", bytes.escape_ascii());
        }
    }
}
