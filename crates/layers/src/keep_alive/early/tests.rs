//! Requests that may be answered early, and bodies that are quoted.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};

use super::*;

#[test]
fn accept_must_name_event_streams() {
    for (accept, expected) in [
        (&["text/event-stream"][..], true),
        (&["application/json, Text/Event-Stream;q=0.5"], true),
        (&["application/json", "text/event-stream; charset=utf-8"], true),
        (&["text/event-stream;q=0"], false),
        (&["text/event-stream; Q=0.000"], false),
        (&["text/*", "*/*"], false),
        (&["text/event-streams"], false),
        (&[], false),
    ] {
        let fields = HeaderMap::from_iter(accept.iter().map(|list| (ACCEPT, HeaderValue::from_static(list))));
        assert_eq!(accepts_events(&fields), expected, "{accept:?}");
    }
}

#[test]
fn only_texts_are_quoted() {
    for (kind, expected) in [
        ("text/plain; charset=utf-8", true),
        ("Application/JSON", true),
        ("application/problem+json", true),
        ("image/png", false),
        ("", false),
    ] {
        let mut fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        assert_eq!(is_text(&fields), expected, "{kind}");
        fields.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(!is_text(&fields), "{kind}");
    }
}

#[test]
fn a_quoted_text_is_one_line() {
    let event = error_event(StatusCode::BAD_GATEWAY, Some(b"a\r\n\"b\\\xff"));
    assert_eq!(event, "event: error\ndata: {\"status\":502,\"body\":\"a\\r\\n\\\"b\\\\\u{fffd}\"}\n\n");
}
