//! Unit tests of `range`.

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
