//! One stream: its events, its readers, and its end.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millstream::internal::kept::{self, Keeper, KeptHub, KeptReader};
use millstream::internal::{Counter, Gauge, Present, count};
use millstream::sse::{Event, EventId, SendError};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::builder::StreamsBuilder;
use crate::end::StreamEnd;
use crate::error::StreamError;
use crate::lock::lock;
use crate::store::Store;

/// Shortest time between two checks of a stream.
const PAUSE: Duration = Duration::from_millis(250);

/// Options and counts that all streams of a [`Streams`](crate::Streams) share.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) options: StreamsBuilder,
    /// Number of streams that have not ended.
    pub(crate) running: AtomicUsize,
}

/// A stream.
pub(crate) struct KeptStream {
    setup: Arc<Setup>,
    /// Its name in the table.
    pub(crate) name: Arc<[u8]>,
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
    hub: Option<KeptHub>,
    /// Since when there are no readers, if there are none.
    unread: Instant,
    end: Option<(StreamEnd, Instant)>,
    producer: Option<AbortHandle>,
}

/// Work at the end of a stream, done without its lock.
struct Ended {
    end: StreamEnd,
    hub: Option<KeptHub>,
    producer: Option<AbortHandle>,
}

impl KeptStream {
    pub(crate) fn new(setup: &Arc<Setup>, name: Arc<[u8]>) -> Self {
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

    pub(crate) fn options(&self) -> &StreamsBuilder {
        &self.setup.options
    }

    /// Sets the task that is aborted when the stream ends.
    pub(crate) fn set_producer(&self, producer: AbortHandle) {
        let mut state = lock(&self.state);
        if state.end.is_none() {
            state.producer = Some(producer);
            return;
        }
        drop(state);
        producer.abort();
    }

    pub(crate) fn send(&self, event: &Event) -> Result<EventId, SendError> {
        let text = kept::encode(event)?;
        let mut state = lock(&self.state);
        if state.end.is_some() {
            return Err(SendError::Closed);
        }
        let options = self.options();
        let id = kept::id_of(self.epoch, state.store.next());
        let text = kept::with_id(text, &id);
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
            hub.wake();
        }
        Ok(id)
    }

    /// Ends the stream, unless it has ended. Returns whether it had not.
    pub(crate) fn finish(&self, end: StreamEnd) -> bool {
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
        if let Some(text) = end.event().and_then(|event| kept::encode(&event).ok()) {
            let id = kept::id_of(self.epoch, state.store.next());
            state.push(kept::with_id(text, &id));
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
            hub.wake();
        }
        self.ended.notify_waiters();
    }

    pub(crate) fn end(&self) -> Option<StreamEnd> {
        lock(&self.state).end.map(|(end, _)| end)
    }

    /// Waits for the end. Cancel safe.
    pub(crate) async fn ended(&self) -> StreamEnd {
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
    pub(crate) fn first_check(&self) -> Instant {
        let options = self.options();
        self.started + options.grace.min(options.age).min(options.ttl.max(PAUSE))
    }

    /// Ends the stream if it is time to. Returns when to check it again; `None` if it is to be forgotten.
    pub(crate) fn check(&self, now: Instant) -> Option<Instant> {
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
    pub(crate) fn check_news(&self, last: Option<&str>) -> Result<(), StreamError> {
        lock(&self.state).place(self.epoch, last).map(drop)
    }

    /// Adds a reader behind the event with the id `last`, or at the first one.
    pub(crate) fn seat(self: &Arc<Self>, last: Option<&str>, gzip: bool) -> Result<KeptReader, StreamError> {
        let mut state = lock(&self.state);
        let (head, (next, has_expired)) = (state.store.next(), state.place(self.epoch, last)?);
        let hub = match &state.hub {
            Some(hub) => hub.clone(),
            None => {
                let hub = KeptHub::new(&self.options().hub, head, Arc::clone(self) as _);
                if state.end.is_some() {
                    hub.finish();
                }
                hub
            }
        };
        let reader = hub.enter(next, has_expired, gzip).map_err(|_| StreamError::TooManyReaders)?;
        // Removed when the last reader is dropped, which waits for the lock.
        state.hub = Some(hub);
        Ok(reader)
    }
}

impl StreamState {
    /// Returns the number of the first event behind the id `last`, and whether the id is not of this stream.
    fn place(&self, epoch: u32, last: Option<&str>) -> Result<(u64, bool), StreamError> {
        let head = self.store.next();
        let place = match last.map(|id| kept::number_of(epoch, id)) {
            None => (0, false),
            Some(Some(number)) if number < head => (number + 1, false),
            Some(_) => (0, true),
        };
        match self.end {
            Some(_) if place.0 >= head => Err(StreamError::Ended),
            _ => Ok(place),
        }
    }

    /// Adds an event. Returns the hub whose readers are to be woken.
    fn push(&mut self, event: Vec<u8>) -> Option<KeptHub> {
        self.store.push(&event);
        let hub = self.hub.clone()?;
        hub.push(event.into());
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
