//! Unit tests of `content_coding`.

use super::*;
use ContentCoding::{Brotli, Gzip, Zstd};

fn chosen(accept: &str, available: &[ContentCoding]) -> Option<ContentCoding> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(accept).unwrap());
    ContentCoding::negotiate(&headers, available.iter().copied())
}

#[test]
fn weights_decide_and_then_the_order_of_the_server() {
    let all = &ContentCoding::ALL[..];
    for (accept, available, expected) in [
        ("gzip, deflate, br, zstd", all, Some(Brotli)),
        ("gzip, deflate, br, zstd", &[Zstd, Gzip], Some(Zstd)),
        ("gzip, deflate, br, zstd", &[Gzip, Zstd], Some(Gzip)),
        ("gzip;q=0.5, zstd", &[Gzip, Zstd], Some(Zstd)),
        ("gzip", all, Some(Gzip)),
        ("x-gzip", all, Some(Gzip)),
        ("GZip", all, Some(Gzip)),
        ("gzip;q=1, br;q=0.5", all, Some(Gzip)),
        ("gzip; q=0.8 , br;Q=0.801", all, Some(Brotli)),
        ("br;q=0", all, None),
        ("br;q=0, *", all, Some(Zstd)),
        ("br;q=0.000, zstd;q=0, *;q=0.1", all, Some(Gzip)),
        ("*", all, Some(Brotli)),
        ("*;q=0", all, None),
        ("*;q=0, gzip", all, Some(Gzip)),
        ("identity, gzip;q=0.5", all, None),
        ("identity;q=0.5, gzip;q=0.5", all, Some(Gzip)),
        ("identity;q=0, gzip", all, Some(Gzip)),
        ("identity", all, None),
        ("", all, None),
        ("br;q=2", all, None),
        ("br;q=1.5, gzip;q=0.1", all, Some(Gzip)),
        ("br;q=0.1234", all, None),
        ("br;q=x", all, None),
        ("br;q=", all, None),
        ("br;v=1", all, None),
        ("deflate", all, None),
        ("br, gzip", &[], None),
    ] {
        assert_eq!(chosen(accept, available), expected, "{accept:?} of {available:?}");
    }
    assert_eq!(ContentCoding::negotiate(&HeaderMap::new(), ContentCoding::ALL), None);
}

#[test]
fn several_lines_are_one_list() {
    let mut headers = HeaderMap::new();
    headers.append(ACCEPT_ENCODING, HeaderValue::from_static("deflate"));
    headers.append(ACCEPT_ENCODING, HeaderValue::from_static("zstd"));
    assert_eq!(ContentCoding::negotiate(&headers, ContentCoding::ALL), Some(Zstd));
}

#[test]
fn weights_are_parsed_as_the_grammar_says() {
    for (text, expected) in [
        ("0", Some(0)),
        ("1", Some(1000)),
        ("1.000", Some(1000)),
        ("0.5", Some(500)),
        ("0.05", Some(50)),
        ("0.", Some(0)),
        ("1.", Some(1000)),
        ("1.0", Some(1000)),
    ] {
        assert_eq!(thousandths(text), expected, "{text}");
    }
    for text in ["", ".5", "00", "0.5555", "-1", "0.5x", "2", "1.5", "1.001"] {
        assert_eq!(thousandths(text), None, "{text}");
    }
}
