//! A hub whose place another process takes. It accepts events, which the other process delivers; its ring and its readers
//! stay as they are.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::ring::Name;
use super::shared::HubShared;
use super::state::{Cursor, Leaving};
use crate::sse::event::{EventId, check_id};
use crate::sync::atomic::Ordering;

/// Number of the first event of a hub that takes the place of another: there is room for the other's events before it.
const FIRST: u64 = 1 << 32;

impl HubShared {
    /// Makes the hub leave. Returns `false` if it leaves already.
    pub(in crate::sse) fn leave_to_successor(&self) -> bool {
        let mut state = self.state();
        let is_first = state.leaving.is_none();
        state.leaving.get_or_insert_default();
        is_first
    }

    /// Refuses further events.
    pub(in crate::sse) fn seal(&self) {
        if let Some(leaving) = &mut self.state().leaving {
            leaving.is_sealed = true;
        }
    }

    /// Goes on: the events since then are delivered here.
    pub(in crate::sse) fn stay(&self) {
        let mut state = self.state();
        let Leaving { late, .. } = state.leaving.take().unwrap_or_default();
        for (bytes, name) in late {
            self.push(&mut state, bytes, name);
        }
        drop(state);
        self.groups.wake();
    }

    /// Returns the id of the event before the next one of a reader, if the hub leaves.
    pub(in crate::sse) fn last_before(&self, cursor: &Cursor) -> Option<String> {
        let state = self.state();
        state.leaving.as_ref().filter(|_| !state.has_given_up(cursor))?;
        // A log does not know an id that the hub has made.
        state.ring.id_before(cursor.next).filter(|id| !self.has_log || id.is_given()).map(|id| id.to_string())
    }

    /// Returns the number of the oldest event, and the id of the one before it.
    pub(in crate::sse) fn oldest(&self) -> (u64, String) {
        let state = self.state();
        let base = state.ring.base();
        (base, state.ring.id_before(base).map(|id| id.to_string()).unwrap_or_default())
    }

    /// Returns the event `number`, its id and its age. The events since the hub leaves follow those of the ring.
    pub(in crate::sse) fn numbered(&self, number: u64) -> Option<(EventId, Bytes, Duration)> {
        let state = self.state();
        let head = state.ring.head();
        if number < head {
            return state.ring.event(number);
        }
        let (bytes, name) = state.leaving.as_ref()?.late.get(usize::try_from(number - head).ok()?)?;
        let id = match name {
            Name::Given(id) => EventId::given(Arc::clone(id)),
            Name::Numbered | Name::Gap => state.ring.numbered(number),
        };
        Some((id, bytes.clone(), Duration::ZERO))
    }

    /// Waits until the hub, which leaves, has the event `number`.
    pub(in crate::sse) async fn has_event(&self, number: u64) {
        loop {
            let mut changed = std::pin::pin!(self.room.notified());
            // Registered before the check, so that no notification is missed.
            changed.as_mut().enable();
            if self.numbered(number).is_some() {
                return;
            }
            changed.await;
        }
    }

    /// Leaves room for the events of another hub. Returns `false` if this one has been used.
    pub(in crate::sse) fn expect_predecessor(&self) -> bool {
        let mut state = self.state();
        if state.ring.head() > 0 || self.is_read() {
            return false;
        }
        state.ring.start_at(FIRST);
        self.head.store(FIRST, Ordering::Release);
        true
    }

    /// Takes the events of another hub, which precede those of this one. `before` is the id of the event before them.
    pub(in crate::sse) fn prepend(&self, before: &str, events: Vec<(String, Bytes, Duration)>) -> io::Result<()> {
        let ids = events.iter().map(|(id, ..)| id.as_str()).chain([before]);
        ids.map(check_id).collect::<Result<Vec<_>, _>>().map_err(invalid)?;
        let mut state = self.state();
        if state.ring.base() < events.len() as u64 {
            return Err(invalid("has no room before the first one of this hub"));
        }
        let now = Instant::now();
        for (id, bytes, age) in events.into_iter().rev() {
            state.ring.push_front(id.into(), bytes, now.checked_sub(age).unwrap_or(now));
        }
        state.ring.set_floor(Some(before.into()));
        self.evict(&mut state);
        Ok(())
    }

    /// Adds an event of another hub, with its id, unless it is there already.
    pub(in crate::sse) fn import(&self, id: &str, bytes: Bytes) -> io::Result<()> {
        check_id(id).map_err(invalid)?;
        if self.state().ring.has(id) { Ok(()) } else { Ok(self.deliver_encoded(id, bytes)?) }
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the id of an event of the other hub {why}"))
}
