//! Header fields, offsets and queries of the protocol.

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use http::Uri;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::Authority;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::refusal::Refusal;
use crate::store::{Expiry, Producer, now};

pub(crate) const NEXT: HeaderName = HeaderName::from_static("stream-next-offset");
pub(crate) const CLOSED: HeaderName = HeaderName::from_static("stream-closed");
pub(crate) const UP_TO_DATE: HeaderName = HeaderName::from_static("stream-up-to-date");
pub(crate) const CURSOR: HeaderName = HeaderName::from_static("stream-cursor");
pub(crate) const SEQ: HeaderName = HeaderName::from_static("stream-seq");
pub(crate) const TTL: HeaderName = HeaderName::from_static("stream-ttl");
pub(crate) const EXPIRES_AT: HeaderName = HeaderName::from_static("stream-expires-at");
pub(crate) const FORKED_FROM: HeaderName = HeaderName::from_static("stream-forked-from");
pub(crate) const FORK_OFFSET: HeaderName = HeaderName::from_static("stream-fork-offset");
pub(crate) const FORK_SUB_OFFSET: HeaderName = HeaderName::from_static("stream-fork-sub-offset");
pub(crate) const SSE_ENCODING: HeaderName = HeaderName::from_static("stream-sse-data-encoding");
pub(crate) const PRODUCER_ID: HeaderName = HeaderName::from_static("producer-id");
pub(crate) const PRODUCER_EPOCH: HeaderName = HeaderName::from_static("producer-epoch");
pub(crate) const PRODUCER_SEQ: HeaderName = HeaderName::from_static("producer-seq");
pub(crate) const EXPECTED_SEQ: HeaderName = HeaderName::from_static("producer-expected-seq");
pub(crate) const RECEIVED_SEQ: HeaderName = HeaderName::from_static("producer-received-seq");

pub(crate) const TRUE: HeaderValue = HeaderValue::from_static("true");
/// Bytes of a path.
pub(crate) const PATH_MAX: usize = 1024;
/// Paths that the protocol reserves, as a part of any path: those of subscriptions.
pub(crate) const RESERVED: &str = "__ds";
/// What a segment of a path does not have as it is, [RFC 3986 section 2.3](https://www.rfc-editor.org/rfc/rfc3986#section-2.3).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Offsets of the protocol have 16 digits, and 16 more that are the position here.
const ZEROS: &str = "0000000000000000_";
/// 2024-10-09, where the intervals of cursors begin, and their length in seconds.
const CURSORS: (u64, u64) = (1_728_432_000, 20);

pub(crate) fn offset(at: u64) -> HeaderValue {
    HeaderValue::try_from(offset_text(at)).expect("digits")
}

/// Adds the end of a stream, and whether it is closed.
pub(crate) fn position(headers: &mut HeaderMap, end: u64, closed: bool) {
    headers.insert(NEXT, offset(end));
    if closed {
        headers.insert(CLOSED, TRUE);
    }
}

pub(crate) fn offset_text(at: u64) -> String {
    format!("{ZEROS}{at:016}")
}

pub(crate) fn parse_offset(text: &str) -> Option<u64> {
    text.strip_prefix(ZEROS).filter(|digits| digits.len() == 16).and_then(|digits| integer(digits, u64::MAX))
}

/// Writes a time as in RFC 3339.
pub(crate) fn time_text(millis: i64) -> Option<HeaderValue> {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000).ok()?;
    HeaderValue::try_from(time.format(&Rfc3339).ok()?).ok()
}

/// Where a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    At(u64),
    Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Live {
    LongPoll,
    Events,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) start: Start,
    pub(crate) live: Option<Live>,
    pub(crate) cursor: Option<u64>,
}

impl Query {
    pub(crate) fn parse(text: &str) -> Result<Self, Refusal> {
        let (mut start, mut live, mut cursor) = (None, None, None);
        for (name, value) in text.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))) {
            match name {
                "offset" if start.is_some() => return Err(Refusal::bad("the offset is given twice")),
                "offset" => {
                    start = Some(match value {
                        "-1" => Start::At(0),
                        "now" => Start::Now,
                        _ => Start::At(parse_offset(value).ok_or_else(|| Refusal::bad("the offset is malformed"))?),
                    });
                }
                "live" => {
                    live = Some(match value {
                        "long-poll" => Live::LongPoll,
                        "sse" => Live::Events,
                        _ => return Err(Refusal::bad("live is long-poll or sse")),
                    });
                }
                "cursor" => cursor = integer(value, u64::MAX / 2),
                _ => {}
            }
        }
        if live.is_some() && start.is_none() {
            return Err(Refusal::bad("live reads need an offset"));
        }
        Ok(Self { start: start.unwrap_or(Start::At(0)), live, cursor })
    }
}

/// Returns the cursor for a live answer: the number of the interval, or more than the client has sent.
pub(crate) fn cursor(sent: Option<u64>) -> u64 {
    let interval = (now().cast_unsigned() / 1000).saturating_sub(CURSORS.0) / CURSORS.1;
    match sent {
        Some(sent) if sent >= interval => sent + 1 + RandomState::new().hash_one(sent) % (3600 / CURSORS.1),
        _ => interval,
    }
}

