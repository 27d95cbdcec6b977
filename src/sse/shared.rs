//! State shared by the handles of a hub, its readers and its log.
//!
//! Invariants:
//! 1. The ring changes only under the lock of `state`; `head` is updated before the lock is released, and readers are
//!    woken after.
//! 2. Under a lock no waker is called, and of a log only `order`.
//! 3. A subscriber counts in `seats` from its admission until its [`Permit`] drops.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::builder::LagPolicy;
use super::error::{SendError, SubscribeError};
use super::event::{Event, check_id, finish};
use super::event_id::EventId;
use super::gap::Gap;
use super::ring::{Limits, Name, Place, Ring};
use super::state::{Cursor, Read, State};
use super::stats::HubStats;
use super::wait_list::{Group, Member};
use crate::counters::{Counter, count};
use crate::sse::log::Log;

#[derive(Debug)]
pub(super) struct Config {
    pub(super) limits: Limits,
    pub(super) queue: u64,
    pub(super) slow: LagPolicy,
    pub(super) patience: Duration,
    pub(super) keep_alive: Option<Duration>,
    pub(super) subscribers: usize,
    pub(super) retry: Duration,
}

#[derive(Debug)]
pub(in crate::sse) struct Shared {
    pub(super) config: Config,
    pub(super) log: Option<Arc<dyn Log>>,
    state: Mutex<State>,
    head: AtomicU64,
    /// Whether the floor of the ring is known: with a log, after it has started. Changes under the lock.
    started: AtomicBool,
    closed: AtomicBool,
    closing: watch::Sender<bool>,
    /// Groups to wake. They are woken without the lock, because a waker may poll a reader that joins.
    groups: RwLock<Arc<Vec<Arc<Group>>>>,
    seats: AtomicUsize,
    /// Notified, if senders wait for readers, when a reader may have advanced.
    room: Notify,
}

#[derive(Debug)]
pub(super) enum Begin {
    Ring(Cursor, Option<Gap>),
    /// With the events that only the log has, up to and including this id.
    Log(Arc<str>),
    /// When the log has started, or has delivered the id that the reader received elsewhere.
    Later,
}

