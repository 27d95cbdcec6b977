//! Conditional requests, [RFC 9110 §13](https://www.rfc-editor.org/rfc/rfc9110#section-13).

use std::time::{Duration, SystemTime};

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Identification of the version of a representation.
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
    let Some(value) = only(headers, &IF_RANGE) else { return !headers.contains_key(IF_RANGE) };
    if value.as_bytes().starts_with(b"\"") || value.as_bytes().starts_with(b"W/") {
        // A weak tag never matches (§13.1.5).
        return value.as_bytes().starts_with(b"\"") && Some(value) == of.etag;
    }
    // A date counts once the current version cannot change again within its second. An earlier version of that second,
    // which only a tag tells apart, is missed (§8.8.2.2).
    let settled = |modified: SystemTime| now.duration_since(modified).is_ok_and(|age| age >= Duration::from_secs(1));
    date(headers, IF_RANGE).is_some_and(|date| of.last_modified.is_some_and(|m| m == date && settled(m)))
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(only(headers, &name)?.to_str().ok()?).ok()
}

/// Returns the value of a field that is not a list. `None` if the field comes more than once, which makes it invalid.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
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
mod tests;
