//! State shared by the handles of a hub, its readers and the sink of its log.
//!
//! Invariants:
//! 1. The ring changes only under the lock of `state`; `head` is updated before the lock is released, and readers are
//!    woken after.
//! 2. While a lock is held, no waker is called, and no method of a log except `order`.
//! 3. A subscriber counts in `seats` from its admission until its [`Permit`](super::permit::Permit) drops.

use std::cmp;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::keeper::Keeper;
use super::ring::{Name, ResumePlace, Ring};
use super::state::{Config, Cursor, Found, HubState, LagPolicy, Read};
use crate::counters::{Counter, count};
use crate::sse::error::SendError;
use crate::sse::event::{Coder, Deflater, Event, EventId, Gap, Piece, check_id, finish};
use crate::sse::stats::HubStats;
use crate::sse::wake::{Frames, Groups};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, lock};

#[derive(Debug)]
pub(in crate::sse) struct HubShared {
    pub(in crate::sse) config: Config,
    pub(super) state: Mutex<HubState>,
    pub(super) head: AtomicU64,
    /// Whether the floor of the ring is known: with a log, after it has started. Changes under the lock.
    started: AtomicBool,
    closed: AtomicBool,
    /// Whether the hub leaves and refuses further events. Changes under the lock.
    pub(super) sealed: AtomicBool,
    /// Whether no further event follows, so that readers end behind the last one.
    pub(super) finished: AtomicBool,
    closing: watch::Sender<bool>,
    pub(in crate::sse) groups: Groups,
    pub(in crate::sse) deflater: Option<Arc<Deflater>>,
    pub(super) seats: AtomicUsize,
    /// Events that were delivered without the lock, which the statistics do not contain.
    delivered: AtomicU64,
    /// Whether a log assigns the ids and keeps the events.
    pub(in crate::sse) has_log: bool,
    /// Notified, if senders wait for readers, when a reader may have advanced; if there are followers, for each event.
    pub(super) room: Arc<Notify>,
    /// Keeps the events that the ring no longer has.
    pub(super) keeper: Option<Arc<dyn Keeper>>,
}

/// Start of a reader, and the gap before it.
pub(in crate::sse) type Start = (Cursor, Option<Gap>);

/// Start of a reader of a hub with a log.
#[derive(Debug)]
pub(in crate::sse) enum Begin {
    Ring(Start),
    /// At the events that only the log has, up to and including this id.
    Log(Arc<str>),
    /// Not yet: when the log has started, or has delivered the id that the reader got from another hub.
    Later,
}

