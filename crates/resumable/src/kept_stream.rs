//! One stream: its events, its readers, and its end.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
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
use crate::logged::Logged;
use crate::store::Store;
use crate::stream_log::StreamLog;

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
    pub(crate) epoch: u32,
    /// Notified at the end, when it is requested, and of what a log has.
    pub(crate) ended: Notify,
    state: Mutex<StreamState>,
    _present: Present,
}

pub(crate) struct StreamState {
    /// When the producer was started.
    pub(crate) started: Instant,
    pub(crate) store: Store,
    /// While there are readers.
    pub(crate) hub: Option<KeptHub>,
    /// Since when there are no readers, if there are none. After the end, the time of the end.
    pub(crate) since: Instant,
    pub(crate) end: Option<StreamEnd>,
    pub(crate) producer: Option<AbortHandle>,
    pub(crate) logged: Option<Box<Logged>>,
}

/// Work at the end of a stream, done without its lock.
pub(crate) struct Ended {
    /// How, if this instance has written the stream.
    counts: Option<StreamEnd>,
    hub: Option<KeptHub>,
    producer: Option<AbortHandle>,
    _log: Option<Arc<dyn StreamLog>>,
}

impl KeptStream {
    pub(crate) fn new(setup: &Arc<Setup>, name: Arc<[u8]>, log: Option<Arc<dyn StreamLog>>) -> Self {
        setup.running.fetch_add(1, Ordering::AcqRel);
        let now = Instant::now();
        // The keys of the hasher differ between calls.
        let epoch = log.as_ref().map_or_else(|| RandomState::new().hash_one(0) as u32, |log| log.epoch());
        let logged = log.map(|log| Box::new(Logged::new(log)));
        let (store, hub, end, producer) = (Store::default(), None, None, None);
        let state = StreamState { started: now, store, hub, since: now, end, producer, logged };
        Self {
            setup: Arc::clone(setup),
            name,
            epoch,
            ended: Notify::new(),
            state: Mutex::new(state),
            _present: Present::in_(Gauge::KeptStreams),
        }
    }

    pub(crate) fn options(&self) -> &StreamsBuilder {
        &self.setup.options
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, StreamState> {
        lock(&self.state)
    }

    /// Sets the task that is aborted when the stream ends.
    pub(crate) fn set_producer(&self, producer: AbortHandle) {
        let mut state = self.state();
        if !state.is_closed() {
            state.producer = Some(producer);
            return;
        }
        drop(state);
        producer.abort();
    }

    pub(crate) fn send(&self, event: &Event) -> Result<EventId, SendError> {
        let text = kept::encode(event)?;
        let mut state = self.state();
        if state.is_closed() {
            return Err(SendError::Closed);
        }
        let options = self.options();
        let (number, bytes) = state.sent();
        let id = kept::id_of(self.epoch, number);
        let text = kept::with_id(text, &id);
        if number >= options.events || bytes + text.len() > options.bytes {
            self.finish_with(state, StreamEnd::TooLarge);
            return Err(SendError::TooLarge);
        }
        if let Some(logged) = &mut state.logged {
            logged.queue(text.into());
            return Ok(id);
        }
        let hub = state.push(text);
        drop(state);
        count(Counter::EventsSent, 1);
        if let Some(hub) = hub {
            hub.wake();
        }
        Ok(id)
    }

    /// Ends the stream, unless it has ended. With a log, it ends when the log has its end. Returns whether it had not.
    pub(crate) fn finish(&self, end: StreamEnd) -> bool {
        let state = self.state();
        let is_open = !state.is_closed();
        if is_open {
            self.finish_with(state, end);
        }
        is_open
    }

    pub(crate) fn finish_with(&self, mut state: MutexGuard<'_, StreamState>, end: StreamEnd) {
        if let Some(logged) = &mut state.logged {
            logged.request(end);
            let producer = state.producer.take();
            drop(state);
            return self.cancel(producer);
        }
        let ended = self.close_with_event(&mut state, end);
        drop(state);
        self.announce(ended);
    }

    fn close_with_event(&self, state: &mut StreamState, end: StreamEnd) -> Ended {
        if let Some(event) = self.last_event(end, state.store.next()) {
            state.push(event);
        }
        self.close(state, end, Instant::now())
    }

    /// Returns the event that says how the stream has ended.
    pub(crate) fn last_event(&self, end: StreamEnd, number: u64) -> Option<Vec<u8>> {
        Some(kept::with_id(kept::encode(&end.event()?).ok()?, &kept::id_of(self.epoch, number)))
    }

    pub(crate) fn close(&self, state: &mut StreamState, end: StreamEnd, at: Instant) -> Ended {
        state.store.finish();
        (state.end, state.since) = (Some(end), at);
        if let Some(hub) = &state.hub {
            hub.finish();
        }
        let counts = Some(end).filter(|_| state.logged.as_ref().is_none_or(|logged| logged.token.is_some()));
        let log = state.logged.as_mut().and_then(|logged| logged.log.take());
        Ended { counts, hub: state.hub.clone(), producer: state.producer.take(), _log: log }
    }

    pub(crate) fn announce(&self, ended: Ended) {
        self.setup.running.fetch_sub(1, Ordering::AcqRel);
        if let Some(end) = ended.counts {
            count(end.counter(), 1);
        }
        if let Some(hub) = ended.hub {
            hub.wake();
        }
        self.cancel(ended.producer);
    }

    fn cancel(&self, producer: Option<AbortHandle>) {
        if let Some(producer) = producer {
            producer.abort();
        }
        self.ended.notify_waiters();
    }

    pub(crate) fn end(&self) -> Option<StreamEnd> {
        self.state().end
    }

    /// Returns whether the producer is cancelled.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed()
    }

