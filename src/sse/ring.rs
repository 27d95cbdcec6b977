//! The last events of a hub, encoded, in order; the one copy that all readers share.
//!
//! Each entry has a number, counted from 0 by the hub. Readers keep the number of the one they read next.
//!
//! Invariants:
//! 1. `entries` are those numbered `base..head()`, without a hole.
//! 2. `index` has the number of the last entry with each id that was given; ids made of numbers need no index.
//! 3. `floor` is the id of the entry before `base`, gaps not counted, if it had one that was given.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::event_id::EventId;
use crate::buf::pool;
use crate::sse::log::Log;

/// Most bytes of events that are merged into one frame: with its head one HTTP/2 DATA frame for every peer, and one TLS
/// record.
const MERGE_MAX: usize = (16 << 10) - 9;

/// What bounds the ring. It always has room for the newest event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) count: usize,
    pub(super) bytes: usize,
    pub(super) age: Option<Duration>,
}

/// What an entry is known by.
#[derive(Debug)]
pub(super) enum Name {
    /// An id that was given.
    Given(Arc<str>),
    /// An id made of its number.
    Numbered,
    /// Nothing: it is no event, but says that a log has lost some.
    Gap,
}

impl Name {
    fn given(&self) -> Option<&Arc<str>> {
        if let Self::Given(id) = self { Some(id) } else { None }
    }
}

#[derive(Debug)]
struct Entry {
    bytes: Bytes,
    name: Name,
    at: Instant,
    /// How many readers read this one next; counted only where senders wait for them.
    readers: usize,
    /// The number of the last [`Ring::forget`] of those; 0 if there was none.
    forgotten: u64,
}

/// Where a reader goes on that comes back with an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// With the entry of this number.
    At(u64),
    /// With the oldest; this many are missing before it.
    Behind(u64),
    /// With the oldest; the log has lost some before it.
    Lost,
    /// It is not known here.
    Unknown,
    /// With a log: it is before this one, which is the last before the oldest entry.
    Before(Arc<str>),
    /// With a log: it has not come yet.
    Ahead,
    /// With a log: it never came, but the entry of this number did, which is behind it.
    Gone(u64),
}

#[derive(Debug)]
pub(super) struct Ring {
    limits: Limits,
    /// Leads the ids that the hub gives, so that those of another hub or an earlier process are known to be foreign.
    epoch: u32,
    entries: VecDeque<Entry>,
    base: u64,
    bytes: usize,
    index: HashMap<Arc<str>, u64>,
    floor: Option<Arc<str>>,
    /// Whether the log has lost some between `floor` and `base`.
    lost: bool,
    /// The events that were merged last: most readers that are behind are behind alike.
    merged: Option<(u64, u64, Bytes)>,
    /// Where senders wait for readers: how many have read everything.
    at_head: usize,
    /// Entries before this one have no readers; moves up only when it is asked for.
    unread: u64,
    /// How often readers were forgotten.
    forgets: u64,
}

impl Ring {
    pub(super) fn new(limits: Limits, epoch: u32) -> Self {
        Self {
            limits,
            epoch,
            entries: VecDeque::new(),
            base: 0,
            bytes: 0,
            index: HashMap::new(),
            floor: None,
            lost: false,
            merged: None,
            at_head: 0,
            unread: 0,
            forgets: 0,
        }
    }

