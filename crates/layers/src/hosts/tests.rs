//! Unit tests of `hosts`.

use super::*;

fn request(uri: &str, hosts: &[&str]) -> Request<()> {
    let request = Request::get(uri);
    hosts.iter().fold(request, |request, host| request.header(HOST, *host)).body(()).unwrap()
}

#[test]
fn only_addresses_localhost_and_named_hosts_are_allowed() {
    let layer = AllowedHostsLayer::local().and("Mill.example").unwrap().and("other.example:81").unwrap();
    for (host, allowed) in [
        ("127.0.0.1:8080", true),
        ("192.0.2.1", true),
        ("[::1]:8080", true),
        ("localhost", true),
        ("LOCALHOST:1", true),
        ("a.localhost:1", true),
        ("mill.example", true),
        ("mill.example:8080", true),
        ("other.example:81", true),
        ("other.example", false),
        ("other.example:8080", false),
        ("evil.example", false),
        ("localhost.evil.example", false),
        ("127.0.0.1.evil.example", false),
        ("notlocalhost", false),
        ("evil.mill.example", false),
        ("mill.example.", false),
        ("", false),
        ("127.0.0.1@evil.example", false),
    ] {
        assert_eq!(layer.allows(&request("/", &[host])), allowed, "{host}");
    }
    assert!(layer.allows(&request("/", &[])), "HTTP/1.0 without a host");
    assert!(layer.allows(&request("http://localhost/", &[])));
    assert!(!layer.allows(&request("http://evil.example/", &[])), "HTTP/2");
    assert!(!layer.allows(&request("http://evil.example/", &["localhost"])));
    assert!(!layer.allows(&request("http://localhost/", &["evil.example"])));
    assert!(!layer.allows(&request("/", &["localhost", "evil.example"])));
}

#[test]
fn a_host_that_can_never_match_is_refused_by_name() {
    for host in ["", "*", "http://mill.example", "mill.example/", "a b", "mill.example:http"] {
        let error = AllowedHostsLayer::local().and(host).unwrap_err();
        assert!(error.to_string().contains(host), "{error}");
    }
}
