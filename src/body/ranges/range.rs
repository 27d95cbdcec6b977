//! Selection by the `Range` header, [RFC 9110 §14](https://www.rfc-editor.org/rfc/rfc9110#section-14).

use std::borrow::Cow;
use std::ops::Range;

use http::HeaderMap;
use http::header::RANGE;
use http_range_header::{EndPosition, StartPosition, SyntacticallyCorrectRange, parse_range_header};

/// Maximum number of ranges in a request. Resumed downloads need fewer, and every range costs a part.
const MOST: usize = 16;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Selected {
    /// Everything: there is no range, or it is ignored.
    Whole,
    One(Range<u64>),
    Many(Vec<Range<u64>>),
    Unsatisfiable,
}

/// Reads the `Range` header of a `GET` for a representation of `len` bytes.
///
/// The header is ignored, as §14.2 allows, if it is malformed, appears twice, or asks for more than 16 ranges or more
/// bytes in total than the representation has.
pub(super) fn select(headers: &HeaderMap, len: u64) -> Selected {
    let mut values = headers.get_all(RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Selected::Whole };
    let Some(text) = value.to_str().ok().and_then(bytes_unit) else { return Selected::Whole };
    if text.bytes().filter(|&b| b == b',').count() >= MOST {
        return Selected::Whole;
    }
    // The crate only parses the syntax: its validation refuses suffixes longer than the file, which §14.1.2 allows.
    let Ok(parsed) = parse_range_header(&text) else { return Selected::Whole };
    let mut ranges = Vec::new();
    for range in &parsed.ranges {
        match resolve(*range, len) {
            Resolved::Range(range) => ranges.push(range),
            Resolved::Outside => {}
            Resolved::Invalid => return Selected::Whole,
        }
    }
    // A suffix of an empty representation is satisfiable, but `Content-Range` cannot express it.
    if len == 0 && parsed.ranges.iter().any(|range| matches!(range.start, StartPosition::FromLast(_))) {
        return Selected::Whole;
    }
    if ranges.iter().map(|range| range.end - range.start).try_fold(0u64, u64::checked_add).is_none_or(|sum| sum > len) {
        return Selected::Whole;
    }
    match (ranges.len(), ranges.pop()) {
        (_, None) => Selected::Unsatisfiable,
        (1, Some(range)) => Selected::One(range),
        (_, Some(last)) => {
            ranges.push(last);
            Selected::Many(ranges)
        }
    }
}

/// Returns the value with its case-insensitive unit (§14.1) in lower case; `None` for other units.
fn bytes_unit(text: &str) -> Option<Cow<'_, str>> {
    const UNIT: &str = "bytes";
    let (unit, set) = text.split_once('=')?;
    match unit {
        UNIT => Some(text.into()),
        _ => unit.eq_ignore_ascii_case(UNIT).then(|| format!("{UNIT}={set}").into()),
    }
}

enum Resolved {
    Range(Range<u64>),
    Outside,
    Invalid,
}

fn resolve(range: SyntacticallyCorrectRange, len: u64) -> Resolved {
    match (range.start, range.end) {
        (StartPosition::Index(first), EndPosition::Index(last)) if last < first => Resolved::Invalid,
        (StartPosition::Index(first), _) if first >= len => Resolved::Outside,
        (StartPosition::Index(first), EndPosition::Index(last)) => {
            Resolved::Range(first..len.min(last.saturating_add(1)))
        }
        (StartPosition::Index(first), EndPosition::LastByte) => Resolved::Range(first..len),
        (StartPosition::FromLast(_), _) if len == 0 => Resolved::Outside,
        (StartPosition::FromLast(n), _) => Resolved::Range(len - n.min(len)..len),
    }
}

#[cfg(test)]
mod tests;
