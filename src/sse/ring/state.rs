//! State under the lock of a hub: the ring, the statistics, and the policy for slow readers.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::ring::{Limits, Name, Ring};
use crate::counters::{Counter, count};
use crate::spread::Draws;
use crate::sse::event::{EventId, Form, Gap, Part};
use crate::sse::stats::HubStats;
use crate::sse::wake::Beat;

/// Policy for slow readers. A reader is slow if it is further behind than
/// [`HubBuilder::queue`](crate::sse::HubBuilder::queue) allows, or behind the oldest event of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LagPolicy {
    /// Continues with the newest events that the queue allows, after a [gap](crate::sse::Hub#gaps) with the number of
    /// missed events.
    #[default]
    DropOldest,
    /// Continues with the newest event, after a gap with the number of missed events. With a queue of 1, at most one
    /// event waits: use this for readers that need only the latest state.
    Latest,
    /// Ends the stream at the next read. The reader reconnects and continues after the last event it received.
    Disconnect,
    /// No reader misses an event: [`Hub::send`](crate::sse::Hub::send) fails with
    /// [`SendError::Full`](crate::sse::SendError::Full), and [`Hub::send_wait`](crate::sse::Hub::send_wait) waits for
    /// the slowest reader. A reader that blocks it for longer than
    /// [`HubBuilder::patience`](crate::sse::HubBuilder::patience) is disconnected. With a
    /// [log](crate::sse::HubBuilder::log) senders cannot wait, and this is [`LagPolicy::Disconnect`].
    Block,
}

#[derive(Clone, Debug)]
pub(in crate::sse) struct Config {
    pub(in crate::sse) limits: Limits,
    pub(in crate::sse) queue: u64,
    pub(in crate::sse) slow: LagPolicy,
    pub(in crate::sse) patience: Duration,
    pub(in crate::sse) keep_alive: Option<Duration>,
    pub(in crate::sse) subscribers: usize,
    pub(in crate::sse) retry: Draws,
    /// Age at which a stream ends.
    pub(in crate::sse) max_age: Option<Draws>,
    pub(in crate::sse) past_layers: bool,
    /// Level of the compressed form, if readers may have it.
    pub(in crate::sse) gzip: Option<u32>,
}

impl Config {
    /// Returns when readers get comments, and end.
    pub(in crate::sse) fn beat(&self) -> Beat {
        Beat::new(self.keep_alive, self.max_age.as_ref().map(Draws::spread))
    }
}

#[derive(Debug)]
pub(in crate::sse) struct HubState {
    pub(in crate::sse) ring: Ring,
    pub(in crate::sse) stats: HubStats,
    /// Number of the last entry that is a gap and not an event.
    pub(super) last_gap: Option<u64>,
    /// Present while another process takes the place of this hub.
    pub(super) leaving: Option<Leaving>,
    /// How many are told of each event.
    pub(super) followers: usize,
}

/// A hub whose place another process takes.
#[derive(Debug)]
pub(super) struct Leaving {
    /// The events since, which the other process delivers first. Empty if a log has them.
    pub(super) late: VecDeque<(Bytes, Name)>,
    /// The number of the first of them.
    pub(super) first: u64,
}

#[derive(Debug)]
pub(in crate::sse) struct Cursor {
    pub(in crate::sse) next: u64,
    /// Entry up to which a reconnected reader may lag.
    pub(super) catch_up: u64,
    /// [`Ring::forgets`] when it joined.
    pub(super) forgets: u64,
}

#[derive(Debug)]
pub(in crate::sse) enum Read<E> {
    Events(E),
    /// Some events are gone; more follow.
    Gap(Gap),
    TooSlow,
    Nothing,
}

impl<E> Read<E> {
    #[inline(always)]
    pub(in crate::sse) fn map<T>(self, events: impl FnOnce(E) -> T) -> Read<T> {
        match self {
            Self::Events(found) => Read::Events(events(found)),
            Self::Gap(gap) => Read::Gap(gap),
            Self::TooSlow => Read::TooSlow,
            Self::Nothing => Read::Nothing,
        }
    }
}

/// Events of the ring.
#[derive(Debug)]
pub(in crate::sse) enum Found {
    Plain(Bytes),
    /// Events of a range, to be compressed without the lock.
    Gzip((u64, u64), Vec<Part>),
}

impl HubState {
    #[inline]
    pub(in crate::sse) fn read(&mut self, config: &Config, cursor: &mut Cursor, form: Form) -> (Read<Found>, u64, u64) {
        let (base, head) = (self.ring.base(), self.ring.head());
        if cursor.next >= head {
            return (Read::Nothing, 0, 0);
        }
        let late = cursor.next >= cursor.catch_up && head - cursor.next > config.queue;
        if cursor.next < base || self.has_given_up(cursor) || (late && config.slow != LagPolicy::Block) {
            let queued = match config.slow {
                LagPolicy::Disconnect | LagPolicy::Block => return (Read::TooSlow, 0, 0),
                LagPolicy::DropOldest if cursor.next < cursor.catch_up => head - base,
                LagPolicy::DropOldest => config.queue,
                LagPolicy::Latest => 1,
            };
            let to = base.max(head.saturating_sub(queued));
            let missed = to - cursor.next;
            // A gap among the missed entries makes the number unknown.
            let known = self.last_gap.is_none_or(|gap| gap < cursor.next);
            cursor.next = to;
            self.stats.gaps += 1;
            count(Counter::EventGaps, 1);
            self.stats.dropped += missed;
            return (Read::Gap(Gap::slow(known.then_some(missed))), 0, missed);
        }
        let from = cursor.next;
        let found = match form {
            Form::Plain | Form::Framed(_) => {
                let (frame, to) = self.ring.frame(from);
                cursor.next = to;
                Found::Plain(frame)
            }
            Form::Gzip => {
                let parts = self.ring.parts(from);
                cursor.next += parts.len() as u64;
                Found::Gzip((from, cursor.next), parts)
            }
        };
        let delivered = cursor.next - from;
        self.stats.delivered += delivered;
        (Read::Events(found), delivered, 0)
    }

    /// Returns the id of the next event without a given one.
    pub(super) fn next_id(&self) -> EventId {
        let late = self.leaving.as_ref().map(|leaving| leaving.first + leaving.late.len() as u64);
        self.ring.numbered(late.unwrap_or(self.ring.head()))
    }

    /// Returns whether the reader was given up, if the entry it reads next still exists.
    pub(super) fn has_given_up(&self, cursor: &Cursor) -> bool {
        self.ring.has_forgotten(cursor.next, cursor.forgets)
    }

    /// If senders wait for readers: returns whether the slowest leaves room for `len` bytes.
    pub(in crate::sse) fn has_room(&mut self, config: &Config, len: usize) -> bool {
        let unread = self.ring.unread();
        self.ring.head() - unread < config.queue && self.ring.fits(len, unread)
    }

    /// Gives up the slowest readers until there is room for `len` bytes. Gives up none if there is room already.
    pub(in crate::sse) fn give_up(&mut self, config: &Config, len: usize) {
        // Terminates: when no reader has unread entries, there is room.
        while !self.has_room(config, len) {
            self.ring.forget();
        }
    }
}

#[cfg(test)]
mod tests;