    /// The number of the oldest entry.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The number that the next entry gets.
    pub(super) fn head(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Says what is before the first entry.
    pub(super) fn set_floor(&mut self, id: Option<Arc<str>>) {
        self.floor = id;
    }

    /// The next entry, if it is given no id.
    pub(super) fn sent(&self) -> EventId {
        EventId::numbered(self.epoch, self.head())
    }

    /// Adds an entry, and drops as many as the limits ask for, but none from `keep` on.
    pub(super) fn push(&mut self, bytes: Bytes, name: Name, at: Instant, keep: u64) {
        if let Name::Given(id) = &name {
            self.index.insert(Arc::clone(id), self.head());
        }
        self.bytes += bytes.len();
        let readers = std::mem::take(&mut self.at_head);
        self.entries.push_back(Entry { bytes, name, at, readers, forgotten: 0 });
        self.evict(at, keep);
    }

    /// Drops what the limits ask for, but nothing from `keep` on and not the newest.
    pub(super) fn evict(&mut self, now: Instant, keep: u64) {
        while self.base < keep
            && let Some(oldest) = self.entries.front()
        {
            let old = self.limits.age.is_some_and(|age| now.duration_since(oldest.at) > age);
            let over = self.entries.len() > self.limits.count || self.bytes > self.limits.bytes;
            let over = over && self.entries.len() > 1;
            if !old && !over {
                break;
            }
            let Some(Entry { bytes, name, .. }) = self.entries.pop_front() else { break };
            self.bytes -= bytes.len();
            match name {
                Name::Given(id) => {
                    if self.index.get(&id) == Some(&self.base) {
                        self.index.remove(&id);
                    }
                    (self.floor, self.lost) = (Some(id), false);
                }
                Name::Numbered => self.floor = None,
                Name::Gap => self.lost = true,
            }
            self.base += 1;
        }
        if self.merged.as_ref().is_some_and(|&(from, ..)| from < self.base) {
            self.merged = None;
        }
    }

    /// Where a reader goes on that has seen `id`.
    pub(super) fn place(&self, id: &str) -> Place {
        if let Some(number) = self.index.get(id) {
            return Place::At(number + 1);
        }
        if self.floor.as_deref() == Some(id) {
            return Place::At(self.base);
        }
        let number = id.split_once('-').and_then(|(epoch, number)| {
            // As they are written: neither `+1` nor `01` is one of ours.
            let number: u64 = number.parse().ok()?;
            (u32::from_str_radix(epoch, 16).ok()? == self.epoch
                && EventId::numbered(self.epoch, number).to_string() == id)
                .then_some(number)
        });
        match number {
            Some(number) if number >= self.head() => Place::Unknown,
            Some(number) if number + 1 < self.base => Place::Behind(self.base - number - 1),
            Some(number) => Place::At(number + 1),
            None => Place::Unknown,
        }
    }

    /// As [`place`](Self::place), where ids come in the order that `log` knows.
    pub(super) fn place_by(&self, log: &dyn Log, id: &str) -> Place {
        let oldest = if self.lost { Place::Lost } else { Place::At(self.base) };
        match self.floor.as_ref().map(|floor| (log.order(id, floor), floor)) {
            Some((None, _)) => return Place::Unknown,
            Some((Some(Ordering::Less), floor)) => return Place::Before(Arc::clone(floor)),
            Some((Some(Ordering::Equal), _)) => return oldest,
            Some((Some(Ordering::Greater), _)) | None => {}
        }
        // Gaps belong to what is before them.
        let order = |entries: Range<usize>| {
            let mut ids = self.entries.range(entries).rev().filter_map(|entry| entry.name.given());
            ids.next().map(|other| log.order(id, other))
        };
        let (mut from, mut to) = (0, self.entries.len());
        while from < to {
            let middle = from + (to - from) / 2;
            match order(0..middle + 1) {
                Some(Some(Ordering::Less)) => to = middle,
                _ => from = middle + 1,
            }
        }
        // All before `from` are older than `id`, or have it.
        let here = match order(0..from) {
            Some(None) => return Place::Unknown,
            Some(Some(Ordering::Equal)) => true,
            _ if from == self.entries.len() => return Place::Ahead,
            // Nothing was before the first, so whatever this is, it is gone.
            None if self.floor.is_none() => return Place::Unknown,
            _ => false,
        };
        let gaps = self.entries.range(..from).rev().take_while(|entry| entry.name.given().is_none()).count();
        let next = self.base + (from - gaps) as u64;
        match oldest {
            Place::Lost if from == gaps => Place::Lost,
            // Another hub had it, and this one has lost it, which has to be told if nothing is there that tells it.
            _ if !here && gaps == 0 => Place::Gone(next),
            _ => Place::At(next),
        }
    }

    /// The events from `from` on, as one frame, and the number behind it. `from` is an entry.
    pub(super) fn frame(&mut self, from: u64) -> (Bytes, u64) {
        let first = (from - self.base) as usize;
        let mut total = 0;
        let fitting = self.entries.range(first..).take_while(|entry| {
            total += entry.bytes.len();
            total <= MERGE_MAX
        });
        let to = from + fitting.count().max(1) as u64;
        if to == from + 1 {
            return (self.entries[first].bytes.clone(), to);
        }
        if let Some((start, end, frame)) = &self.merged
            && *start == from
        {
            return (frame.clone(), *end);
        }
        let parts = || self.entries.range(first..first + (to - from) as usize).map(|entry| &entry.bytes);
        let mut merged = pool::lease(parts().map(Bytes::len).sum());
        parts().for_each(|part| merged.extend_from_slice(part));
        let merged = merged.freeze();
        self.merged = Some((from, to, merged.clone()));
        (merged, to)
    }

    /// Where senders wait for readers: one reads `to` next instead of `from`; `None` is before it came, or after it left.
    pub(super) fn moves(&mut self, from: Option<u64>, to: Option<u64>) {
        if let Some(readers) = from.and_then(|from| self.readers(from)) {
            *readers = readers.saturating_sub(1);
        }
        if let Some(to) = to {
            self.unread = self.unread.min(to);
            if let Some(readers) = self.readers(to) {
                *readers += 1;
            }
        }
    }

    /// The oldest entry that somebody has still to read.
    pub(super) fn unread(&mut self) -> u64 {
        self.unread = self.unread.max(self.base);
        while self.unread < self.head() && self.readers(self.unread) == Some(&mut 0) {
            self.unread += 1;
        }
        self.unread
    }

    /// Whether an entry of `len` bytes fits after dropping what is not in `keep..`.
    pub(super) fn fits(&self, len: usize, keep: u64) -> bool {
        let kept = self.entries.range((keep.max(self.base) - self.base) as usize..);
        kept.len() == 0 || kept.map(|entry| entry.bytes.len()).sum::<usize>() + len <= self.limits.bytes
    }

    /// Has the readers of the oldest unread entry count no more. Those that have read everything always count.
    pub(super) fn forget(&mut self) {
        let at = (self.unread() - self.base) as usize;
        self.forgets += 1;
        if let Some(entry) = self.entries.get_mut(at) {
            (entry.readers, entry.forgotten) = (0, self.forgets);
        }
    }

    /// How often readers were forgotten so far.
    pub(super) fn forgets(&self) -> u64 {
        self.forgets
    }

    /// Whether a reader was forgotten that reads `next` next, and came after so many were. Those whose entry is gone are not
    /// told apart.
    pub(super) fn has_forgotten(&self, next: u64, forgets: u64) -> bool {
        let at = next.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.entries.get(at)).is_some_and(|entry| entry.forgotten > forgets)
    }

    /// How many read the entry of this number next.
    fn readers(&mut self, number: u64) -> Option<&mut usize> {
        if number == self.head() {
            return Some(&mut self.at_head);
        }
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.entries.get_mut(at).map(|entry| &mut entry.readers)
    }
}
