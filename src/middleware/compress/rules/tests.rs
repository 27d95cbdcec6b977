//! Unit tests of `rules`.

use super::*;

fn fields(list: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for (name, value) in list {
        fields.append(*name, HeaderValue::from_static(value));
    }
    fields
}

#[test]
fn media_types_that_are_compressed_are_left_alone() {
    for (kind, expected) in [
        ("text/html; charset=utf-8", true),
        ("text/event-stream", true),
        ("application/json", true),
        ("application/octet-stream", true),
        ("application/wasm", true),
        ("image/svg+xml", true),
        ("IMAGE/SVG+XML;charset=utf-8", true),
        ("font/ttf", true),
        ("", true),
        ("image/png", false),
        ("Image/JPEG", false),
        ("video/mp4", false),
        ("audio/mpeg", false),
        ("font/woff2", false),
        ("application/zip", false),
        ("application/gzip; x=y", false),
        ("application/epub+zip", false),
        ("application/x.y+zip", false),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", false),
        ("application/grpc", false),
        ("application/grpc+proto", false),
        ("application/grpc-web+proto", false),
        ("multipart/x-mixed-replace; boundary=x", false),
    ] {
        assert_eq!(is_compressible(&fields(&[("content-type", kind)])), expected, "{kind}");
    }
    assert!(is_compressible(&HeaderMap::new()));
}

#[test]
fn content_that_is_fixed_may_not_change() {
    for (status, list, expected) in [
        (200, &[][..], true),
        (404, &[], true),
        (500, &[("cache-control", "no-store")], true),
        (101, &[], false),
        (204, &[], false),
        (205, &[], false),
        (206, &[], false),
        (304, &[], true),
        (304, &[("content-encoding", "br")], false),
        (200, &[("content-encoding", "br")], false),
        (200, &[("content-encoding", "identity")], false),
        (416, &[("content-range", "bytes */7")], false),
        (200, &[("cache-control", "public, No-Transform")], false),
        (200, &[("cache-control", "public"), ("cache-control", "no-transform")], false),
        (200, &[("repr-digest", "sha-256=:x:")], false),
        (200, &[("content-digest", "sha-256=:x:")], false),
    ] {
        let mut response = http::Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        *response.headers_mut() = fields(list);
        assert_eq!(may_change(&response.into_parts().0), expected, "{status} {list:?}");
    }
}

#[test]
fn heads_are_those_of_other_bytes() {
    for (before, after) in [
        (&[][..], &[][..]),
        (&[("content-length", "7"), ("accept-ranges", "bytes"), ("x", "y")], &[("x", "y")]),
        (&[("etag", "\"a\"")], &[("etag", "W/\"a\"")]),
        (&[("etag", "W/\"a\"")], &[("etag", "W/\"a\"")]),
    ] {
        let mut found = fields(before);
        encode(&mut found, ContentCoding::Gzip);
        let mut expected = fields(after);
        expected.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(found, expected);
    }
    for (before, after) in [
        (&[][..], &[("vary", "accept-encoding")][..]),
        (&[("vary", "origin")], &[("vary", "origin"), ("vary", "accept-encoding")]),
        (&[("vary", "Origin, Accept-Encoding")], &[("vary", "Origin, Accept-Encoding")]),
        (&[("vary", "*")], &[("vary", "*")]),
        (&[("vary", "origin"), ("vary", "ACCEPT-ENCODING")], &[("vary", "origin"), ("vary", "ACCEPT-ENCODING")]),
    ] {
        let mut found = fields(before);
        vary(&mut found);
        assert_eq!(found, fields(after));
    }
}
