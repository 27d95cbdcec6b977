//! Detection of duplicate and missing entries by the last append of each writer.
//!
//! A writer numbers its appends from 1 on and puts its random id and the number into each entry. So an entry whose
//! number is not above the last one of its writer is a duplicate, and skipped numbers mean that earlier entries were
//! lost.

use std::collections::{BTreeSet, HashMap};

use super::id::Id;

/// Number of writers that are remembered: each restart of an instance adds one.
const WRITERS_MAX: usize = 4096;
/// Number of positions in the log that are remembered. Both kinds are rare.
const PLACES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) writer: u64,
    pub(crate) number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryVerdict {
    Next,
    Double,
    /// This many entries of the same writer are missing before it.
    After(u64),
}

#[derive(Debug)]
pub(crate) struct Seen {
    writers: HashMap<u64, (u64, Id)>,
    /// Whether all entries since the start of the log were seen, so that a new writer has no earlier ones.
    whole: bool,
}

impl Seen {
    pub(crate) fn behind(start: Id) -> Self {
        Self { writers: HashMap::new(), whole: start == Id::ZERO }
    }

    pub(crate) fn classify(&mut self, id: Id, stamp: Stamp) -> EntryVerdict {
        let Stamp { writer, number } = stamp;
        let Some((last, at)) = self.writers.get_mut(&writer) else {
            let missing = if self.whole { number.saturating_sub(1) } else { 0 };
            self.remember(id, stamp);
            return if missing == 0 { EntryVerdict::Next } else { EntryVerdict::After(missing) };
        };
        if number <= *last {
            return EntryVerdict::Double;
        }
        let missing = number - *last - 1;
        (*last, *at) = (number, id);
        if missing == 0 { EntryVerdict::Next } else { EntryVerdict::After(missing) }
    }

    fn remember(&mut self, id: Id, Stamp { writer, number }: Stamp) {
        if self.writers.len() >= WRITERS_MAX {
            let quiet = self.writers.iter().min_by_key(|(_, (_, at))| *at).map(|(&writer, _)| writer);
            quiet.and_then(|writer| self.writers.remove(&writer));
            self.whole = false;
        }
        self.writers.insert(writer, (number, id));
    }
}

/// Duplicates and gaps found by the reader of the live end, for later replays of the same entries.
#[derive(Debug, Default)]
pub(crate) struct Places {
    doubles: BTreeSet<Id>,
    holes: BTreeSet<Id>,
}

impl Places {
    pub(crate) fn add_double(&mut self, id: Id) {
        add(&mut self.doubles, id);
    }

    pub(crate) fn add_hole(&mut self, id: Id) {
        add(&mut self.holes, id);
    }

    pub(crate) fn is_double(&self, id: Id) -> bool {
        self.doubles.contains(&id)
    }

    pub(crate) fn has_hole(&self, id: Id) -> bool {
        self.holes.contains(&id)
    }
}

fn add(places: &mut BTreeSet<Id>, id: Id) {
    places.insert(id);
    if places.len() > PLACES_MAX {
        places.pop_first();
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(
            seen.classify(id((1 << 20) + 3), stamp(1, 2)),
            EntryVerdict::Next,
            "its earlier appends are unknown"
        );
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
}
