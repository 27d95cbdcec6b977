//! Unit tests of `fields`.

use super::*;

fn request(fields: &[(&'static str, &'static str)]) -> Request<()> {
    let mut request = Request::get("/").body(()).unwrap();
    for (name, value) in fields {
        request.headers_mut().append(*name, HeaderValue::from_static(value));
    }
    request
}

fn all<'a>(request: &'a Request<()>, name: &str) -> Vec<&'a str> {
    request.headers().get_all(name).into_iter().map(|value| value.to_str().unwrap()).collect()
}

#[test]
fn what_is_for_one_hop_ends_here() {
    let mut request = request(&[
        ("connection", "close, ,X-Secret,"),
        ("connection", "x-other"),
        ("x-secret", "1"),
        ("x-other", "2"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("te", "trailers, deflate"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("accept", "*/*"),
    ]);
    assert_eq!(upgrade(request.headers()), None, "not named in Connection");
    forward(&mut request, None, &HeaderValue::from_static("http"), false);
    let mut left: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["accept", "te", "via", "x-forwarded-proto"], "te is removed for HTTP/1.1");
}

#[test]
fn a_byte_that_is_not_ascii_hides_no_other_word() {
    let mut request = request(&[("x-secret", "1"), ("http2-settings", "AAMAAABk")]);
    for (name, value) in [("connection", &b"upgrade, X-Secret, \x80"[..]), ("upgrade", b"h2c, \xff")] {
        request.headers_mut().insert(name, HeaderValue::from_bytes(value).unwrap());
    }
    assert_eq!(upgrade(request.headers()), None, "HTTP/2 is among the protocols");
    forward(&mut request, None, &HeaderValue::from_static("http"), false);
    let mut left: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["via", "x-forwarded-proto"]);
}

#[test]
fn a_length_is_one_number_or_invalid() {
    for (values, expected) in [
        (&["5"][..], Some("5")),
        (&["0"], Some("0")),
        (&["005"], Some("5")),
        (&["5, 5"], Some("5")),
        (&["5", "5 ,5"], Some("5")),
        (&["5", "6"], None),
        (&["5, 6"], None),
        (&["+5"], None),
        (&["-5"], None),
        (&["5,"], None),
        (&[""], None),
        (&["0x5"], None),
        (&["99999999999999999999"], None),
    ] {
        let mut fields = HeaderMap::new();
        for value in values {
            fields.append(CONTENT_LENGTH, HeaderValue::from_static(value));
        }
        assert_eq!(normalize_length(&mut fields), expected.is_some(), "{values:?}");
        if let Some(expected) = expected {
            let all: Vec<_> = fields.get_all(CONTENT_LENGTH).iter().collect();
            assert_eq!(all, [expected], "{values:?}");
        }
    }
    assert!(normalize_length(&mut HeaderMap::new()));
}

#[test]
fn names_that_a_server_could_fold_into_those_of_the_proxy_are_removed() {
    let names = ["x_forwarded_for", "x-forwarded_proto", "x_forwarded-for", "x_other", "x_forwarded_fort"];
    let mut request = request(&names.map(|name| (name, "1")));
    forward(&mut request, None, &HeaderValue::from_static("http"), false);
    let mut left: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["via", "x-forwarded-proto", "x_forwarded_fort", "x_other"]);
}

#[test]
fn who_has_asked_and_by_which_way_is_added() {
    let mut request = request(&[
        ("via", "1.0 other"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-for", "10.0.0.2"),
        ("x-forwarded-proto", "https"),
        ("te", "trailers"),
    ]);
    forward(&mut request, Some([127, 0, 0, 1].into()), &HeaderValue::from_static("http"), false);
    assert_eq!(all(&request, "via"), ["1.0 other", "1.1 millstream"]);
    assert_eq!(all(&request, "x-forwarded-for"), ["10.0.0.1, 10.0.0.2, 127.0.0.1"]);
    assert_eq!(all(&request, "x-forwarded-proto"), ["http"], "a value from the client is replaced");
    assert_eq!(all(&request, "te"), ["trailers"]);
}

#[test]
fn each_hop_is_an_element_of_forwarded() {
    let https = HeaderValue::from_static("https");
    for (client, host, hop) in [
        (Some("192.0.2.1"), "mill", "for=192.0.2.1;host=mill;proto=https"),
        (Some("2001:db8::1"), "mill:81", "for=\"[2001:db8::1]\";host=\"mill:81\";proto=https"),
        (None, "a\"b\\", "for=unknown;host=\"a\\\"b\\\\\";proto=https"),
    ] {
        let mut request = request(&[("forwarded", "for=10.0.0.1"), ("host", host)]);
        let client = client.map(|client| client.parse().unwrap());
        forward(&mut request, client, &https, true);
        assert_eq!(all(&request, "forwarded"), ["for=10.0.0.1", hop]);
    }
    let mut request = request(&[("forwarded", "for=10.0.0.1")]);
    forward(&mut request, None, &https, false);
    assert_eq!(all(&request, "forwarded"), ["for=10.0.0.1"], "as it came");
}

#[test]
fn an_absolute_target_names_the_host() {
    let mut request = request(&[("host", "lie")]);
    *request.uri_mut() = "http://truth:81/".parse().unwrap();
    forward(&mut request, None, &HeaderValue::from_static("http"), false);
    assert_eq!(all(&request, "host"), ["truth:81"]);
}

#[test]
fn a_change_of_protocol_is_asked_for_in_two_fields() {
    let request = request(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
    let protocol = upgrade(request.headers()).unwrap();
    let mut fields = HeaderMap::new();
    set_upgrade(&mut fields, protocol);
    assert_eq!(upgrade(&fields).unwrap(), "websocket");
}
