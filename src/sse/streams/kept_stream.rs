//! One stream: its events, its readers, and its end.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::builder::StreamsBuilder;
use super::end::StreamEnd;
use super::error::StreamError;
use super::store::Store;
use crate::counters::{Counter, Gauge, Present, count};
use crate::sse::SendError;
use crate::sse::body::SeatState;
use crate::sse::event::{Event, EventId, Gap, finish};
use crate::sse::lock::lock;
use crate::sse::ring::{HubShared, Keeper};

/// Shortest time between two checks of a stream.
const PAUSE: Duration = Duration::from_millis(250);

/// Length of the longest id: prefix, hyphen and number.
const ID_LEN: usize = 8 + 1 + 20;

/// Options and counts that all streams of a [`Streams`](super::Streams) share.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) options: StreamsBuilder,
    /// Number of streams that have not ended.
    pub(super) running: AtomicUsize,
}

/// A stream.
pub(super) struct KeptStream {
    setup: Arc<Setup>,
    /// Its name in the table.
    pub(super) name: Arc<[u8]>,
    /// Prefix of its ids, so that ids of an earlier stream with this key are recognised as foreign.
    epoch: u32,
    started: Instant,
    /// Notified at the end.
    ended: Notify,
    state: Mutex<StreamState>,
    _present: Present,
}

struct StreamState {
    store: Store,
    /// While there are readers.
    hub: Option<Arc<HubShared>>,
    /// Since when there are no readers, if there are none.
    unread: Instant,
    end: Option<(StreamEnd, Instant)>,
    producer: Option<AbortHandle>,
}

/// Work at the end of a stream, done without its lock.
struct Ended {
    end: StreamEnd,
    hub: Option<Arc<HubShared>>,
    producer: Option<AbortHandle>,
}

impl KeptStream {
    pub(super) fn new(setup: &Arc<Setup>, name: Arc<[u8]>) -> Self {
        setup.running.fetch_add(1, Ordering::AcqRel);
        count(Counter::StreamsStarted, 1);
        let now = Instant::now();
        let state = StreamState { store: Store::default(), hub: None, unread: now, end: None, producer: None };
        Self {
            setup: Arc::clone(setup),
            name,
            // The keys of the hasher differ between calls.
            epoch: RandomState::new().hash_one(0) as u32,
            started: now,
            ended: Notify::new(),
            state: Mutex::new(state),
            _present: Present::in_(Gauge::KeptStreams),
        }
    }

    pub(super) fn options(&self) -> &StreamsBuilder {
        &self.setup.options
    }

    /// Sets the task that is aborted when the stream ends.
    pub(super) fn set_producer(&self, producer: AbortHandle) {
        let mut state = lock(&self.state);
        if state.end.is_none() {
            state.producer = Some(producer);
            return;
        }
        drop(state);
        producer.abort();
    }

    pub(super) fn send(&self, event: &Event) -> Result<EventId, SendError> {
        event.check()?;
        if event.parts().id.is_some() {
            return Err(SendError::IdNotOurs);
        }
        let text = event.encode(ID_LEN);
        let mut state = lock(&self.state);
        if state.end.is_some() {
            return Err(SendError::Closed);
        }
        let options = self.options();
        let id = EventId::numbered(self.epoch, state.store.next());
        let text = with_id(text, &id);
        if state.store.next() >= options.events || state.store.bytes() + text.len() > options.bytes {
            let ended = self.close(&mut state, StreamEnd::TooLarge);
            drop(state);
            self.announce(ended);
            return Err(SendError::TooLarge);
        }
        let hub = state.push(text);
        drop(state);
        count(Counter::EventsSent, 1);
        if let Some(hub) = hub {
            hub.groups.wake();
        }
        Ok(id)
    }

    /// Ends the stream, unless it has ended. Returns whether it had not.
    pub(super) fn finish(&self, end: StreamEnd) -> bool {
        let mut state = lock(&self.state);
        if state.end.is_some() {
            return false;
        }
        let ended = self.close(&mut state, end);
        drop(state);
        self.announce(ended);
        true
    }

    fn close(&self, state: &mut StreamState, end: StreamEnd) -> Ended {
        if let Some(event) = end.event() {
            let id = EventId::numbered(self.epoch, state.store.next());
            state.push(with_id(event.encode(ID_LEN), &id));
        }
        state.store.finish();
        state.end = Some((end, Instant::now()));
        if let Some(hub) = &state.hub {
            hub.finish();
        }
        Ended { end, hub: state.hub.clone(), producer: state.producer.take() }
    }

    fn announce(&self, ended: Ended) {
        self.setup.running.fetch_sub(1, Ordering::AcqRel);
        count(ended.end.counter(), 1);
        if let Some(producer) = ended.producer {
            producer.abort();
        }
        if let Some(hub) = ended.hub {
            hub.groups.wake();
        }
        self.ended.notify_waiters();
    }

