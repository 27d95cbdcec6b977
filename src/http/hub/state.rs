//! What a hub keeps under its lock: the ring, the numbers, and what is to be done about readers that are slow.

use bytes::Bytes;

use super::builder::Slow;
use super::gap::Gap;
use super::ring::Ring;
use super::shared::Config;
use super::stats::Stats;
use crate::observe::counters::{Counter, count};

#[derive(Debug)]
pub(super) struct State {
    pub(super) ring: Ring,
    pub(super) stats: Stats,
    /// The number of the last entry that is a gap, and so not an event.
    pub(super) last_gap: Option<u64>,
    /// Where senders wait for readers: those that were before this were given up.
    pub(super) cut: u64,
}

/// Where a reader is.
#[derive(Debug)]
pub(super) struct Cursor {
    /// The entry it reads next.
    pub(super) next: u64,
    /// It was behind when it came, and may be until here.
    pub(super) catch_up: u64,
    /// [`State::cut`] when it came.
    pub(super) cut: u64,
}

/// What there is for a reader.
#[derive(Debug)]
pub(super) enum Read {
    Frame(Bytes),
    /// Some of it is gone; then there is more.
    Gap(Gap),
    /// It was too slow, and its stream ends.
    TooSlow,
    Nothing,
}

impl State {
    pub(super) fn read(&mut self, config: &Config, cursor: &mut Cursor) -> (Read, u64, u64) {
        let (base, head) = (self.ring.base(), self.ring.head());
        if cursor.next >= head {
            return (Read::Nothing, 0, 0);
        }
        let late = cursor.next >= cursor.catch_up && head - cursor.next > config.queue;
        if cursor.next < base || self.has_given_up(cursor) || (late && config.slow != Slow::Block) {
            let queued = match config.slow {
                Slow::Disconnect | Slow::Block => return (Read::TooSlow, 0, 0),
                Slow::DropOldest if cursor.next < cursor.catch_up => head - base,
                Slow::DropOldest => config.queue,
                Slow::Latest => 1,
            };
            let to = base.max(head.saturating_sub(queued));
            let missed = to - cursor.next;
            // One of those may have been a gap, and then nobody knows.
            let known = self.last_gap.is_none_or(|gap| gap < cursor.next);
            cursor.next = to;
            self.stats.gaps += 1;
            count(Counter::EventGaps, 1);
            self.stats.dropped += missed;
            return (Read::Gap(Gap::slow(known.then_some(missed))), 0, missed);
        }
        let (frame, to) = self.ring.frame(cursor.next);
        let delivered = to - cursor.next;
        cursor.next = to;
        self.stats.delivered += delivered;
        (Read::Frame(frame), delivered, 0)
    }

    pub(super) fn has_given_up(&self, cursor: &Cursor) -> bool {
        cursor.next < self.cut && cursor.cut < self.cut
    }

    /// Where senders wait for readers: whether the slowest of them leaves room for `len` bytes.
    pub(super) fn has_room(&mut self, config: &Config, len: usize) -> bool {
        let unread = self.ring.unread();
        self.ring.head() - unread < config.queue && self.ring.fits(len, unread)
    }

    /// Gives up the slowest readers, at least, and all that leave no room for one event.
    pub(super) fn give_up(&mut self, config: &Config) {
        loop {
            let unread = self.ring.unread();
            self.cut = self.ring.forget(unread);
            if self.has_room(config, 0) {
                return;
            }
        }
    }
}
