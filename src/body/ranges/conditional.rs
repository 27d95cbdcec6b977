//! Conditional requests, [RFC 9110 §13](https://www.rfc-editor.org/rfc/rfc9110#section-13).

use std::time::{Duration, SystemTime};

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName, HeaderValue};

/// What identifies the version of a representation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validators<'a> {
    pub(crate) etag: Option<&'a HeaderValue>,
    pub(crate) last_modified: Option<SystemTime>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConditionVerdict {
    Proceed,
    /// 304: the client has this version.
    NotModified,
    /// 412: a precondition is false.
    Failed,
}

/// Returns whether the request has a header that this module or `range` reads. One pass is cheaper than six look-ups.
pub(super) fn any(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("if-") || name.as_str() == "range")
}

/// Evaluates the preconditions of a `GET` or `HEAD` in the order of §13.2.2.
pub(super) fn evaluate(headers: &HeaderMap, of: Validators<'_>) -> ConditionVerdict {
    if headers.contains_key(IF_MATCH) {
        if !tags(headers, IF_MATCH).any(|tag| tag.matches_strongly(of.etag)) {
            return ConditionVerdict::Failed;
        }
    } else if let (Some(since), Some(modified)) = (date(headers, IF_UNMODIFIED_SINCE), of.last_modified)
        && modified > since
    {
        return ConditionVerdict::Failed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        if tags(headers, IF_NONE_MATCH).any(|tag| tag.matches_weakly(of.etag)) {
            return ConditionVerdict::NotModified;
        }
    } else if let (Some(since), Some(modified)) = (date(headers, IF_MODIFIED_SINCE), of.last_modified)
        && modified <= since
    {
        return ConditionVerdict::NotModified;
    }
    ConditionVerdict::Proceed
}

/// Returns whether the `Range` header applies under `If-Range`, §13.1.5. Without `If-Range` it does.
pub(super) fn range_counts(headers: &HeaderMap, of: Validators<'_>, now: SystemTime) -> bool {
    let Some(value) = headers.get(IF_RANGE) else { return true };
    if value.as_bytes().starts_with(b"\"") || value.as_bytes().starts_with(b"W/") {
        // A weak tag never matches (§13.1.5).
        return value.as_bytes().starts_with(b"\"") && Some(value) == of.etag;
    }
    // A date is strong only if the file could not have changed again within its second (§8.8.2.2).
    let settled = |modified: SystemTime| now.duration_since(modified).is_ok_and(|age| age >= Duration::from_secs(1));
    date(headers, IF_RANGE).is_some_and(|date| of.last_modified.is_some_and(|m| m == date && settled(m)))
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

#[derive(Debug, PartialEq, Eq)]
enum Tag<'a> {
    Any,
    Strong(&'a [u8]),
    Weak(&'a [u8]),
}

impl Tag<'_> {
    fn matches_strongly(&self, etag: Option<&HeaderValue>) -> bool {
        match self {
            Self::Any => true,
            Self::Strong(tag) => etag.is_some_and(|etag| *tag == etag.as_bytes()),
            Self::Weak(_) => false,
        }
    }

    fn matches_weakly(&self, etag: Option<&HeaderValue>) -> bool {
        match self {
            Self::Any => true,
            Self::Strong(tag) | Self::Weak(tag) => etag.is_some_and(|etag| *tag == opaque(etag.as_bytes())),
        }
    }
}

fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Returns the entity tags of all lines of a header, including quotes. Skips the rest of a line after a malformed tag.
fn tags(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = Tag<'_>> {
    headers.get_all(name).iter().flat_map(|value| {
        let mut rest = value.as_bytes();
        std::iter::from_fn(move || {
            let (tag, after) = next_tag(rest)?;
            rest = after;
            Some(tag)
        })
    })
}

fn next_tag(list: &[u8]) -> Option<(Tag<'_>, &[u8])> {
    let list = &list[list.iter().position(|b| !matches!(b, b' ' | b'\t' | b','))?..];
    if let Some(after) = list.strip_prefix(b"*") {
        return Some((Tag::Any, after));
    }
    let (weak, quoted) = match list.strip_prefix(b"W/") {
        Some(quoted) => (true, quoted),
        None => (false, list),
    };
    // A tag may contain commas, so the list cannot be split at them.
    let end = quoted.strip_prefix(b"\"")?.iter().position(|&b| b == b'"')? + 2;
    let (tag, after) = quoted.split_at(end);
    Some((if weak { Tag::Weak(tag) } else { Tag::Strong(tag) }, after))
}

#[cfg(test)]
mod tests {
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
}
