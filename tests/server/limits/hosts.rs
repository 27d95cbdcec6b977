//! The `Host` field of requests.

use hyper::StatusCode;
use millstream::server::Limits;

use super::{hello, start};
use testkit::http::{Raw, h2, on_both, request};

#[test]
fn a_request_names_its_host_once_and_well() {
    on_both(async || {
        let addr = start(Limits::default(), tower::service_fn(hello)).await;
        for (version, fields, status) in [
            ("1.1", "Host: mill\r\n", 200),
            ("1.1", "Host: mill.example:8080\r\n", 200),
            ("1.1", "host:  192.0.2.1:80 \r\n", 200),
            ("1.1", "Host: [2001:db8::1]:80\r\n", 200),
            ("1.1", "Host: a_b.%41!$&'()*+,;=~\r\n", 200),
            // An empty value is for targets without an authority, and an empty port is valid (RFC 3986 section 3.2.3).
            ("1.1", "Host:\r\n", 200),
            ("1.1", "Host: mill:\r\n", 200),
            ("1.0", "", 200),
            ("1.0", "Host: mill\r\n", 200),
            ("1.1", "", 400),
            ("1.1", "Host: mill\r\nHost: mill\r\n", 400),
            ("1.1", "Host: mill\r\nHost: other\r\n", 400),
            ("1.0", "Host: mill\r\nHost: mill\r\n", 400),
            ("1.1", "Host: mill, other\r\n", 400),
            ("1.1", "Host: mill other\r\n", 400),
            ("1.1", "Host: mill/path\r\n", 400),
            ("1.1", "Host: user@mill\r\n", 400),
            ("1.1", "Host: mill:80:80\r\n", 400),
            ("1.1", "Host: mill:http\r\n", 400),
            ("1.1", "Host: mill:65536\r\n", 400),
            ("1.1", "Host: [2001:db8::1\r\n", 400),
            ("1.1", "Host: [2001:db8::1]x\r\n", 400),
            ("1.1", "Host: [mill]\r\n", 400),
            ("1.1", "Host: 2001:db8::1\r\n", 400),
            ("1.1", "Host: mill%4\r\n", 400),
            ("1.1", "Host: m\u{fc}hle\r\n", 400),
            ("1.0", "Host: mill/path\r\n", 400),
        ] {
            let mut client = Raw::connect(addr).await;
            client.send(format!("GET / HTTP/{version}\r\n{fields}\r\n")).await;
            let head = client.head().await;
            assert_eq!(head.status, status, "{version} {fields:?}");
            if status == 400 {
                assert_eq!(head.field("connection"), Some("close"));
                assert!(client.drain().await.is_empty(), "nothing after the answer");
            }
        }
    });
}

/// RFC 9110 section 4.2.4, RFC 9112 section 3.2.2.
#[test]
fn an_absolute_target_is_served_unless_its_host_is_invalid() {
    on_both(async || {
        let addr = start(Limits::default(), tower::service_fn(hello)).await;
        for (target, status) in [
            ("http://mill/", 200),
            ("http://mill", 200),
            ("http://other:81/?x", 200),
            ("http://user@mill/", 400),
            ("http://user:secret@mill/", 400),
            ("http://mill:65536/", 400),
        ] {
            let mut client = Raw::connect(addr).await;
            client.send(format!("GET {target} HTTP/1.1\r\nHost: mill\r\n\r\n")).await;
            assert_eq!(client.head().await.status, status, "{target}");
        }
    });
}

#[test]
fn over_http2_a_host_is_valid_too() {
    on_both(async || {
        let addr = start(Limits::default(), tower::service_fn(hello)).await;
        let mut client = h2(addr).await;
        for (hosts, status) in [
            (&[][..], 200),
            (&["mill"], 200),
            (&["MILL"], 200),
            (&["mill", "mill"], 400),
            // As sent by a proxy that passes on its client's host.
            (&["other"], 200),
            (&["mill/path"], 400),
        ] {
            let mut request = request("http://mill/");
            request.headers_mut().remove("host");
            for host in hosts {
                request.headers_mut().append("host", host.parse().unwrap());
            }
            client.ready().await.unwrap();
            let answer = client.send_request(request).await.unwrap();
            assert_eq!(answer.status(), StatusCode::from_u16(status).unwrap(), "{hosts:?}");
        }
    });
}
