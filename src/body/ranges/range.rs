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
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn selected(value: &str, len: u64) -> Selected {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, HeaderValue::from_str(value).unwrap());
        select(&headers, len)
    }

    #[test]
    fn single_ranges() {
        for (value, expected) in [
            ("bytes=0-0", Selected::One(0..1)),
            ("bytes=0-99", Selected::One(0..100)),
            ("bytes=10-", Selected::One(10..100)),
            ("bytes=90-1000", Selected::One(90..100)),
            ("bytes=99-18446744073709551615", Selected::One(99..100)),
            ("bytes=-1", Selected::One(99..100)),
            ("bytes=-1000", Selected::One(0..100)),
            ("bytes=100-", Selected::Unsatisfiable),
            ("bytes=100-200", Selected::Unsatisfiable),
            ("bytes=-0", Selected::Whole),
            ("bytes=5-4", Selected::Whole),
            ("bytes=", Selected::Whole),
            ("bytes=a-b", Selected::Whole),
            ("bytes=1", Selected::Whole),
            ("items=0-1", Selected::Whole),
            ("bytes=0-99999999999999999999", Selected::Whole),
            ("0-1", Selected::Whole),
        ] {
            assert_eq!(selected(value, 100), expected, "{value}");
        }
    }

    #[test]
    fn several_ranges() {
        for (value, expected) in [
            ("bytes=0-0,10-19", Selected::Many(vec![0..1, 10..20])),
            ("bytes=50-59, 0-9, -5", Selected::Many(vec![50..60, 0..10, 95..100])),
            ("bytes=0-0,200-300", Selected::One(0..1)),
            ("bytes=100-,200-300", Selected::Unsatisfiable),
            ("bytes=0-9,5-4", Selected::Whole),
            ("bytes=0-60,30-99", Selected::Whole),
            ("bytes=0-49,50-", Selected::Many(vec![0..50, 50..100])),
        ] {
            assert_eq!(selected(value, 100), expected, "{value}");
        }
        let many = |n: u64| format!("bytes={}", (0..n).map(|i| format!("{i}-{i}")).collect::<Vec<_>>().join(","));
        assert!(matches!(selected(&many(16), 100), Selected::Many(ranges) if ranges.len() == 16));
        assert_eq!(selected(&many(17), 100), Selected::Whole);
    }

    #[test]
    fn nothing_has_no_ranges() {
        assert_eq!(selected("bytes=0-", 0), Selected::Unsatisfiable);
        assert_eq!(selected("bytes=-5", 0), Selected::Whole);
        assert_eq!(select(&HeaderMap::new(), 10), Selected::Whole);
        let mut twice = HeaderMap::new();
        twice.append(RANGE, HeaderValue::from_static("bytes=0-1"));
        twice.append(RANGE, HeaderValue::from_static("bytes=3-4"));
        assert_eq!(select(&twice, 10), Selected::Whole);
    }

    proptest! {
        #[test]
        fn every_range_lies_within(value in "bytes=[0-9,\\- ]{0,40}", len in 0u64..2000) {
            let ranges = match selected(&value, len) {
                Selected::One(range) => vec![range],
                Selected::Many(ranges) => {
                    prop_assert!(ranges.len() > 1 && ranges.len() <= MOST);
                    ranges
                }
                Selected::Whole | Selected::Unsatisfiable => vec![],
            };
            for range in &ranges {
                prop_assert!(range.start < range.end && range.end <= len);
            }
            prop_assert!(ranges.iter().map(|range| range.end - range.start).sum::<u64>() <= len);
        }
    }
}
