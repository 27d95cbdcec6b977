//! Ring of the last encoded events of a hub, shared by all readers.
//!
//! Each entry has a number, counted from 0 by the hub. Readers keep the number of the entry they read next.
//!
//! Invariants:
//! 1. `entries` are the entries numbered `base..head()`, without a hole.
//! 2. `index` maps each given id to the number of the last entry with it; ids made of numbers need no index.
//! 3. `floor` is the id of the entry before `base`, not counting gaps, if it had a given one.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::buf::pool;
use crate::sse::event::{EventId, Gap, Part, Slot};

/// Maximum number of bytes merged into one frame. With the 9-byte frame header it fits one TLS record and one HTTP/2
/// DATA frame.
const MERGE_MAX: usize = (16 << 10) - 9;

/// Limits of the ring. It always has room for the newest event.
#[derive(Clone, Copy, Debug)]
pub(in crate::sse) struct Limits {
    pub(in crate::sse) count: usize,
    pub(in crate::sse) bytes: usize,
    pub(in crate::sse) age: Option<Duration>,
}

#[derive(Debug)]
pub(in crate::sse) enum Name {
    Given(Arc<str>),
    Numbered,
    /// None: the entry is not an event, but reports that a log has lost some.
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
    deflated: Slot,
    name: Name,
    at: Instant,
    /// Number of readers that read this entry next; counted only if senders wait for readers.
    readers: usize,
    /// Number of the last [`Ring::forget`] of those readers; 0 if there was none.
    forgotten: u64,
}

/// Position of a reader that reconnects with an id of a log.
#[derive(Debug)]
pub(in crate::sse) enum ResumePlace {
    At(u64, Option<Gap>),
    /// Before this id, which is the last before the oldest entry.
    Before(Arc<str>),
    /// The id has not arrived yet.
    Ahead,
}

#[derive(Debug)]
pub(in crate::sse) struct Ring {
    limits: Limits,
    /// Prefix of the ids that the hub assigns, so that ids of other hubs or earlier processes are recognised as
    /// foreign.
    epoch: u32,
    entries: VecDeque<Entry>,
    base: u64,
    bytes: usize,
    index: HashMap<Arc<str>, u64>,
    floor: Option<Arc<str>>,
    /// Whether the log has lost events between `floor` and `base`.
    lost: bool,
    /// The last merged events: most lagging readers are at the same position.
    merged: Option<(u64, u64, Bytes)>,
    /// If senders wait for readers: number of readers that have read everything.
    at_head: usize,
    /// Entries before this one have no readers. Updated by [`unread`](Self::unread).
    unread: u64,
    forgets: u64,
}

