//! How many entries are asked for at a time: as many as fit into so many bytes, as far as their sizes are known from those
//! that came before.
//!
//! Redis counts entries, not bytes. So their size is estimated: what comes larger counts at once, what comes smaller little
//! by little. Where the estimate was much too low the reply is refused on the way, and the entries are asked for one by
//! one.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::allowance::REPLY_MAX;
use super::entry::Entry;

/// Most entries of one page.
pub(super) const PAGE: usize = 128;
/// Bytes of an entry, before any has come.
const FIRST: usize = 4 << 10;
/// A reply may have so many times the bytes that were meant,
const TIMES: usize = 4;
/// and so many more.
const MORE: usize = 256 << 10;

/// The size of the entries of a log, estimated.
#[derive(Debug)]
pub(super) struct Sizes(AtomicUsize);

/// What to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Entries, at least one, besides the one that was there before.
    pub(super) entries: usize,
    /// How long the reply may be.
    pub(super) reply: usize,
    /// Whether that is as long as any may be.
    pub(super) is_large: bool,
}

impl Sizes {
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(FIRST))
    }

    /// A page of about so many bytes.
    pub(super) fn plan(&self, bytes: usize) -> Plan {
        let entry = self.0.load(Ordering::Relaxed);
        let entries = (bytes / entry).clamp(1, PAGE);
        let reply = bytes.saturating_mul(TIMES).saturating_add(MORE).min(REPLY_MAX);
        // The reply has the entry before, and may have the next one twice.
        let is_large = entries == 1 && entry.saturating_mul(3) > reply;
        Plan { entries, reply: if is_large { REPLY_MAX } else { reply }, is_large }
    }

    /// Learns from what has come.
    pub(super) fn learn(&self, entries: &[Entry]) {
        let Some(mean) = entries.iter().map(|entry| entry.bytes).sum::<usize>().checked_div(entries.len()) else {
            return;
        };
        let before = self.0.load(Ordering::Relaxed);
        let down = before - before.saturating_sub(mean) / 4;
        self.0.store(mean.max(down).max(1), Ordering::Relaxed);
    }

    /// A reply that was asked for by `plan` was longer than it might be.
    pub(super) fn refused(&self, plan: Plan) {
        self.0.fetch_max(plan.reply, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::id::Id;
    use super::*;
    use crate::http::Event;

    fn entries(bytes: &[usize]) -> Vec<Entry> {
        bytes.iter().map(|&bytes| Entry { id: Id::ZERO, stamp: None, event: Event::new(), bytes }).collect()
    }

    #[test]
    fn pages_have_about_as_many_bytes_as_are_meant() {
        let sizes = Sizes::new();
        assert_eq!(sizes.plan(1 << 20), Plan { entries: PAGE, reply: (4 << 20) + MORE, is_large: false });
        sizes.learn(&entries(&[50_000, 50_000]));
        assert_eq!(sizes.plan(1 << 20).entries, 20, "larger ones count at once");
        sizes.learn(&entries(&[100; 20]));
        assert_eq!(sizes.plan(1 << 20).entries, 27, "smaller ones little by little");
        (0..50).for_each(|_| sizes.learn(&entries(&[100; 20])));
        assert_eq!(sizes.plan(1 << 20).entries, PAGE);
        sizes.learn(&[]);
        assert_eq!(sizes.plan(0).entries, 1);
        sizes.learn(&entries(&[0]));
        assert_eq!(sizes.plan(usize::MAX), Plan { entries: PAGE, reply: REPLY_MAX, is_large: false });
    }

    #[test]
    fn what_was_refused_is_asked_for_one_by_one() {
        let sizes = Sizes::new();
        for bytes in [0, 1 << 10, 256 << 10, 1 << 20] {
            let plan = sizes.plan(bytes);
            assert!(!plan.is_large, "{bytes}");
            sizes.refused(plan);
            assert_eq!(sizes.plan(bytes), Plan { entries: 1, reply: REPLY_MAX, is_large: true });
            (0..50).for_each(|_| sizes.learn(&entries(&[100])));
        }
    }
}
