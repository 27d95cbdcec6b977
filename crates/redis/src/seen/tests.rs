//! Unit tests of `seen`.

use super::*;

fn id(ms: u64) -> Id {
    Id::parse(&format!("{ms}-0")).unwrap()
}

fn stamp(writer: u64, number: u64) -> Stamp {
    Stamp { writer, number }
}

#[test]
fn doubles_and_holes_are_told_writer_by_writer() {
    let mut seen = Seen::behind(id(0x100));
    let entries = [(1, 5), (2, 1), (1, 6), (1, 6), (1, 5), (2, 2), (1, 9), (1, 10), (2, 4)];
    let verdicts = (1..).zip(entries).map(|(ms, (writer, number))| seen.classify(id(ms), stamp(writer, number)));
    let expected = [
        EntryVerdict::Next,
        EntryVerdict::Next,
        EntryVerdict::Next,
        EntryVerdict::Double,
        EntryVerdict::Double,
        EntryVerdict::Next,
        EntryVerdict::After(2),
        EntryVerdict::Next,
        EntryVerdict::After(1),
    ];
    assert_eq!(verdicts.collect::<Vec<_>>(), expected);
}

#[test]
fn where_the_log_begins_every_writer_begins_with_its_first() {
    let mut seen = Seen::behind(Id::ZERO);
    let entries = [(1, 1), (1, 2), (2, 1), (3, 8), (3, 9), (4, 2)];
    let verdicts = (1..).zip(entries).map(|(ms, (writer, number))| seen.classify(id(ms), stamp(writer, number)));
    let expected = [
        EntryVerdict::Next,
        EntryVerdict::Next,
        EntryVerdict::Next,
        EntryVerdict::After(7),
        EntryVerdict::Next,
        EntryVerdict::After(1),
    ];
    assert_eq!(verdicts.collect::<Vec<_>>(), expected);
}

#[test]
fn the_quietest_writer_is_forgotten_first() {
    let mut seen = Seen::behind(Id::ZERO);
    for writer in 0..WRITERS_MAX as u64 {
        seen.classify(id(writer + 1), stamp(writer, 1));
    }
    assert_eq!(seen.classify(id(1 << 20), stamp(0, 2)), EntryVerdict::Next);
    seen.classify(id((1 << 20) + 1), stamp(u64::MAX, 1));
    assert_eq!(seen.writers.len(), WRITERS_MAX);
    assert_eq!(seen.classify(id((1 << 20) + 2), stamp(0, 2)), EntryVerdict::Double);
    assert!(!seen.writers.contains_key(&1));
    assert_eq!(seen.classify(id((1 << 20) + 3), stamp(1, 2)), EntryVerdict::Next, "its earlier appends are unknown");
}

#[test]
fn places_are_bounded() {
    let mut places = Places::default();
    for ms in 0..=PLACES_MAX as u64 {
        places.add_double(id(ms));
        places.add_hole(id(ms));
    }
    assert!(!places.is_double(id(0)) && !places.has_hole(id(0)), "the oldest is removed");
    assert!(places.is_double(id(1)) && places.has_hole(id(PLACES_MAX as u64)));
}