    pub(super) fn end(&self) -> Option<StreamEnd> {
        lock(&self.state).end.map(|(end, _)| end)
    }

    /// Waits for the end. Cancel safe.
    pub(super) async fn ended(&self) -> StreamEnd {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // Registered before the check, so that no notification is missed.
            ended.as_mut().enable();
            if let Some(end) = self.end() {
                return end;
            }
            ended.await;
        }
    }

    /// Returns when to check a new stream.
    pub(super) fn first_check(&self) -> Instant {
        let options = self.options();
        self.started + options.grace.min(options.age).min(options.ttl.max(PAUSE))
    }

    /// Ends the stream if it is time to. Returns when to check it again; `None` if it is to be forgotten.
    pub(super) fn check(&self, now: Instant) -> Option<Instant> {
        let options = self.options();
        let mut state = lock(&self.state);
        if let Some((_, at)) = state.end {
            return Some(at + options.ttl).filter(|&at| at > now);
        }
        let (expires, abandoned) = (self.started + options.age, state.unread + options.grace);
        let is_read = state.hub.is_some();
        let end = match () {
            () if now >= expires => StreamEnd::Expired,
            () if now >= abandoned && !is_read => StreamEnd::Abandoned,
            () => {
                // Checked again so soon that a reader which leaves, or an end, does not move the next check forward.
                let unread = if is_read { now + options.grace.max(PAUSE) } else { abandoned };
                return Some(unread.min(expires).min(now + options.ttl.max(PAUSE)));
            }
        };
        let ended = self.close(&mut state, end);
        drop(state);
        self.announce(ended);
        Some(now + options.ttl)
    }

    /// Fails if the stream has ended, and a reader behind the event with the id `last` has all events.
    pub(super) fn check_news(&self, last: Option<&str>) -> Result<(), StreamError> {
        lock(&self.state).place(self.epoch, last).map(drop)
    }

    /// Adds a reader behind the event with the id `last`, or at the first one.
    pub(super) fn seat(self: &Arc<Self>, last: Option<&str>, gzip: bool) -> Result<SeatState, StreamError> {
        let mut state = lock(&self.state);
        let (head, (next, gap)) = (state.store.next(), state.place(self.epoch, last)?);
        let hub = match &state.hub {
            Some(hub) => Arc::clone(hub),
            None => {
                let keeper = Arc::clone(self);
                let hub = HubShared::kept(self.options().hub.clone(), head, keeper);
                if state.end.is_some() {
                    hub.finish();
                }
                Arc::new(hub)
            }
        };
        let permit = hub.enter().map_err(|_| StreamError::TooManyReaders)?;
        let deflater = hub.deflater.as_ref().filter(|_| gzip);
        let seat = SeatState::at(permit, hub.begin_at(next, gap), deflater);
        // Removed when the last permit is dropped, which waits for the lock.
        state.hub = Some(hub);
        Ok(seat)
    }
}

impl StreamState {
    /// Returns the number of the first event behind the id `last`, and the gap before it.
    fn place(&self, epoch: u32, last: Option<&str>) -> Result<(u64, Option<Gap>), StreamError> {
        let head = self.store.next();
        let place = match last.map(|id| EventId::number_of(epoch, id)) {
            None => (0, None),
            Some(Some(number)) if number < head => (number + 1, None),
            Some(_) => (0, Some(Gap::expired(None))),
        };
        match self.end {
            Some(_) if place.0 >= head => Err(StreamError::Ended),
            _ => Ok(place),
        }
    }

    /// Adds an event. Returns the hub whose readers are to be woken.
    fn push(&mut self, event: Vec<u8>) -> Option<Arc<HubShared>> {
        self.store.push(&event);
        let hub = self.hub.clone()?;
        hub.push_kept(event.into());
        Some(hub)
    }
}

impl Keeper for KeptStream {
    fn page(&self, from: u64) -> Option<(Bytes, u64)> {
        lock(&self.state).store.page(from)
    }

    fn emptied(&self) {
        let mut state = lock(&self.state);
        // A reader enters under the lock.
        if state.hub.as_ref().is_some_and(|hub| !hub.is_read()) {
            state.hub = None;
            state.unread = Instant::now();
        }
    }
}

fn with_id(mut text: Vec<u8>, id: &EventId) -> Vec<u8> {
    finish(&mut text, id);
    text
}

/// Does not print the key, which has the owner.
impl fmt::Debug for KeptStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("KeptStream")
            .field("events", &state.store.next())
            .field("bytes", &state.store.bytes())
            .field("is_read", &state.hub.is_some())
            .field("end", &state.end.map(|(end, _)| end))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
