//! A stream with a log: what its task moves between the two.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream::internal::kept;
use millstream::internal::{Counter, count};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::end::StreamEnd;
use crate::kept_stream::KeptStream;
use crate::stream_log::{LogPage, LogStatus, StreamLog};

/// Added to the time of the last record of readers, because they may have left just before the next record was due.
/// Longer than the time between two records.
const SLACK: Duration = Duration::from_millis(350);

/// Events for the log.
pub(crate) struct Batch {
    pub(crate) first: u64,
    pub(crate) events: Vec<Bytes>,
    pub(crate) end: Option<StreamEnd>,
}

impl KeptStream {
    /// Returns the log, and what wakes its task. `None` for a stream without a log, or one that has ended.
    pub(crate) fn log(&self) -> Option<(Arc<dyn StreamLog>, Arc<Notify>)> {
        let state = self.state();
        let logged = state.logged.as_ref()?;
        Some((Arc::clone(logged.log.as_ref()?), Arc::clone(&logged.changed)))
    }

    /// Returns the claim, if this instance writes.
    pub(crate) fn token(&self) -> Option<u64> {
        self.state().logged.as_ref()?.token
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state().is_lost()
    }

    /// Returns the number of the next event.
    pub(crate) fn next(&self) -> u64 {
        self.state().store.next()
    }

    pub(crate) fn is_read(&self) -> bool {
        self.state().hub.is_some()
    }

    /// Returns the number of the first event of this producer.
    pub(crate) fn resumed_from(&self) -> u64 {
        self.state().logged.as_ref().map_or(0, |logged| logged.resumed_from)
    }

    /// Makes this instance the one that writes, unless the stream has ended. All events of the log are here. Returns
    /// whether it is.
    pub(crate) fn promote(&self, token: u64) -> bool {
        let mut state = self.state();
        if state.end.is_some() {
            return false;
        }
        let next = state.store.next();
        state.since = Instant::now();
        // The age counts from here, and the claim has renewed the time for which the log is kept.
        state.started = state.since;
        if let Some(logged) = &mut state.logged {
            (logged.token, logged.resumed_from) = (Some(token), next);
            logged.changed.notify_one();
        }
        true
    }

    /// Returns whether a stop was requested at this instance, which does not write.
    pub(crate) fn take_stop(&self) -> bool {
        self.state().logged.as_mut().is_some_and(|logged| logged.token.is_none() && logged.end.take().is_some())
    }

    /// Waits until everything is published that was sent until now: other instances may have read it before this one
    /// knows that the log has it. Cancel safe.
    pub(crate) async fn settled(&self) {
        let (sent, ends) = {
            let state = self.state();
            (state.sent().0, state.is_closed())
        };
        let is_settled = || {
            let state = self.state();
            state.end.is_some() || (!ends && state.store.next() >= sent)
        };
        self.notified(|| is_settled().then_some(())).await;
    }

    /// Returns what the log does not have yet, with the event of the end.
    pub(crate) fn batch(&self) -> Option<Batch> {
        let state = self.state();
        let logged = state.logged.as_ref().filter(|logged| !logged.waiting.is_empty() || logged.end.is_some())?;
        let (first, mut events) = (state.store.next(), logged.waiting.clone());
        let last = logged.end.and_then(|end| self.last_event(end, first + events.len() as u64));
        events.extend(last.map(Bytes::from));
        Some(Batch { first, events, end: logged.end })
    }

    /// Publishes what the log has.
    pub(crate) fn appended(&self, batch: Batch) {
        let end = batch.end.map(|end| (end, Instant::now()));
        self.publish(batch.first, batch.events, end, true);
    }

    /// Publishes a page of the log.
    pub(crate) fn take_page(&self, from: u64, page: LogPage) {
        let ttl = self.options().ttl;
        let at = |left: Duration| {
            let now = Instant::now();
            now.checked_sub(ttl.saturating_sub(left)).unwrap_or(now)
        };
        self.publish(from, page.events, page.end.map(|(end, left)| (end, at(left))), false);
    }

    /// Adds the events that are not here yet, and then ends the stream. `are_ours` if they are in the queue.
    fn publish(&self, first: u64, events: Vec<Bytes>, end: Option<(StreamEnd, Instant)>, are_ours: bool) {
        let mut state = self.state();
        if state.end.is_some() {
            return;
        }
        if let Some(logged) = state.logged.as_mut().filter(|_| are_ours) {
            logged.settle(events.len());
        }
        let mut hub = None;
        let mut published = 0;
        for (number, event) in (first..).zip(events) {
            if number == state.store.next() {
                hub = state.push(event);
                published += 1;
            }
        }
        let ended = end.map(|(end, at)| self.close(&mut state, end, at));
        drop(state);
        self.ended.notify_waiters();
        if are_ours {
            count(Counter::EventsSent, published);
        }
        match (ended, hub) {
            (Some(ended), _) => self.announce(ended),
            (None, Some(hub)) => hub.wake(),
            (None, None) => {}
        }
    }

    /// Counts readers of other instances, and ends the stream if it is time to.
    pub(crate) fn heed(&self, status: &LogStatus) {
        let now = Instant::now();
        let mut state = self.state();
        if let Some(read) = status.unread.and_then(|unread| (now + SLACK).checked_sub(unread)) {
            state.since = state.since.max(read);
        }
        let end = if status.stops { Some(StreamEnd::Stopped) } else { self.due(&state, now) };
        // Under the same lock, so that no reader enters between the decision and the end.
        if let Some(end) = end.filter(|_| !state.is_closed()) {
            self.finish_with(state, end);
        }
    }

    /// Ends the stream as `end`, because this instance ends. A stream with a log ends here only, which releases the
    /// claim, so that another instance continues it. An end that was requested before is still written.
    pub(crate) fn leave(&self, end: StreamEnd) {
        let continues = {
            let state = self.state();
            state.logged.is_some() && !state.is_closed()
        };
        if continues {
            self.lose(false);
        } else {
            self.finish(end);
        }
    }

    /// Ends the stream here only. Its readers are told if `tells`, by an event without an id, so that they continue
    /// behind the last event that the log has.
    pub(crate) fn lose(&self, tells: bool) {
        let mut state = self.state();
        if state.end.is_some() {
            return;
        }
        if let Some(logged) = &mut state.logged {
            logged.lose();
        }
        let failed = StreamEnd::Failed.event().filter(|_| tells);
        if let Some(mut text) = failed.and_then(|event| kept::encode(&event).ok()) {
            text.push(b'\n');
            state.push(text);
        }
        let ended = self.close(&mut state, StreamEnd::Failed, Instant::now());
        drop(state);
        self.announce(ended);
    }
}