impl HubShared {
    pub(in crate::sse) fn new(config: Config, started: bool) -> Self {
        // The hasher keys are random for each process and differ between calls.
        let epoch = RandomState::new().hash_one(0) as u32;
        let ring = Ring::new(config.limits, epoch);
        let state = HubState { ring, stats: HubStats::default(), last_gap: None, leaving: None, followers: 0 };
        let deflater = config.gzip.map(|level| Arc::new(Deflater::new(level)));
        Self {
            config,
            state: Mutex::new(state),
            head: AtomicU64::new(0),
            started: AtomicBool::new(started),
            closed: AtomicBool::new(false),
            sealed: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            closing: watch::Sender::new(false),
            groups: Groups::default(),
            deflater,
            seats: AtomicUsize::new(0),
            delivered: AtomicU64::new(0),
            has_log: !started,
            room: Arc::default(),
            keeper: None,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, HubState> {
        lock(&self.state)
    }

    pub(in crate::sse) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    pub(in crate::sse) fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    pub(in crate::sse) fn newest(&self) -> EventId {
        self.state().ring.newest()
    }

    pub(in crate::sse) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns whether readers end behind the last event.
    pub(in crate::sse) fn is_ending(&self) -> bool {
        self.is_closed() || self.finished.load(Ordering::Acquire)
    }

    pub(in crate::sse) fn has_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    fn waits_for_readers(&self) -> bool {
        self.config.slow == LagPolicy::Block
    }

    pub(in crate::sse) fn send(&self, event: Event) -> Result<EventId, SendError> {
        event.check()?;
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        let id: Option<Arc<str>> = event.parts().id.map(Arc::from);
        let mut text = event.encode(id.as_ref().map_or(0, |id| id.len()));
        let mut state = self.state();
        if self.is_sealed() {
            return Err(SendError::Closed);
        }
        if state.leaving.is_none() && self.waits_for_readers() && !state.has_room(&self.config, text.len()) {
            return Err(SendError::Full);
        }
        let sent = match &id {
            Some(id) => EventId::given(Arc::clone(id)),
            None => state.next_id(),
        };
        finish(&mut text, &sent);
        state.stats.sent += 1;
        self.push(&mut state, text.into(), id.map_or(Name::Numbered, Name::Given));
        count(Counter::EventsSent, 1);
        self.wake(state);
        Ok(sent)
    }

    /// Returns the first entry that the ring has to keep beyond its limits.
    fn first_kept(&self, state: &mut HubState) -> u64 {
        if self.waits_for_readers() { state.ring.unread() } else { u64::MAX }
    }

    /// Adds an entry. [`wake`](Self::wake) follows.
    pub(super) fn push(&self, state: &mut HubState, bytes: Bytes, name: Name) {
        match state.leaving.as_mut().filter(|_| !self.has_log) {
            Some(leaving) => leaving.late.push_back((bytes, name)),
            None => self.push_here(state, bytes, name),
        }
    }

    /// Wakes readers and followers after entries were added.
    pub(super) fn wake(&self, state: MutexGuard<'_, HubState>) {
        let is_followed = state.followers > 0;
        drop(state);
        if is_followed {
            self.room.notify_waiters();
        }
        self.groups.wake();
    }

    pub(super) fn push_here(&self, state: &mut HubState, bytes: Bytes, name: Name) {
        let keep = self.first_kept(state);
        state.ring.push(bytes, name, Instant::now(), keep);
        self.head.store(state.ring.head(), Ordering::Release);
    }

    pub(in crate::sse) async fn send_wait(&self, event: Event) -> Result<EventId, SendError> {
        let mut deadline = None;
        loop {
            let mut room = std::pin::pin!(self.room.notified());
            // Registered before the check, so that no notification is missed.
            room.as_mut().enable();
            match self.send(event.clone()) {
                Err(SendError::Full) => {}
                done => return done,
            }
            let until = *deadline.get_or_insert_with(|| Instant::now() + self.config.patience);
            if tokio::time::timeout_at(until, room).await.is_err() {
                let len = event.encode(0).len();
                self.state().give_up(&self.config, len);
                self.groups.wake();
                // There may be room for other senders too.
                self.room.notify_waiters();
                deadline = None; // If another sender takes the room, the wait for the other readers starts again.
            }
        }
    }

    pub(in crate::sse) fn deliver(&self, id: &str, event: &Event) -> Result<(), SendError> {
        event.check_name()?;
        check_id(id).map_err(SendError::InvalidId)?;
        let mut text = event.encode(id.len());
        finish(&mut text, &id);
        self.deliver_encoded(id, text.into())
    }

    pub(in crate::sse) fn deliver_encoded(&self, id: &str, event: Bytes) -> Result<(), SendError> {
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        let mut state = self.state();
        self.started.store(true, Ordering::Release);
        self.push(&mut state, event, Name::Given(id.into()));
        self.wake(state);
        Ok(())
    }

    pub(in crate::sse) fn start(&self, after: Option<&str>) {
        {
            let mut state = self.state();
            if self.started.swap(true, Ordering::AcqRel) {
                return;
            }
            state.ring.set_floor(after.map(Arc::from));
        }
        self.groups.wake();
    }

    pub(in crate::sse) fn gap(&self, missed: Option<u64>) {
        let mut state = self.state();
        state.last_gap = Some(state.ring.head());
        self.push(&mut state, Gap::lost(missed).encode(), Name::Gap);
        self.wake(state);
    }

    /// Returns the start of a reader behind the event with the id `last`, or at the next event.
    pub(in crate::sse) fn begin(&self, last: Option<&str>) -> Start {
        let mut state = self.state();
        let (next, gap) = match last {
            None => (state.ring.head(), None),
            Some(last) => {
                self.evict(&mut state);
                state.ring.place(last)
            }
        };
        self.at(&mut state, next, gap)
    }

    /// Like [`begin`](Self::begin), if a log assigns the ids, in this `order`.
    pub(in crate::sse) fn begin_by(&self, order: impl Fn(&str, &str) -> Option<cmp::Ordering>, last: &str) -> Begin {
        let mut state = self.state();
        self.evict(&mut state);
        if !self.has_started() {
            return Begin::Later;
        }
        match state.ring.place_by(order, last) {
            ResumePlace::At(next, gap) => Begin::Ring(self.at(&mut state, next, gap)),
            ResumePlace::Before(floor) => Begin::Log(floor),
            ResumePlace::Ahead => Begin::Later,
        }
    }

    /// Drops entries beyond the limits, unless another process is about to take them.
    pub(super) fn evict(&self, state: &mut HubState) {
        if state.leaving.is_some() {
            return;
        }
        let keep = self.first_kept(state);
        state.ring.evict(Instant::now(), keep);
    }

    /// Returns the start of a reader at the oldest entry of the ring, after a gap.
    pub(in crate::sse) fn begin_here(&self, gap: Gap) -> Start {
        let mut state = self.state();
        let base = state.ring.base();
        self.at(&mut state, base, Some(gap))
    }

    pub(super) fn at(&self, state: &mut HubState, next: u64, gap: Option<Gap>) -> Start {
        state.stats.gaps += u64::from(gap.is_some());
        count(Counter::EventGaps, gap.is_some().into());
        if self.waits_for_readers() {
            state.ring.move_reader(None, Some(next));
        }
        (Cursor { next, catch_up: state.ring.head(), forgets: state.ring.forgets() }, gap)
    }

    /// Returns the next events of a reader, in the form that `coder` makes.
    pub(in crate::sse) fn read(&self, cursor: &mut Cursor, coder: Coder<'_>) -> Read<Piece> {
        let read = self.read_silently(cursor, coder);
        if self.waits_for_readers() {
            self.room.notify_waiters();
        }
        read
    }

    /// As [`read`](Self::read), without a notification of the senders that wait for readers.
    fn read_silently(&self, cursor: &mut Cursor, coder: Coder<'_>) -> Read<Piece> {
        let from = cursor.next;
        let waits = self.waits_for_readers();
        let (read, delivered, dropped) = {
            let mut state = self.state();
            let before = cursor.next;
            let counts = state.read(&self.config, cursor, coder.form());
            if waits && before != cursor.next {
                state.ring.move_reader(Some(before), Some(cursor.next));
            }
            counts
        };
        if delivered > 0 {
            count(Counter::EventsDelivered, delivered);
        }
        if dropped > 0 {
            count(Counter::EventsDropped, dropped);
        }
        read.map(|found| match (found, coder) {
            (Found::Plain(frame), Coder::Framed(framed)) => Piece::plain(framed.shared((from, cursor.next), &frame)),
            (Found::Plain(frame), _) => Piece::plain(frame),
            (Found::Gzip(range, parts), Coder::Gzip(deflater)) => deflater.join(range, &parts),
            (Found::Gzip(..), _) => unreachable!("the form is gzip only with a deflater"),
        })
    }

    /// As [`read`](Self::read), for many readers: those of one form at one position find the frame in `frames`, unlocked.
    pub(in crate::sse) fn read_shared(&self, cursor: &mut Cursor, coder: Coder<'_>, frames: &mut Frames) -> Read<()> {
        let form = coder.form();
        let in_time = || self.head() - cursor.next <= self.config.queue && !self.waits_for_readers();
        if let Some(to) = frames.of(form).starting_at(cursor.next).filter(|_| in_time()) {
            self.delivered.fetch_add(to - cursor.next, Ordering::Relaxed);
            count(Counter::EventsDelivered, to - cursor.next);
            cursor.next = to;
            return Read::Events(());
        }
        let from = cursor.next;
        let read = self.read_silently(cursor, coder);
        if self.waits_for_readers() {
            frames.note_advance(&self.room);
        }
        read.map(|piece| frames.of(form).set(from, cursor.next, piece))
    }

    pub(in crate::sse) fn leave(&self, cursor: &Cursor) {
        if self.waits_for_readers() {
            let mut state = self.state();
            if !state.has_given_up(cursor) {
                state.ring.move_reader(Some(cursor.next), None);
            }
            drop(state);
            self.room.notify_waiters();
        }
    }

    pub(in crate::sse) fn appended(&self) {
        self.state().stats.sent += 1;
        count(Counter::EventsSent, 1);
    }

    pub(in crate::sse) fn replayed(&self, events: u64) {
        self.state().stats.delivered += events;
        count(Counter::EventsDelivered, events);
    }

    pub(in crate::sse) fn told_gap(&self) {
        self.state().stats.gaps += 1;
        count(Counter::EventGaps, 1);
    }

    pub(in crate::sse) fn bad_id(&self) {
        self.state().stats.bad_ids += 1;
        count(Counter::EventIdsRefused, 1);
    }

    pub(in crate::sse) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.closing.send_replace(true);
        self.room.notify_waiters();
        self.groups.wake();
    }

    pub(in crate::sse) fn stats(&self) -> HubStats {
        let direct = self.groups.sinks();
        let state = self.state();
        let subscribers = self.seats.load(Ordering::Acquire);
        let length = (state.ring.head() - state.ring.base()) as usize;
        let delivered = state.stats.delivered + self.delivered.load(Ordering::Relaxed);
        let compressed = self.deflater.as_ref().map_or(0, |deflater| deflater.events());
        let ring_bytes = state.ring.bytes();
        HubStats { subscribers, direct, delivered, compressed, ring_events: length, ring_bytes, ..state.stats }
    }
}