    /// Waits for the end. Cancel safe.
    pub(crate) async fn ended(&self) -> StreamEnd {
        self.notified(|| self.end()).await
    }

    /// Waits until the producer is cancelled. Cancel safe.
    pub(crate) async fn closed(&self) {
        self.notified(|| self.is_closed().then_some(())).await;
    }

    pub(crate) async fn notified<T>(&self, ready: impl Fn() -> Option<T>) -> T {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // Registered before the check, so that no notification is missed.
            ended.as_mut().enable();
            if let Some(ready) = ready() {
                return ready;
            }
            ended.await;
        }
    }

    /// Returns when to check a new stream.
    pub(crate) fn first_check(&self) -> Instant {
        let options = self.options();
        let state = self.state();
        match state.end {
            Some(_) => state.since + options.ttl,
            None => state.started + options.grace.min(options.age).min(options.ttl.max(PAUSE)),
        }
    }

    /// Ends the stream if it is time to. Returns when to check it again; `None` if it is to be forgotten.
    pub(crate) fn check(&self, now: Instant) -> Option<Instant> {
        let options = self.options();
        let mut state = self.state();
        if state.end.is_some() {
            return Some(state.since + options.ttl).filter(|&at| at > now && !state.is_lost());
        }
        if state.logged.is_some() {
            // The task of the log ends it.
            return Some(now + options.ttl.max(PAUSE));
        }
        let Some(end) = self.due(&state, now) else {
            // Not later than the stream can be due, if its reader leaves or it ends from now on.
            let unread = if state.hub.is_some() { now + options.grace.max(PAUSE) } else { state.since + options.grace };
            return Some(unread.min(state.started + options.age).min(now + options.ttl.max(PAUSE)));
        };
        let ended = self.close_with_event(&mut state, end);
        drop(state);
        self.announce(ended);
        Some(now + options.ttl)
    }

    /// Returns the end of a stream that is too old, or was without readers for too long.
    pub(crate) fn due(&self, state: &StreamState, now: Instant) -> Option<StreamEnd> {
        let options = self.options();
        match () {
            () if now >= state.started + options.age => Some(StreamEnd::Expired),
            () if now >= state.since + options.grace && state.hub.is_none() => Some(StreamEnd::Abandoned),
            () => None,
        }
    }

    /// Fails if the stream has ended, and a reader behind the event with the id `last` has all events.
    pub(crate) fn check_news(&self, last: Option<&str>) -> Result<(), StreamError> {
        self.state().place(self.epoch, last).map(drop)
    }

    /// Adds a reader behind the event with the id `last`, or at the first one.
    pub(crate) fn seat(self: &Arc<Self>, last: Option<&str>, gzip: bool) -> Result<KeptReader, StreamError> {
        let mut state = self.state();
        let (head, (next, has_expired)) = (state.store.next(), state.place(self.epoch, last)?);
        let hub = match &state.hub {
            Some(hub) => hub.clone(),
            None => {
                let hub = KeptHub::new(&self.options().hub, head, Arc::clone(self) as _);
                if state.end.is_some() {
                    hub.finish();
                }
                if let Some(logged) = &state.logged {
                    // Tells the other instances that there are readers.
                    logged.changed.notify_one();
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
        if self.is_lost() {
            return Err(StreamError::Lost);
        }
        let place = match last.map(|id| kept::next_of(epoch, id)) {
            None => (0, false),
            Some(Some(next)) if next <= head => (next, false),
            Some(_) => (0, true),
        };
        match self.end {
            Some(_) if place.0 >= head => Err(StreamError::Ended),
            _ => Ok(place),
        }
    }

    /// Adds an event. Returns the hub whose readers are to be woken.
    pub(crate) fn push(&mut self, event: impl AsRef<[u8]> + Into<Bytes>) -> Option<KeptHub> {
        self.store.push(event.as_ref());
        let hub = self.hub.clone()?;
        hub.push(event.into());
        Some(hub)
    }

    /// Returns the number and the size of the events of the producer.
    pub(crate) fn sent(&self) -> (u64, usize) {
        let (events, bytes) = self.logged.as_ref().map_or((0, 0), |logged| logged.queued());
        (self.store.next() + events, self.store.bytes() + bytes)
    }

    /// Returns whether the stream has ended, or will when its log has the end.
    pub(crate) fn is_closed(&self) -> bool {
        self.end.is_some() || self.logged.as_ref().is_some_and(|logged| logged.is_closed())
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.logged.as_ref().is_some_and(|logged| logged.is_lost)
    }
}

impl Keeper for KeptStream {
    fn page(&self, from: u64) -> Option<(Bytes, u64)> {
        self.state().store.page(from)
    }

    fn emptied(&self) {
        let mut state = self.state();
        // A reader enters under the lock.
        if state.hub.as_ref().is_some_and(|hub| !hub.is_read()) {
            state.hub = None;
            if state.end.is_none() {
                state.since = Instant::now();
            }
        }
    }
}

/// Does not print the key, which has the owner.
impl fmt::Debug for KeptStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("KeptStream")
            .field("events", &state.store.next())
            .field("bytes", &state.store.bytes())
            .field("is_read", &state.hub.is_some())
            .field("end", &state.end)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
