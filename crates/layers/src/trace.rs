//! W3C Trace Context (<https://www.w3.org/TR/trace-context-2/>).

use std::fmt;
use std::io;
use std::str::FromStr;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::scratch::{hex, value};

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

const SAMPLED: u8 = 1;
const RANDOM: u8 = 2;

/// `00-<32 digits>-<16 digits>-<2 digits>`.
const LEN: usize = 55;
/// Limits of a `tracestate` that must be forwarded, in bytes and members.
const STATE_MAX: usize = 512;
const STATE_MEMBERS_MAX: usize = 32;

/// The trace of a request, and the span that is the parent of its handler's spans. [`Stamp`](super::Stamp) adds it to
/// the extensions and headers of the request. It is parsed from the text of a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace_id: u128,
    parent_id: u64,
    flags: u8,
}

impl TraceParent {
    /// Begins a trace. It is sampled if the last 56 bits of its random id are at least `threshold`, so that all
    /// services with the same share sample the same traces.
    pub(super) fn start(threshold: u64) -> Self {
        let trace_id = std::iter::repeat_with(rand::random).find(|&id| id != 0).unwrap_or(1);
        let sampled = trace_id as u64 & ((1 << 56) - 1) >= threshold;
        Self { trace_id, parent_id: span(), flags: RANDOM | if sampled { SAMPLED } else { 0 } }
    }

    /// Returns the same trace with a new span. Unknown flags are dropped.
    pub(super) fn child(self) -> Self {
        Self { parent_id: span(), flags: self.flags & (SAMPLED | RANDOM), ..self }
    }

    /// Reads the `traceparent` of `headers`: `None` if there is none, more than one, or an invalid one.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let value = values.next().filter(|_| values.next().is_none())?;
        Self::parse(value.as_bytes())
    }

    /// Unknown versions may have more fields after the flags. `ff` is never a version.
    fn parse(text: &[u8]) -> Option<Self> {
        let (known, rest) = text.split_at_checked(LEN)?;
        let version = digits(&known[..2])?;
        let dashes = [2, 35, 52].iter().all(|&at| known[at] == b'-');
        let whole = rest.is_empty() || version > 0 && rest[0] == b'-';
        if version == 0xff || !dashes || !whole {
            return None;
        }
        let parsed = Self {
            trace_id: digits(&known[3..35])?,
            parent_id: digits(&known[36..52])? as u64,
            flags: digits(&known[53..])? as u8,
        };
        (parsed.trace_id != 0 && parsed.parent_id != 0).then_some(parsed)
    }

    /// Returns the id of the trace, never 0.
    pub fn trace_id(&self) -> u128 {
        self.trace_id
    }

    /// Returns the id of the span, never 0.
    pub fn parent_id(&self) -> u64 {
        self.parent_id
    }

    /// Returns whether the caller may have recorded the trace.
    pub fn sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Returns whether at least the last 56 bits of the trace id are random (level 2).
    pub fn random(&self) -> bool {
        self.flags & RANDOM != 0
    }

    fn text(&self) -> [u8; LEN] {
        let mut text = [b'-'; LEN];
        hex(&[0], &mut text[..2]);
        hex(&self.trace_id.to_be_bytes(), &mut text[3..35]);
        hex(&self.parent_id.to_be_bytes(), &mut text[36..52]);
        hex(&[self.flags], &mut text[53..]);
        text
    }

    /// Returns the value of a `traceparent` header, for a forwarded request.
    pub fn to_header(&self) -> HeaderValue {
        value(&self.text())
    }
}

fn span() -> u64 {
    std::iter::repeat_with(rand::random).find(|&id| id != 0).unwrap_or(1)
}

/// Parses lower-case hexadecimal digits, at most 32.
fn digits(text: &[u8]) -> Option<u128> {
    text.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

/// Returns whether the `tracestate` of `headers` must be forwarded.
pub(super) fn has_good_state(headers: &HeaderMap) -> bool {
    let (mut bytes, mut members) = (0, 0);
    for line in headers.get_all(TRACESTATE) {
        bytes += line.len() + 1;
        members += line.as_bytes().split(|&b| b == b',').count();
        if !line.as_bytes().iter().all(|b| matches!(b, b'\t' | b' '..=b'~')) {
            return false;
        }
    }
    bytes <= STATE_MAX + 1 && members <= STATE_MEMBERS_MAX
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(str::from_utf8(&self.text()).expect("internal: made of digits"))
    }
}

/// Error of a text that is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoTraceParent;

impl fmt::Display for NoTraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a traceparent: 00-<32 hexadecimal digits>-<16>-<2>, lower case, neither id all zeros")
    }
}

impl std::error::Error for NoTraceParent {}

/// `InvalidInput`.
impl From<NoTraceParent> for io::Error {
    fn from(error: NoTraceParent) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

impl FromStr for TraceParent {
    type Err = NoTraceParent;

    fn from_str(text: &str) -> Result<Self, NoTraceParent> {
        Self::parse(text.as_bytes()).ok_or(NoTraceParent)
    }
}

#[cfg(test)]
mod tests;