impl Ring {
    pub(in crate::sse) fn new(limits: Limits, epoch: u32) -> Self {
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

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(in crate::sse) fn head(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    pub(in crate::sse) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the number of the first entry of an empty ring.
    pub(super) fn start_at(&mut self, first: u64) {
        self.base = first;
    }

    pub(super) fn set_floor(&mut self, id: Option<Arc<str>>) {
        self.floor = id;
    }

    pub(super) fn numbered(&self, number: u64) -> EventId {
        EventId::numbered(self.epoch, number)
    }

    /// Returns the id of the event before the entry `number`. `None` if the ring does not know it.
    pub(super) fn id_before(&self, number: u64) -> Option<EventId> {
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let mut events = self.entries.range(..at).rev().filter(|entry| !matches!(entry.name, Name::Gap));
        let given = events.next().map_or(self.floor.as_ref(), |before| before.name.given());
        Some(match (given, number.checked_sub(1)) {
            (Some(id), _) => EventId::given(Arc::clone(id)),
            (None, Some(number)) => EventId::numbered(self.epoch, number),
            (None, None) => EventId::start(self.epoch),
        })
    }

    /// Returns the id behind which the next event follows.
    pub(super) fn newest(&self) -> EventId {
        self.id_before(self.head()).expect("internal: the ring ends there")
    }

    /// Returns the id of the entry `number` with its bytes and its age, if it is an event.
    pub(super) fn event(&self, number: u64) -> Option<(EventId, Bytes, Duration)> {
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let Entry { bytes, name, at, .. } = self.entries.get(at)?;
        (!matches!(name, Name::Gap)).then(|| (self.id(name, number), bytes.clone(), at.elapsed()))
    }

    /// Returns the id of the event `number` with this name.
    pub(super) fn id(&self, name: &Name, number: u64) -> EventId {
        name.given().map_or_else(|| self.numbered(number), |id| EventId::given(Arc::clone(id)))
    }

    /// Adds an event before all others. The ring begins at a number above 0.
    pub(super) fn push_front(&mut self, id: Arc<str>, bytes: Bytes, at: Instant) {
        self.base -= 1;
        self.bytes += bytes.len();
        self.index.entry(Arc::clone(&id)).or_insert(self.base);
        let (deflated, name) = (Slot::default(), Name::Given(id));
        self.entries.push_front(Entry { bytes, deflated, name, at, readers: 0, forgotten: 0 });
    }

    /// Adds an entry, and drops entries beyond the limits, but none from `keep` on.
    pub(in crate::sse) fn push(&mut self, bytes: Bytes, name: Name, at: Instant, keep: u64) {
        if let Name::Given(id) = &name {
            self.index.insert(Arc::clone(id), self.head());
        }
        self.bytes += bytes.len();
        let readers = std::mem::take(&mut self.at_head);
        self.entries.push_back(Entry { bytes, deflated: Slot::default(), name, at, readers, forgotten: 0 });
        self.evict(at, keep);
    }

    /// Drops entries beyond the limits, but none from `keep` on and not the newest.
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

    /// Returns the entry that follows `id`, and the gap before it.
    pub(in crate::sse) fn place(&self, id: &str) -> (u64, Option<Gap>) {
        if let Some(number) = self.index.get(id) {
            return (number + 1, None);
        }
        if self.floor.as_deref() == Some(id) {
            return (self.base, None);
        }
        match EventId::next_of(self.epoch, id) {
            Some(next) if next <= self.head() => {
                let missed = self.base.saturating_sub(next);
                (self.base.max(next), (missed > 0).then(|| Gap::expired(Some(missed))))
            }
            _ => (self.base, Some(Gap::expired(None))),
        }
    }

    /// Does the same if a log assigns the ids, in this `order`.
    pub(super) fn place_by(&self, order: impl Fn(&str, &str) -> Option<Ordering>, id: &str) -> ResumePlace {
        let unknown = ResumePlace::At(self.base, Some(Gap::expired(None)));
        let oldest = ResumePlace::At(self.base, self.lost.then(|| Gap::lost(None)));
        // The log does not know this id. Nothing that the hub has had is gone if the first entry is there.
        if self.base == 0 && EventId::next_of(self.epoch, id) == Some(0) {
            return oldest;
        }
        match self.floor.as_ref().map(|floor| (order(id, floor), floor)) {
            Some((None, _)) => return unknown,
            Some((Some(Ordering::Less), floor)) => return ResumePlace::Before(Arc::clone(floor)),
            Some((Some(Ordering::Equal), _)) => return oldest,
            Some((Some(Ordering::Greater), _)) | None => {}
        }
        // A gap belongs to the entry before it.
        let order_in = |entries: Range<usize>| {
            let mut ids = self.entries.range(entries).rev().filter_map(|entry| entry.name.given());
            ids.next().map(|other| order(id, other))
        };
        let (mut from, mut to) = (0, self.entries.len());
        while from < to {
            let middle = from + (to - from) / 2;
            match order_in(0..middle + 1) {
                Some(Some(Ordering::Less)) => to = middle,
                _ => from = middle + 1,
            }
        }
        // All entries before `from` are older than `id`, or have it.
        let here = match order_in(0..from) {
            Some(None) => return unknown,
            Some(Some(Ordering::Equal)) => true,
            _ if from == self.entries.len() => return ResumePlace::Ahead,
            // Nothing was before the first entry, so the id is gone.
            None if self.floor.is_none() => return unknown,
            _ => false,
        };
        let gaps = self.entries.range(..from).rev().take_while(|entry| entry.name.given().is_none()).count();
        let next = self.base + (from - gaps) as u64;
        if self.lost && from == gaps {
            return oldest;
        }
        // If another hub had the event with this id and this hub lost it, the loss is reported here, unless a gap entry
        // reports it.
        ResumePlace::At(next, (!here && gaps == 0).then(|| Gap::expired(None)))
    }

    /// Returns the number after the last entry of the frame that begins at `from`.
    fn frame_end(&self, from: u64) -> u64 {
        if let Some((_, end, _)) = self.merged_from(from) {
            return *end;
        }
        let mut total = 0;
        let fitting = self.entries.range((from - self.base) as usize..).take_while(|entry| {
            total += entry.bytes.len();
            total <= MERGE_MAX
        });
        from + fitting.count().max(1) as u64
    }

    /// Returns the merged events from the entry `from` on, if no further event fits the frame now. So the result of a
    /// read does not depend on when other readers have read.
    fn merged_from(&self, from: u64) -> Option<&(u64, u64, Bytes)> {
        let merged = self.merged.as_ref().filter(|(start, ..)| *start == from)?;
        let next = self.entries.get((merged.1 - self.base) as usize);
        next.is_none_or(|next| merged.2.len() + next.bytes.len() > MERGE_MAX).then_some(merged)
    }

    /// Returns the events of one frame from the entry `from` on, one by one.
    pub(in crate::sse) fn parts(&mut self, from: u64) -> Vec<Part> {
        let (first, to) = ((from - self.base) as usize, (self.frame_end(from) - self.base) as usize);
        self.entries.range_mut(first..to).map(|entry| entry.deflated.part(&entry.bytes)).collect()
    }

    /// Returns the events from the entry `from` on as one frame, and the number after them.
    pub(in crate::sse) fn frame(&mut self, from: u64) -> (Bytes, u64) {
        let first = (from - self.base) as usize;
        let to = self.frame_end(from);
        if to == from + 1 {
            return (self.entries[first].bytes.clone(), to);
        }
        if let Some((_, _, frame)) = self.merged_from(from) {
            return (frame.clone(), to);
        }
        let parts = || self.entries.range(first..first + (to - from) as usize).map(|entry| &entry.bytes);
        let mut merged = pool::lease(parts().map(Bytes::len).sum());
        parts().for_each(|part| merged.extend_from_slice(part));
        let merged = merged.freeze();
        self.merged = Some((from, to, merged.clone()));
        (merged, to)
    }

    /// If senders wait for readers: moves a reader from one entry to another. `from` is `None` when it joins, `to` is
    /// `None` when it leaves.
    pub(super) fn move_reader(&mut self, from: Option<u64>, to: Option<u64>) {
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

    pub(super) fn unread(&mut self) -> u64 {
        self.unread = self.unread.max(self.base);
        while self.unread < self.head() && self.readers(self.unread) == Some(&mut 0) {
            self.unread += 1;
        }
        self.unread
    }

    pub(in crate::sse) fn fits(&self, len: usize, keep: u64) -> bool {
        let kept = self.entries.range((keep.max(self.base) - self.base) as usize..);
        kept.len() == 0 || kept.map(|entry| entry.bytes.len()).sum::<usize>() + len <= self.limits.bytes
    }

    /// Stops counting the readers of the oldest unread entry. Readers that have read everything always count.
    pub(super) fn forget(&mut self) {
        let at = (self.unread() - self.base) as usize;
        self.forgets += 1;
        if let Some(entry) = self.entries.get_mut(at) {
            (entry.readers, entry.forgotten) = (0, self.forgets);
        }
    }

    pub(super) fn forgets(&self) -> u64 {
        self.forgets
    }

    /// Returns whether `forget` dropped a reader that reads `next` next and joined after `forgets` such calls.
    pub(super) fn has_forgotten(&self, next: u64, forgets: u64) -> bool {
        let at = next.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.entries.get(at)).is_some_and(|entry| entry.forgotten > forgets)
    }

    fn readers(&mut self, number: u64) -> Option<&mut usize> {
        if number == self.head() {
            return Some(&mut self.at_head);
        }
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.entries.get_mut(at).map(|entry| &mut entry.readers)
    }
}
