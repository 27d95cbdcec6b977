//! Unit tests of `conditional`.

use super::*;

const ETAG: HeaderValue = HeaderValue::from_static("\"v1\"");
const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
    lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
}

fn then() -> SystemTime {
    httpdate::parse_http_date(THEN).unwrap()
}

#[test]
fn preconditions_have_an_order() {
    use ConditionVerdict::{Failed, NotModified, Proceed};
    let table: &[(&[(HeaderName, &str)], ConditionVerdict)] = &[
        (&[], Proceed),
        (&[(IF_MATCH, "\"v1\"")], Proceed),
        (&[(IF_MATCH, "*")], Proceed),
        (&[(IF_MATCH, "\"a\", \"v1\"")], Proceed),
        (&[(IF_MATCH, ", ,\"v1\" ,")], Proceed),
        (&[(IF_MATCH, "\"a\"")], Failed),
        (&[(IF_MATCH, "W/\"v1\"")], Failed),
        (&[(IF_MATCH, "v1")], Failed),
        (&[(IF_MATCH, "")], Failed),
        (&[(IF_UNMODIFIED_SINCE, THEN)], Proceed),
        (&[(IF_UNMODIFIED_SINCE, BEFORE)], Failed),
        (&[(IF_UNMODIFIED_SINCE, "yesterday")], Proceed),
        (&[(IF_MATCH, "\"v1\""), (IF_UNMODIFIED_SINCE, BEFORE)], Proceed),
        (&[(IF_NONE_MATCH, "\"v1\"")], NotModified),
        (&[(IF_NONE_MATCH, "W/\"v1\"")], NotModified),
        (&[(IF_NONE_MATCH, "\"a,b\",W/\"c\" , \"v1\"")], NotModified),
        (&[(IF_NONE_MATCH, "*")], NotModified),
        (&[(IF_NONE_MATCH, "\"a\"")], Proceed),
        (&[(IF_NONE_MATCH, "v1")], Proceed),
        (&[(IF_NONE_MATCH, "\"a\""), (IF_MODIFIED_SINCE, AFTER)], Proceed),
        (&[(IF_MODIFIED_SINCE, THEN)], NotModified),
        (&[(IF_MODIFIED_SINCE, AFTER)], NotModified),
        (&[(IF_MODIFIED_SINCE, BEFORE)], Proceed),
        (&[(IF_MODIFIED_SINCE, "x")], Proceed),
        (&[(IF_MATCH, "\"v1\""), (IF_NONE_MATCH, "\"v1\"")], NotModified),
        (&[(IF_MATCH, "\"a\""), (IF_NONE_MATCH, "\"v1\"")], Failed),
        (&[(IF_UNMODIFIED_SINCE, BEFORE), (IF_MODIFIED_SINCE, AFTER)], Failed),
    ];
    for (lines, expected) in table {
        let verdict = evaluate(&headers(lines), Validators { etag: Some(&ETAG), last_modified: Some(then()) });
        assert_eq!(verdict, *expected, "{lines:?}");
        assert!(lines.is_empty() || any(&headers(lines)));
    }
}

#[test]
fn without_a_time_dates_do_not_count() {
    let of = Validators { etag: Some(&ETAG), last_modified: None };
    for name in [IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE] {
        assert_eq!(evaluate(&headers(&[(name, THEN)]), of), ConditionVerdict::Proceed);
    }
    assert!(!range_counts(&headers(&[(IF_RANGE, THEN)]), of, then() + Duration::from_secs(60)));
}

#[test]
fn several_lines_are_one_list() {
    let mut lines = HeaderMap::new();
    lines.append(IF_NONE_MATCH, HeaderValue::from_static("\"a\""));
    lines.append(IF_NONE_MATCH, HeaderValue::from_static("\"v1\""));
    let of = Validators { etag: Some(&ETAG), last_modified: None };
    assert_eq!(evaluate(&lines, of), ConditionVerdict::NotModified);
}

/// RFC 9110 section 5.6.7.
#[test]
fn dates_have_three_formats() {
    let of = Validators { etag: None, last_modified: Some(then()) };
    for date in [THEN, "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
        assert_eq!(evaluate(&headers(&[(IF_MODIFIED_SINCE, date)]), of), ConditionVerdict::NotModified, "{date}");
    }
}

/// RFC 9110 sections 13.1.3 to 13.1.5.
#[test]
fn dates_and_if_range_count_only_if_they_come_once() {
    let of = Validators { etag: Some(&ETAG), last_modified: Some(then()) };
    for (name, other) in [(IF_MODIFIED_SINCE, AFTER), (IF_UNMODIFIED_SINCE, BEFORE)] {
        let mut lines = headers(&[(name.clone(), other)]);
        assert_ne!(evaluate(&lines, of), ConditionVerdict::Proceed, "{name}");
        lines.append(name.clone(), HeaderValue::from_static(THEN));
        assert_eq!(evaluate(&lines, of), ConditionVerdict::Proceed, "{name}");
    }
    let mut lines = headers(&[(IF_RANGE, "\"v1\"")]);
    lines.append(IF_RANGE, ETAG);
    assert!(!range_counts(&lines, of, then() + Duration::from_secs(60)));
}

#[test]
fn if_range_needs_a_strong_match() {
    let later = then() + Duration::from_secs(60);
    for (value, now, expected) in [
        ("\"v1\"", later, true),
        ("\"v2\"", later, false),
        ("W/\"v1\"", later, false),
        (THEN, later, true),
        (THEN, then(), false),
        (BEFORE, later, false),
        (AFTER, later, false),
        ("v1", later, false),
    ] {
        let of = Validators { etag: Some(&ETAG), last_modified: Some(then()) };
        assert_eq!(range_counts(&headers(&[(IF_RANGE, value)]), of, now), expected, "{value}");
    }
    let of = Validators { etag: Some(&ETAG), last_modified: None };
    assert!(range_counts(&HeaderMap::new(), of, later));
}

#[test]
fn a_weak_tag_of_ours_matches_weakly_only() {
    let weak = HeaderValue::from_static("W/\"v1\"");
    for etag in [Some(&weak), None] {
        let of = Validators { etag, last_modified: None };
        let verdict = |name, value| evaluate(&headers(&[(name, value)]), of);
        let matched = if etag.is_some() { ConditionVerdict::NotModified } else { ConditionVerdict::Proceed };
        assert_eq!(verdict(IF_NONE_MATCH, "\"v1\""), matched);
        assert_eq!(verdict(IF_NONE_MATCH, "W/\"v1\""), matched);
        assert_eq!(verdict(IF_NONE_MATCH, "*"), ConditionVerdict::NotModified);
        assert_eq!(verdict(IF_NONE_MATCH, "\"v2\""), ConditionVerdict::Proceed);
        for tag in ["\"v1\"", "W/\"v1\""] {
            assert_eq!(verdict(IF_MATCH, tag), ConditionVerdict::Failed);
            assert!(!range_counts(&headers(&[(IF_RANGE, tag)]), of, then()));
        }
        assert_eq!(verdict(IF_MATCH, "*"), ConditionVerdict::Proceed);
    }
}

#[test]
fn plain_requests_have_nothing_to_look_up() {
    let plain = headers(&[(http::header::HOST, "x"), (http::header::ACCEPT, "*/*")]);
    assert!(!any(&plain));
    assert!(any(&headers(&[(http::header::RANGE, "bytes=0-1")])));
}
