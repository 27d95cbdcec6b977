//! What readers know of each writer: which of its appends came last, so that doubles and holes are found.
//!
//! A writer numbers its appends from 1 on and puts its own random number and that of the append into each entry. So an
//! entry whose number is not above the last one of its writer is a double, and one that leaves out numbers says that
//! entries before it were lost, wherever Redis has lost them.

use std::collections::{BTreeSet, HashMap};

use super::id::Id;

/// Writers that are remembered: each restart of an instance makes a new one.
const WRITERS_MAX: usize = 4096;
/// Places in the log that are remembered. Both are rare.
const PLACES_MAX: usize = 1024;

/// Who has appended an entry, and as which of its appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) writer: u64,
    pub(super) number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing is known against it.
    Next,
    /// It has been there before.
    Double,
    /// So many entries of the same writer are missing before it.
    After(u64),
}

/// The last append of each writer that was seen.
#[derive(Debug)]
pub(super) struct Seen {
    writers: HashMap<u64, (u64, Id)>,
    /// Every entry that there ever was should have been seen: a writer that is not known has none before.
    whole: bool,
}

impl Seen {
    /// Of the entries behind `start`.
    pub(super) fn behind(start: Id) -> Self {
        Self { writers: HashMap::new(), whole: start == Id::ZERO }
    }

    /// Judges the entry `id`, which is the next one of the log.
    pub(super) fn judge(&mut self, id: Id, stamp: Stamp) -> Verdict {
        let Stamp { writer, number } = stamp;
        let Some((last, at)) = self.writers.get_mut(&writer) else {
            let missing = if self.whole { number.saturating_sub(1) } else { 0 };
            self.remember(id, stamp);
            return if missing == 0 { Verdict::Next } else { Verdict::After(missing) };
        };
        if number <= *last {
            return Verdict::Double;
        }
        let missing = number - *last - 1;
        (*last, *at) = (number, id);
        if missing == 0 { Verdict::Next } else { Verdict::After(missing) }
    }

    fn remember(&mut self, id: Id, Stamp { writer, number }: Stamp) {
        if self.writers.len() >= WRITERS_MAX {
            // The one that has been quiet for longest.
            let quiet = self.writers.iter().min_by_key(|(_, (_, at))| *at).map(|(&writer, _)| writer);
            quiet.and_then(|writer| self.writers.remove(&writer));
            self.whole = false;
        }
        self.writers.insert(writer, (number, id));
    }
}

/// What the reader of the live end has found out about entries, for replays that come past them later.
#[derive(Debug, Default)]
pub(super) struct Places {
    doubles: BTreeSet<Id>,
    holes: BTreeSet<Id>,
}

impl Places {
    pub(super) fn add_double(&mut self, id: Id) {
        add(&mut self.doubles, id);
    }

    /// Something was lost before the entry `id`.
    pub(super) fn add_hole(&mut self, id: Id) {
        add(&mut self.holes, id);
    }

    pub(super) fn is_double(&self, id: Id) -> bool {
        self.doubles.contains(&id)
    }

    pub(super) fn has_hole(&self, id: Id) -> bool {
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
        let verdicts = (1..).zip(entries).map(|(ms, (writer, number))| seen.judge(id(ms), stamp(writer, number)));
        let expected = [
            Verdict::Next,
            Verdict::Next,
            Verdict::Next,
            Verdict::Double,
            Verdict::Double,
            Verdict::Next,
            Verdict::After(2),
            Verdict::Next,
            Verdict::After(1),
        ];
        assert_eq!(verdicts.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn where_the_log_begins_every_writer_begins_with_its_first() {
        let mut seen = Seen::behind(Id::ZERO);
        let entries = [(1, 1), (1, 2), (2, 1), (3, 8), (3, 9), (4, 2)];
        let verdicts = (1..).zip(entries).map(|(ms, (writer, number))| seen.judge(id(ms), stamp(writer, number)));
        let expected =
            [Verdict::Next, Verdict::Next, Verdict::Next, Verdict::After(7), Verdict::Next, Verdict::After(1)];
        assert_eq!(verdicts.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_quietest_writer_is_forgotten_first() {
        let mut seen = Seen::behind(Id::ZERO);
        for writer in 0..WRITERS_MAX as u64 {
            seen.judge(id(writer + 1), stamp(writer, 1));
        }
        // The first one speaks again, so the second is the quietest.
        assert_eq!(seen.judge(id(1 << 20), stamp(0, 2)), Verdict::Next);
        seen.judge(id((1 << 20) + 1), stamp(u64::MAX, 1));
        assert_eq!(seen.writers.len(), WRITERS_MAX);
        assert_eq!(seen.judge(id((1 << 20) + 2), stamp(0, 2)), Verdict::Double);
        assert!(!seen.writers.contains_key(&1));
        assert_eq!(seen.judge(id((1 << 20) + 3), stamp(1, 2)), Verdict::Next, "it is not known what it had before");
    }

    #[test]
    fn places_are_bounded() {
        let mut places = Places::default();
        for ms in 0..=PLACES_MAX as u64 {
            places.add_double(id(ms));
            places.add_hole(id(ms));
        }
        assert!(!places.is_double(id(0)) && !places.has_hole(id(0)), "the oldest makes room");
        assert!(places.is_double(id(1)) && places.has_hole(id(PLACES_MAX as u64)));
    }
}
