//! Client input cannot inject headers: the layers emit only valid names and values.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use millstream_layers::{CanaryLayer, RequestId, StampLayer, TraceParent};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::{Layer, Service, service_fn};

use super::servers::{FRIEND, STRANGER, connect, start};
use testkit::http::on_both;

const NAMES: [&str; 4] = ["x-request-id", "traceparent", "tracestate", "x-millstream-canary"];

fn is_clean(headers: &HeaderMap) -> bool {
    headers.values().all(|value| value.as_bytes().iter().all(|b| matches!(b, b'\t' | b' '..=b'~')))
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        "[A-Za-z0-9_-]{0,70}".prop_map(String::into_bytes),
        "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}[\\r\\n -]{0,3}.{0,8}".prop_map(String::into_bytes),
        "(auto|uring|no-cork|.{3});.{0,40}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn only_valid_values_leave_the_layers(
        sent in prop::collection::vec((0..NAMES.len(), values()), 0..6), trusted: bool,
    ) {
        let seen = Arc::new(Mutex::new(HeaderMap::new()));
        let service = service_fn(|request: Request<()>| {
            seen.lock().unwrap().clone_from(request.headers());
            let id = request.extensions().get::<RequestId>().unwrap().clone();
            let parent = *request.extensions().get::<TraceParent>().unwrap();
            let mut response = Response::new(Full::new(Bytes::new()));
            response.extensions_mut().insert(id);
            response.extensions_mut().insert(parent);
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let friend = "192.0.2.1:1".parse().unwrap();
        let canary = CanaryLayer::builder().trusted("192.0.2.1".parse().unwrap()).token("0123456789abcdef").report(true);
        let layer = StampLayer::new().trusted("192.0.2.1".parse().unwrap());
        let mut service = layer.layer(canary.build().unwrap().layer(service));
        let mut request = Request::new(());
        let peer: std::net::SocketAddr = if trusted { friend } else { "192.0.2.2:1".parse().unwrap() };
        request.extensions_mut().insert(axum::extract::ConnectInfo(peer));
        for (name, value) in &sent {
            // hyper's parser rejects invalid values too.
            if let Ok(value) = HeaderValue::from_bytes(value) {
                request.headers_mut().append(HeaderName::from_static(NAMES[*name]), value);
            }
        }
        let given = request.headers().clone();
        let response = futures_util::future::FutureExt::now_or_never(service.call(request)).unwrap().unwrap();
        let seen = seen.lock().unwrap();
        prop_assert!(is_clean(response.headers()) && is_clean(&seen), "{:?}", seen);
        prop_assert!(!seen.contains_key(NAMES[3]));
        let id = RequestId::of(&seen).expect("the id is valid");
        prop_assert_eq!(&id, response.extensions().get::<RequestId>().unwrap());
        prop_assert_eq!(RequestId::of(response.headers()).unwrap(), id.clone());
        let parent = TraceParent::of(&seen).expect("the trace parent is valid");
        prop_assert_eq!(&parent, response.extensions().get::<TraceParent>().unwrap());
        let given_parent = TraceParent::of(&given);
        prop_assert_eq!(RequestId::of(&given) == Some(id), trusted && RequestId::of(&given).is_some());
        prop_assert_eq!(given_parent.map(|given| given.trace_id()) == Some(parent.trace_id()), trusted && given_parent.is_some());
        prop_assert!(!seen.contains_key(NAMES[2]) || trusted && given_parent.is_some());
    }
}

/// Raw heads that client libraries refuse to send.
#[test]
fn raw_heads_inject_nothing() {
    on_both(|| async {
        let everybody = || "127.0.0.2".parse().unwrap();
        let canary =
            CanaryLayer::builder().trusted(everybody()).token("0123456789abcdef").report(true).build().unwrap();
        let hello = service_fn(async |_: Request<_>| {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
        });
        let service = StampLayer::new().trusted(everybody()).layer(canary.layer(hello));
        let (addr, _) = start(service).await;
        for name in NAMES {
            for value in [
                "a\r\n evil: folded",
                "a\rEvil: 1",
                "a\nEvil: 1",
                "a\r\n\r\nHTTP/1.1 200 OK\r\nEvil: 1",
                "a%0d%0aEvil: 1",
                "a\u{0}Evil: 1",
                "a\u{85}Evil: 1",
                "a\u{2028}Evil: 1",
                "\u{10d}\u{10a}Evil: 1",
                "auto;0123456789abcdef\r\n\tEvil: 1",
            ] {
                for source in [STRANGER, FRIEND] {
                    let mut stream = connect(source, addr).await;
                    let head = format!("GET / HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n{name}: {value}\r\n\r\n");
                    stream.write_all(head.as_bytes()).await.unwrap();
                    let mut got = Vec::new();
                    // hyper may reset the connection if it leaves refused bytes unread.
                    let _ = stream.read_to_end(&mut got).await;
                    let got = String::from_utf8(got).expect("the response is ASCII");
                    assert!(!got.to_lowercase().contains("evil"), "{name}: {value:?} from {source}: {got}");
                    assert!(got.is_empty() || got.starts_with("HTTP/1.1 "), "{got}");
                    if got.starts_with("HTTP/1.1 200") {
                        let (head, body) = got.split_once("\r\n\r\n").unwrap();
                        assert_eq!(body, "hello");
                        let ids: Vec<_> = head.lines().filter(|line| line.starts_with("x-request-id: ")).collect();
                        assert_eq!(ids.len(), 1, "{head}");
                        assert!(ids[0][14..].bytes().all(|b| b.is_ascii_alphanumeric()), "{head}");
                    }
                }
            }
        }
    });
}
