//! Unit tests of `upstream`.

use super::*;

#[test]
fn addresses_are_parsed_and_shown() {
    for (text, shown) in [
        ("http://mill/", "mill"),
        ("http://mill:81", "mill:81"),
        ("[::1]:81", "[::1]:81"),
        ("h2c:mill:81", "h2c:mill:81"),
        ("h2c:http://mill", "h2c:mill"),
        #[cfg(unix)]
        ("h2c:unix:a/b", "h2c:unix:a/b"),
    ] {
        assert_eq!(text.parse::<Upstream>().unwrap().to_string(), shown);
    }
    for text in ["", "mill", "mill/", "http://", "http://a@mill", "mill:81/path", "h2c:https://mill", "https://"] {
        assert!(text.parse::<Upstream>().is_err(), "{text}");
    }
}

#[cfg(feature = "__tls")]
#[test]
fn a_secured_address_has_the_name_of_the_certificate() {
    for (text, shown, port, name) in [
        ("https://mill", "https://mill", 443, "mill"),
        ("https://mill:444/", "https://mill:444", 444, "mill"),
        ("https://[::1]", "https://[::1]", 443, "::1"),
    ] {
        let upstream: Upstream = text.parse().unwrap();
        assert_eq!(upstream.to_string(), shown);
        assert!(matches!(upstream.address, Address::Tcp(_, found) if found == port), "{upstream}");
        assert_eq!(upstream.server_name().unwrap().to_str(), name);
    }
    assert!("https://-/".parse::<Upstream>().is_err(), "no name of a host");
}

#[cfg(not(feature = "__tls"))]
#[test]
fn a_secured_address_needs_a_feature() {
    let error = "https://mill".parse::<Upstream>().unwrap_err();
    assert!(error.to_string().contains("feature `tls-ring`"), "{error}");
}
