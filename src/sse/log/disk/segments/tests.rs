//! Unit tests of `segments`.

use std::time::Duration;

use super::*;

fn segment(first: u64, changed: u64) -> Segment {
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(changed);
    Segment { first, len: 100, changed, reading: Arc::default() }
}

fn segments() -> Segments {
    Segments::new(vec![segment(1, 10), segment(5, 20), segment(8, 30)], 10)
}

#[test]
fn events_are_found_in_their_segment() {
    let of = |id| segments().find(id).map(|found| (found.segment.first, found.end, found.is_full));
    for (id, expected) in [
        (0, None),
        (1, Some((1, 5, true))),
        (4, Some((1, 5, true))),
        (5, Some((5, 8, true))),
        (9, Some((8, 10, false))),
        (10, None),
    ] {
        assert_eq!(of(id), expected, "{id}");
    }
}

#[test]
fn old_segments_go_and_the_last_one_stays() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(35);
    let keep = Keep { bytes: u64::MAX, segments: usize::MAX, age: None };
    let trim = |keep: Keep| {
        let mut segments = segments();
        (segments.trim(&keep, now), segments.first(), segments.size())
    };
    assert_eq!(trim(keep), (vec![], 1, (3, 300)));
    assert_eq!(trim(Keep { bytes: 299, ..keep }), (vec![1], 5, (2, 200)));
    assert_eq!(trim(Keep { bytes: 0, ..keep }), (vec![1, 5], 8, (1, 100)));
    assert_eq!(trim(Keep { segments: 2, ..keep }), (vec![1], 5, (2, 200)));
    assert_eq!(trim(Keep { age: Some(Duration::from_secs(15)), ..keep }), (vec![1], 5, (2, 200)));
    assert_eq!(trim(Keep { age: Some(Duration::ZERO), ..keep }), (vec![1, 5], 8, (1, 100)));
}
