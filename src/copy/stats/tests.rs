//! Unit tests of `stats`.

use super::*;

#[test]
fn the_way_of_most_bytes_is_reported() {
    let mut stats = Stats::default();
    assert_eq!(stats.report(), CopyReport::default());
    stats.record_moved(CopyPath::Pump, 10);
    assert_eq!(stats.report().path, CopyPath::Pump);
    stats.record_moved(CopyPath::Splice, 11);
    stats.record_moved(CopyPath::Clone, 0);
    assert_eq!((stats.report().path, stats.report().bytes), (CopyPath::Splice, 21));
}

#[test]
fn the_first_refusal_is_reported_and_all_are_kept() {
    let mut stats = Stats::default();
    stats.refuse(CopyPath::Clone);
    assert_eq!(stats.report().refused, None, "a refused clone is not reported");
    stats.refuse(CopyPath::CopyFileRange);
    stats.refuse(CopyPath::Splice);
    assert_eq!(stats.report().refused, Some(CopyPath::CopyFileRange));
    assert!(stats.without.has(CopyPath::Clone) && stats.without.has(CopyPath::CopyFileRange));
    assert!(!stats.without.has(CopyPath::Pump));
}