/// Returns a random number.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// Divides a path at the reserved segment.
pub(crate) fn reserved(path: &str) -> Option<(&str, &str)> {
    let at = path.match_indices(RESERVED).map(|(at, _)| at).find(|&at| {
        path[..at].ends_with('/') && matches!(path.as_bytes().get(at + RESERVED.len()), None | Some(b'/'))
    })?;
    Some((&path[..at - 1], path[at + RESERVED.len()..].trim_start_matches('/')))
}

/// Returns the host of a request.
pub(crate) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> &'a str {
    let authority = uri.authority().map(Authority::as_str);
    authority.or_else(|| headers.get(HOST)?.to_str().ok()).unwrap_or("localhost")
}

/// Returns a segment of a path as text. `None` if it is not UTF-8.
pub(crate) fn decoded(segment: &str) -> Option<String> {
    percent_decode_str(segment).decode_utf8().ok().map(Cow::into_owned)
}

/// Returns text as a segment of a path.
pub(crate) fn encoded(text: &str) -> impl fmt::Display {
    utf8_percent_encode(text, SEGMENT)
}

pub(crate) fn is_true(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get(name).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}

/// Returns the value of a field that is given at most once.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    value.to_str().map(Some).map_err(|_| Refusal::bad(format!("{name} is not ASCII")))
}

/// Reads an integer without sign, and not more than `max`.
fn integer(text: &str, max: u64) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok().filter(|&n| n <= max))?
}

/// Reads an integer that also has no zeros in front.
pub(crate) fn strict_integer(text: &str) -> Option<u64> {
    integer(text, u64::MAX / 2).filter(|_| text == "0" || !text.starts_with('0'))
}

/// Returns the media type without parameters, in lower case.
pub(crate) fn media_type(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(value) = text(headers, &CONTENT_TYPE)? else { return Ok(None) };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    Ok(Some(essence).filter(|essence| !essence.is_empty()))
}

pub(crate) fn producer(headers: &HeaderMap) -> Result<Option<Producer<'_>>, Refusal> {
    let max = (1 << 53) - 1;
    let of = |name| text(headers, name);
    match (of(&PRODUCER_ID)?, of(&PRODUCER_EPOCH)?, of(&PRODUCER_SEQ)?) {
        (None, None, None) => Ok(None),
        (Some(""), ..) => Err(Refusal::bad("Producer-Id is empty")),
        (Some(id), Some(epoch), Some(seq)) => match (integer(epoch, max), integer(seq, max)) {
            (Some(epoch), Some(seq)) => Ok(Some(Producer { id, epoch, seq })),
            _ => Err(Refusal::bad("Producer-Epoch and Producer-Seq are integers from 0 to 2^53-1")),
        },
        _ => Err(Refusal::bad("Producer-Id, Producer-Epoch and Producer-Seq are given together")),
    }
}

pub(crate) fn expiry(headers: &HeaderMap) -> Result<Option<Expiry>, Refusal> {
    match (text(headers, &TTL)?, text(headers, &EXPIRES_AT)?) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Refusal::bad("Stream-TTL and Stream-Expires-At exclude each other")),
        (Some(ttl), None) => {
            let seconds = strict_integer(ttl).ok_or_else(|| Refusal::bad("Stream-TTL is an integer of seconds"))?;
            Ok(Some(Expiry::Idle(seconds)))
        }
        (None, Some(at)) => {
            let at = OffsetDateTime::parse(at, &Rfc3339);
            let at = at.map_err(|e| Refusal::bad(format!("Stream-Expires-At is not a time as in RFC 3339: {e}")))?;
            Ok(Some(Expiry::At((at.unix_timestamp_nanos() / 1_000_000) as i64)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let start = |text: &str| Query::parse(text).map(|query| query.start).ok();
        assert_eq!(start(""), Some(Start::At(0)));
        assert_eq!(start(&format!("offset={}&x", offset_text(12))), Some(Start::At(12)));
        for wrong in ["offset=", "offset=1", "offset=a&offset=b", "live=sse", "offset=-1&live=x", "offset=0%201"] {
            assert_eq!(start(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn cursors_grow() {
        let first = cursor(None);
        assert!(cursor(Some(first)) > first);
        assert_eq!(cursor(Some(first - 1)), cursor(None));
    }

    #[test]
    fn the_reserved_segment_is_a_whole_one() {
        assert_eq!(reserved("/v1/stream/__ds/subscriptions/a"), Some(("/v1/stream", "subscriptions/a")));
        assert_eq!(reserved("/__ds"), Some(("", "")));
        assert_eq!(reserved("/a/__ds/b/__ds/c"), Some(("/a", "b/__ds/c")));
        for path in ["/a__ds/b", "/__dsa/b", "/a/b", "__ds"] {
            assert_eq!(reserved(path), None, "{path}");
        }
        assert_eq!(reserved("/a__ds/__ds/c"), Some(("/a__ds", "c")));
    }
}
