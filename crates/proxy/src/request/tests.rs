//! Unit tests of `request`.

use super::*;
use http_body_util::Full;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

fn origin() -> Origin {
    #[cfg(feature = "__tls")]
    return Origin::new("mill:80".parse().unwrap(), Duration::MAX, None);
    #[cfg(not(feature = "__tls"))]
    Origin::new("mill:80".parse().unwrap(), Duration::MAX)
}

#[tokio::test]
async fn a_body_is_held_back_where_the_upstream_can_ask_for_it() {
    let origin = origin();
    let options = Options::default();
    for (expects, version, is_http2, waits) in [
        ("100-continue", Version::HTTP_11, false, true),
        ("100-continue", Version::HTTP_2, false, true),
        ("100-continue", Version::HTTP_11, true, false),
        ("100-continue", Version::HTTP_10, false, false),
        ("other", Version::HTTP_11, false, false),
    ] {
        let request = Request::post("/").version(version).header("expect", expects);
        let request = request.body(Full::new(Bytes::from_static(b"hello"))).unwrap();
        let Ok(Outgoing { mut request, .. }) = Outgoing::new(request, &origin, &options) else {
            panic!("the request is refused")
        };
        let into = if is_http2 { into_http2 } else { into_http1 };
        into(&mut request, &origin);
        let polled = Pin::new(request.body_mut()).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled.is_pending(), waits, "{expects} by {version:?}, HTTP/2: {is_http2}");
    }
}

#[test]
fn a_request_without_a_body_expects_nothing() {
    let request = Request::post("/").header("expect", "100-continue").header("content-length", "5");
    // A layer has read the body.
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let Ok(Outgoing { request, .. }) = Outgoing::new(request, &origin(), &Options::default()) else {
        panic!("the request is refused")
    };
    assert_eq!((request.headers().get(EXPECT), &request.headers()[CONTENT_LENGTH]), (None, &HeaderValue::from(0)));
}

/// RFC 9110 section 10.1.4: HTTP/1.1 would need `Connection: TE` too.
#[test]
fn trailers_are_asked_for_over_http2_only() {
    let request = Request::get("/").header("te", "trailers, deflate").header("connection", "te");
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let Ok(Outgoing { mut request, .. }) = Outgoing::new(request, &origin(), &Options::default()) else {
        panic!("the request is refused")
    };
    into_http2(&mut request, &origin());
    assert_eq!(request.headers()[TE], "trailers");
    into_http1(&mut request, &origin());
    assert!(!request.headers().contains_key(TE) && !request.headers().contains_key("connection"));
}

#[test]
fn a_request_changes_its_version_there_and_back() {
    let origin = origin();
    let request = Request::get("/a?b").header("host", "other:81").body(Full::<Bytes>::default()).unwrap();
    let Ok(Outgoing { mut request, .. }) = Outgoing::new(request, &origin, &Options::default()) else {
        panic!("the request is refused")
    };
    for _ in 0..2 {
        into_http2(&mut request, &origin);
        assert_eq!((request.uri().to_string(), request.version()), ("http://other:81/a?b".into(), Version::HTTP_2));
        assert!(!request.headers().contains_key(HOST));
        into_http1(&mut request, &origin);
        assert_eq!((request.uri().to_string(), request.version()), ("/a?b".into(), Version::HTTP_11));
        assert_eq!(request.headers()[HOST], "other:81");
    }
}