impl Shared {
    pub(super) fn new(config: Config, log: Option<Arc<dyn Log>>) -> Self {
        // The hasher keys are random for each process and differ between calls.
        let epoch = RandomState::new().hash_one(0) as u32;
        let ring = Ring::new(config.limits, epoch);
        let started = AtomicBool::new(log.is_none());
        let state = State { ring, stats: HubStats::default(), last_gap: None };
        Self {
            config,
            log,
            state: Mutex::new(state),
            head: AtomicU64::new(0),
            started,
            closed: AtomicBool::new(false),
            closing: watch::Sender::new(false),
            groups: RwLock::default(),
            seats: AtomicUsize::new(0),
            room: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Code under the lock panics only on a bug of this crate.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    pub(super) fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn has_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    fn waits_for_readers(&self) -> bool {
        self.config.slow == LagPolicy::Block
    }

    /// Wakes all waiting readers.
    pub(super) fn wake(&self) {
        let groups = Arc::clone(&self.groups.read().unwrap_or_else(PoisonError::into_inner));
        groups.iter().for_each(|group| group.wake());
    }

    pub(super) fn send(&self, event: Event) -> Result<EventId, SendError> {
        event.check()?;
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        if let Some(log) = &self.log {
            if event.parts().id.is_some() {
                return Err(SendError::IdNotOurs);
            }
            log.append(event)?;
            self.state().stats.sent += 1;
            count(Counter::EventsSent, 1);
            return Ok(EventId::by_log());
        }
        let id: Option<Arc<str>> = event.parts().id.map(Arc::from);
        let mut text = event.encode(id.as_ref().map_or(0, |id| id.len()));
        let sent = {
            let mut state = self.state();
            if self.waits_for_readers() && !state.has_room(&self.config, text.len()) {
                return Err(SendError::Full);
            }
            let sent = match &id {
                Some(id) => EventId::given(Arc::clone(id)),
                None => state.ring.sent(),
            };
            finish(&mut text, &sent);
            state.stats.sent += 1;
            self.push(&mut state, text.into(), id.map_or(Name::Numbered, Name::Given));
            sent
        };
        count(Counter::EventsSent, 1);
        self.wake();
        Ok(sent)
    }

    /// Returns the first entry that the ring has to keep beyond its limits.
    fn keep(&self, state: &mut State) -> u64 {
        if self.waits_for_readers() { state.ring.unread() } else { u64::MAX }
    }

    fn push(&self, state: &mut State, bytes: Bytes, name: Name) {
        let keep = self.keep(state);
        state.ring.push(bytes, name, Instant::now(), keep);
        self.head.store(state.ring.head(), Ordering::Release);
    }

    pub(super) async fn send_wait(&self, event: Event) -> Result<EventId, SendError> {
        let mut deadline = None;
        loop {
            let mut room = std::pin::pin!(self.room.notified());
            // Registered before the check, so that no notification is missed.
            room.as_mut().enable();
            match self.send(event.clone()) {
                Err(SendError::Full) if self.log.is_none() => {}
                done => return done,
            }
            let until = *deadline.get_or_insert_with(|| Instant::now() + self.config.patience);
            if tokio::time::timeout_at(until, room).await.is_err() {
                let len = event.encode(0).len();
                self.state().give_up(&self.config, len);
                self.wake();
                // There may be room for other senders too.
                self.room.notify_waiters();
                // If another sender takes the room, the wait for the remaining readers starts again.
                deadline = None;
            }
        }
    }

    pub(in crate::sse) fn deliver(&self, id: &str, event: &Event) -> Result<(), SendError> {
        event.check_name()?;
        check_id(id).map_err(SendError::InvalidId)?;
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        let mut text = event.encode(id.len());
        finish(&mut text, &id);
        {
            let mut state = self.state();
            self.started.store(true, Ordering::Release);
            self.push(&mut state, text.into(), Name::Given(id.into()));
        }
        self.wake();
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
        self.wake();
    }

    pub(in crate::sse) fn gap(&self, missed: Option<u64>) {
        {
            let mut state = self.state();
            state.last_gap = Some(state.ring.head());
            self.push(&mut state, Gap::lost(missed).encode(), Name::Gap);
        }
        self.wake();
    }

    pub(super) fn enter(self: &Arc<Self>) -> Result<Permit, SubscribeError> {
        if self.is_closed() {
            return Err(SubscribeError::Closed);
        }
        let permit = |seats: usize| (seats < self.config.subscribers).then_some(seats + 1);
        match self.seats.fetch_update(Ordering::AcqRel, Ordering::Relaxed, permit) {
            Ok(_) => Ok(Permit(Arc::clone(self))),
            Err(_) => {
                self.state().stats.refused += 1;
                Err(SubscribeError::Full)
            }
        }
    }

    pub(super) fn begin(&self, last: Option<&str>) -> Begin {
        let mut state = self.state();
        let Some(last) = last else {
            let head = state.ring.head();
            return Begin::Ring(self.at(&mut state, head), None);
        };
        let keep = self.keep(&mut state);
        state.ring.evict(Instant::now(), keep);
        let place = match &self.log {
            None => state.ring.place(last),
            Some(_) if !self.has_started() => return Begin::Later,
            Some(log) => state.ring.place_by(&**log, last),
        };
        let (next, gap) = match place {
            Place::At(place) => (place, None),
            Place::Gone(place) => (place, Some(Gap::expired(None))),
            Place::Behind(missed) => (state.ring.base(), Some(Gap::expired(Some(missed)))),
            Place::Lost => (state.ring.base(), Some(Gap::lost(None))),
            Place::Unknown => (state.ring.base(), Some(Gap::expired(None))),
            Place::Before(floor) => return Begin::Log(floor),
            Place::Ahead => return Begin::Later,
        };
        state.stats.gaps += u64::from(gap.is_some());
        count(Counter::EventGaps, gap.is_some().into());
        Begin::Ring(self.at(&mut state, next), gap)
    }

    /// Returns the start of a reader at the oldest entry of the ring, after a gap.
    pub(super) fn begin_here(&self) -> Cursor {
        let mut state = self.state();
        state.stats.gaps += 1;
        count(Counter::EventGaps, 1);
        let base = state.ring.base();
        self.at(&mut state, base)
    }

    fn at(&self, state: &mut State, next: u64) -> Cursor {
        if self.waits_for_readers() {
            state.ring.moves(None, Some(next));
        }
        Cursor { next, catch_up: state.ring.head(), forgets: state.ring.forgets() }
    }

    pub(super) fn read(&self, cursor: &mut Cursor) -> Read {
        let waits = self.waits_for_readers();
        let (read, delivered, dropped) = {
            let mut state = self.state();
            let before = cursor.next;
            let counts = state.read(&self.config, cursor);
            if waits && before != cursor.next {
                state.ring.moves(Some(before), Some(cursor.next));
            }
            counts
        };
        if delivered > 0 {
            count(Counter::EventsDelivered, delivered);
        }
        if dropped > 0 {
            count(Counter::EventsDropped, dropped);
        }
        if waits {
            self.room.notify_waiters();
        }
        read
    }

    pub(super) fn leave(&self, cursor: &Cursor) {
        if self.waits_for_readers() {
            let mut state = self.state();
            if !state.has_given_up(cursor) {
                state.ring.moves(Some(cursor.next), None);
            }
            drop(state);
            self.room.notify_waiters();
        }
    }

    pub(super) fn replayed(&self, events: u64) {
        self.state().stats.delivered += events;
        count(Counter::EventsDelivered, events);
    }

    pub(super) fn told_gap(&self) {
        self.state().stats.gaps += 1;
        count(Counter::EventGaps, 1);
    }

    pub(super) fn bad_id(&self) {
        self.state().stats.bad_ids += 1;
        count(Counter::EventIdsRefused, 1);
    }

    pub(super) fn join(&self) -> Member {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        Group::join(&mut groups, self.config.keep_alive)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.closing.send_replace(true);
        self.room.notify_waiters();
        self.wake();
    }

    pub(super) fn stats(&self) -> HubStats {
        let state = self.state();
        let subscribers = self.seats.load(Ordering::Acquire);
        let length = (state.ring.head() - state.ring.base()) as usize;
        HubStats { subscribers, ring_events: length, ring_bytes: state.ring.bytes(), ..state.stats }
    }
}

#[derive(Debug)]
pub(super) struct Permit(pub(super) Arc<Shared>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.seats.fetch_sub(1, Ordering::AcqRel);
    }
}
