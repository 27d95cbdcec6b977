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
mod tests;
