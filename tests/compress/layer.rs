//! `CompressLayer` around services: what is compressed, and what passes.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderMap, IF_NONE_MATCH, RANGE, VARY};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use millstream::body::ContentCoding;
use millstream::files::Files;
use millstream::middleware::CompressLayer;
use tower::{Layer, ServiceExt, service_fn};

use crate::decode::{ALL, whole};
use testkit::noise;

fn text() -> Bytes {
    "the mill turns, and the stream goes on; ".repeat(100).into()
}

struct Asked {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Asked {
    fn coding(&self) -> Option<&str> {
        self.headers.get(CONTENT_ENCODING).map(|value| value.to_str().unwrap())
    }

    fn vary(&self) -> Vec<&str> {
        self.headers.get_all(VARY).iter().map(|value| value.to_str().unwrap()).collect()
    }

    fn decoded(&self) -> Vec<u8> {
        let coding = ALL.into_iter().find(|coding| Some(coding.name()) == self.coding()).expect("a known coding");
        whole(coding, &self.body).unwrap()
    }
}

type Made = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Returns what the layer makes of a response.
async fn ask(layer: &CompressLayer, method: Method, accept: &str, make: impl Fn() -> Made) -> Asked {
    let service = layer.layer(service_fn(async |_: Request<Empty<Bytes>>| Ok::<_, Infallible>(make())));
    let request = Request::builder().method(method).header(ACCEPT_ENCODING, accept).body(Empty::new()).unwrap();
    let (parts, body) = service.oneshot(request).await.unwrap().into_parts();
    Asked { status: parts.status, headers: parts.headers, body: body.collect().await.unwrap().to_bytes() }
}

fn full(body: Bytes) -> Made {
    Response::new(Full::new(body).boxed_unsync())
}

fn with(status: u16, fields: &[(&str, &str)], body: Bytes) -> Made {
    let response =
        fields.iter().fold(Response::builder().status(status), |made, (name, value)| made.header(*name, *value));
    response.body(Full::new(body).boxed_unsync()).unwrap()
}

#[tokio::test]
async fn the_client_chooses_by_weights_and_the_layer_among_equals() {
    use ContentCoding::{Brotli, Gzip};
    let all = CompressLayer::new();
    let some = CompressLayer::new().codings([Gzip, Brotli]);
    for (layer, accept, expected) in [
        (&all, "gzip, deflate, br, zstd", Some("zstd")),
        (&all, "gzip, br", Some("br")),
        (&all, "gzip;q=0.9, br;q=0.8", Some("gzip")),
        (&all, "x-gzip", Some("gzip")),
        (&all, "identity, gzip;q=0.5", None),
        (&all, "deflate", None),
        (&all, "", None),
        (&all, "*;q=0", None),
        (&some, "gzip, deflate, br, zstd", Some("gzip")),
        (&some, "br, gzip;q=0.1", Some("br")),
        (&some, "zstd", None),
    ] {
        let asked = ask(layer, Method::GET, accept, || full(text())).await;
        assert_eq!(asked.coding(), expected, "{accept}");
        // A cache must know that another client may get another coding.
        assert_eq!(asked.vary(), ["accept-encoding"], "{accept}");
        match expected {
            Some(_) => assert_eq!(asked.decoded(), text()),
            None => assert_eq!(asked.body, text()),
        }
    }
}

#[tokio::test]
async fn what_must_not_change_passes_as_it_is() {
    let layer = CompressLayer::new();
    let image = noise(5000);
    for (method, status, fields, body) in [
        (Method::HEAD, 200, &[("content-length", "1023")][..], Bytes::new()),
        (Method::HEAD, 200, &[("location", "/")], Bytes::new()),
        (Method::CONNECT, 200, &[], text()),
        (Method::GET, 204, &[], Bytes::new()),
        (Method::GET, 304, &[("etag", "\"a\""), ("content-encoding", "br")], Bytes::new()),
        (Method::GET, 206, &[("content-range", "bytes 0-3999/8000")], text()),
        (Method::GET, 206, &[("content-type", "multipart/byteranges; boundary=x")], text()),
        (Method::GET, 200, &[("content-encoding", "br"), ("etag", "\"a\"")], text()),
        (Method::GET, 200, &[("cache-control", "no-cache, no-transform"), ("etag", "\"a\"")], text()),
        (Method::GET, 200, &[("content-type", "image/png"), ("accept-ranges", "bytes")], image.into()),
        (Method::POST, 200, &[("content-type", "application/grpc+proto")], text()),
        (Method::GET, 200, &[("content-digest", "sha-256=:x:")], text()),
        (Method::GET, 200, &[("content-length", "1023")], text().slice(..1023)),
        (Method::GET, 200, &[], Bytes::new()),
    ] {
        let before = with(status, fields, body.clone()).headers().clone();
        let asked = ask(&layer, method.clone(), "gzip, br, zstd", || with(status, fields, body.clone())).await;
        assert_eq!(
            (asked.status.as_u16(), &asked.headers, &asked.body),
            (status, &before, &body),
            "{method} {fields:?}"
        );
    }
}

#[tokio::test]
async fn a_compressed_response_has_the_head_of_its_bytes() {
    let layer = CompressLayer::new();
    let fields = [
        ("content-type", "image/svg+xml"),
        ("content-length", "4000"),
        ("accept-ranges", "bytes"),
        ("etag", "\"a-1\""),
        ("vary", "origin"),
        ("x-other", "kept"),
    ];
    for status in [200, 201, 404, 500] {
        let asked = ask(&layer, Method::GET, "gzip", || with(status, &fields, text())).await;
        assert_eq!(asked.status.as_u16(), status);
        let mut expected = HeaderMap::new();
        for (name, value) in [("content-type", "image/svg+xml"), ("etag", "W/\"a-1\""), ("x-other", "kept")] {
            expected.insert(name, value.parse().unwrap());
        }
        expected.insert(CONTENT_ENCODING, "gzip".parse().unwrap());
        expected.append(VARY, "origin".parse().unwrap());
        expected.append(VARY, "accept-encoding".parse().unwrap());
        assert_eq!(asked.headers, expected);
        assert_eq!(asked.decoded(), text());
    }
}

#[tokio::test]
async fn heads_without_content_are_those_of_get() {
    let layer = CompressLayer::new();
    let fields = [("content-type", "text/plain"), ("content-length", "4000"), ("etag", "\"a\""), ("vary", "origin")];
    for accept in ["br", "identity"] {
        let get = ask(&layer, Method::GET, accept, || with(200, &fields, text())).await;
        for body in [text(), Bytes::new()] {
            let head = ask(&layer, Method::HEAD, accept, || with(200, &fields, body.clone())).await;
            assert_eq!(head.headers, get.headers, "{accept}");
            assert_eq!(head.body, if body.is_empty() { Bytes::new() } else { get.body.clone() }, "{accept}");
        }
        // The tag that a cache holds selects the response to update (RFC 9111 §4.3.4).
        for (held, expected) in [
            ("W/\"a\"", "W/\"a\""),
            ("\"a\"", "\"a\""),
            ("\"W/\", \"a\"", "\"a\""),
            ("\"b\", W/\"a\"", "W/\"a\""),
            ("W/\"aa\", \"a\"", "\"a\""),
            ("*", "\"a\""),
        ] {
            let service = layer.layer(service_fn(async |_: Request<Empty<Bytes>>| {
                Ok::<_, Infallible>(with(304, &fields[2..], Bytes::new()))
            }));
            let request = Request::get("/").header(ACCEPT_ENCODING, accept).header(IF_NONE_MATCH, held);
            let answer = service.oneshot(request.body(Empty::new()).unwrap()).await.unwrap();
            assert_eq!(answer.headers()[ETAG], expected, "{held}");
            let vary: Vec<_> = answer.headers().get_all(VARY).iter().collect();
            assert_eq!(vary, ["origin", "accept-encoding"]);
            assert!(!answer.headers().contains_key(CONTENT_ENCODING));
        }
    }
}

/// Returns the head of the answer to a client that holds `tags`, one in each line.
async fn revalidate(layer: &CompressLayer, tags: &[&str], fields: &[(&str, &str)]) -> HeaderMap {
    let service =
        layer.layer(service_fn(async |_: Request<Empty<Bytes>>| Ok::<_, Infallible>(with(304, fields, Bytes::new()))));
    let request = Request::get("/").header(ACCEPT_ENCODING, "br");
    let request = tags.iter().fold(request, |request, tags| request.header(IF_NONE_MATCH, *tags));
    service.oneshot(request.body(Empty::new()).unwrap()).await.unwrap().into_parts().0.headers
}

/// RFC 9110 section 15.4.5.
#[tokio::test]
async fn a_304_varies_as_its_content_does() {
    let (all, only) =
        (CompressLayer::new(), CompressLayer::new().only(|parts| parts.headers.contains_key("x-compress")));
    for (layer, fields, varies) in [
        (&all, &[("content-type", "text/plain")][..], true),
        (&all, &[("content-type", "image/png")], false),
        (&only, &[("content-type", "text/plain")], false),
        (&only, &[("content-type", "image/png"), ("x-compress", "yes")], true),
        // Not known.
        (&all, &[], true),
        (&only, &[], true),
        // The length of an empty body, added by a framework.
        (&all, &[("content-type", "text/plain"), ("content-length", "0")], true),
    ] {
        let tag = [("etag", "\"a\"")];
        let head = revalidate(layer, &["W/\"a\""], &[&tag, fields].concat()).await;
        assert_eq!(head.contains_key(VARY), varies, "{fields:?}");
        assert_eq!(head[ETAG], if varies { "W/\"a\"" } else { "\"a\"" }, "{fields:?}");
    }
}

#[tokio::test]
async fn tags_are_in_any_line() {
    let layer = CompressLayer::new();
    for (tags, expected) in [
        (&["\"b\"", "W/\"a\""][..], "W/\"a\""),
        (&["W/\"a\"", "\"b\""], "W/\"a\""),
        (&["W/\"b\"", "\"c\", W/\"a\""], "W/\"a\""),
        (&["W/\"b\"", "\"a\""], "\"a\""),
        (&["W/", "\"a\""], "\"a\""),
        (&[], "\"a\""),
    ] {
        assert_eq!(revalidate(&layer, tags, &[("etag", "\"a\"")]).await[ETAG], expected, "{tags:?}");
    }
}

#[tokio::test]
async fn thresholds_levels_and_predicates_are_settings() {
    let small = CompressLayer::new().min_size(10);
    assert_eq!(ask(&small, Method::GET, "br", || full(text().slice(..10))).await.coding(), Some("br"));
    assert_eq!(ask(&small, Method::GET, "br", || full(text().slice(..9))).await.coding(), None);

    let only = CompressLayer::new().only(|parts| parts.headers.contains_key("x-compress"));
    let image = || with(200, &[("content-type", "image/png"), ("x-compress", "yes")], text());
    assert_eq!(ask(&only, Method::GET, "br", image).await.coding(), Some("br"), "the predicate decides");
    let other = ask(&only, Method::GET, "br", || full(text())).await;
    assert_eq!((other.coding(), other.vary()), (None, vec![]));
    let encoded = || with(200, &[("content-encoding", "x"), ("x-compress", "yes")], text());
    assert_eq!(ask(&only, Method::GET, "br", encoded).await.coding(), Some("x"), "never twice");

    let len = async |level| {
        let layer = CompressLayer::new().level(ContentCoding::Gzip, level);
        let text: String = (0..5000u32).map(|n| format!("{} ", n.wrapping_mul(2_654_435_761) >> 18)).collect();
        ask(&layer, Method::GET, "gzip", || full(Bytes::from(text.clone()))).await.body.len()
    };
    assert!(len(9).await < len(1).await);
}

#[tokio::test]
async fn files_are_compressed_unless_a_variant_is() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("page.html"), text()).unwrap();
    std::fs::write(dir.path().join("app.js"), text()).unwrap();
    std::fs::write(dir.path().join("app.js.br"), "brotli by hand").unwrap();
    let files = Files::builder(dir.path()).build().unwrap();
    let service = CompressLayer::new().layer(files);
    let get = async |path: &str, range: Option<&str>| {
        let mut request = Request::get(path).header(ACCEPT_ENCODING, "gzip, br");
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        let (parts, body) =
            service.clone().oneshot(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap().into_parts();
        Asked { status: parts.status, headers: parts.headers, body: body.collect().await.unwrap().to_bytes() }
    };
    let page = get("/page.html", None).await;
    assert_eq!((page.coding(), page.decoded()), (Some("br"), text().to_vec()));
    assert!(page.headers[ETAG].to_str().unwrap().starts_with("W/\""));
    assert_eq!(page.vary(), ["accept-encoding"]);

    let variant = get("/app.js", None).await;
    assert_eq!((variant.coding(), &variant.body[..]), (Some("br"), &b"brotli by hand"[..]));
    assert!(variant.headers[ETAG].to_str().unwrap().starts_with('"'), "its tag stays strong");
    assert_eq!(variant.vary(), ["accept-encoding"]);

    let range = get("/page.html", Some("bytes=5-2004")).await;
    assert_eq!((range.status, range.coding()), (StatusCode::PARTIAL_CONTENT, None));
    assert_eq!(range.body, text().slice(5..2005));
}
