//! Unit tests of `request_id`.

use super::*;

#[test]
fn ids_are_read_strictly() {
    let longest = "x".repeat(64);
    for (lines, expected) in [
        (&["a"][..], true),
        (&["AZaz09_-"], true),
        (&[longest.as_str()], true),
        (&[&format!("{longest}x")], false),
        (&[""], false),
        (&["a b"], false),
        (&["a.b"], false),
        (&["a\tb"], false),
        (&["é"], false),
        (&["a", "a"], false),
        (&["a,b"], false),
        (&[], false),
    ] {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(REQUEST_ID, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        assert_eq!(RequestId::of(&headers).is_some(), expected, "{lines:?}");
    }
}
