//! A hub whose place another process takes. It accepts events, which the other process delivers first, and delivers those
//! that come back, in the order of the other process.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::ring::Name;
use super::shared::HubShared;
use super::state::{Cursor, HubState, Leaving};
use crate::sse::event::{EventId, check_id};
use crate::sync::atomic::Ordering;

/// Number of the first event of a hub that takes the place of another: there is room for the other's events before it.
const FIRST: u64 = 1 << 32;

impl HubShared {
    /// Makes the hub leave. Returns `false` if it leaves already.
    pub(in crate::sse) fn leave_to_successor(&self) -> bool {
        let mut state = self.state();
        let is_first = state.leaving.is_none();
        let first = state.ring.head();
        state.leaving.get_or_insert_with(|| Leaving { late: VecDeque::new(), first });
        is_first
    }

    /// Refuses further events.
    pub(in crate::sse) fn seal(&self) {
        let state = self.state();
        self.sealed.store(state.leaving.is_some(), Ordering::Release);
    }

    /// Returns whether the hub leaves and refuses further events.
    pub(in crate::sse) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Goes on: the events since then that the other process has not delivered are delivered here.
    pub(in crate::sse) fn stay(&self) {
        let mut state = self.state();
        let Some(Leaving { late, first }) = state.leaving.take() else { return };
        self.sealed.store(false, Ordering::Release);
        for ((bytes, name), number) in late.into_iter().zip(first..) {
            let name = match name {
                // Events of the other process are before it: it keeps its id, which is not that of its place.
                Name::Numbered if number != state.ring.head() => {
                    Name::Given(state.ring.numbered(number).to_string().into())
                }
                name => name,
            };
            self.push(&mut state, bytes, name);
        }
        self.wake(state);
    }

    /// Delivers an event of the hub that takes the place of this one, to the readers that are still here.
    pub(in crate::sse) fn deliver_back(&self, id: &str, bytes: Bytes) -> io::Result<()> {
        check_id(id).map_err(invalid)?;
        let mut state = self.state();
        let HubState { ring, leaving: Some(leaving), .. } = &mut *state else { return Ok(()) };
        if leaving.late.front().is_some_and(|(_, name)| ring.id(name, leaving.first).to_string() == id) {
            leaving.late.pop_front();
            leaving.first += 1;
        }
        self.push_here(&mut state, bytes, Name::Given(id.into()));
        drop(state);
        self.groups.wake();
        Ok(())
    }

    /// Notifies of each event from now on, or no longer.
    pub(in crate::sse) fn follow(&self, begins: bool) {
        let mut state = self.state();
        match begins {
            true => state.followers += 1,
            false => state.followers -= 1,
        }
    }

    /// Returns whether another process takes the place of the hub.
    pub(in crate::sse) fn leaves(&self) -> bool {
        self.state().leaving.is_some()
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

    /// Returns the number of the first event that is not another hub's.
    pub(in crate::sse) fn first_own(&self) -> u64 {
        FIRST
    }

    /// Returns the first event that the hub has from the one with this `number` on: its number, its id and its age. The
    /// events since the hub leaves follow those of the ring.
    pub(in crate::sse) fn event_from(&self, number: u64) -> Option<(u64, EventId, Bytes, Duration)> {
        let state = self.state();
        let ring = &state.ring;
        let late = state.leaving.as_ref().filter(|leaving| number >= leaving.first);
        let Some(Leaving { late, first, .. }) = late else {
            let number = number.max(ring.base());
            return ring.event(number).map(|(id, bytes, age)| (number, id, bytes, age));
        };
        let (bytes, name) = late.get(usize::try_from(number - first).ok()?)?;
        Some((number, ring.id(name, number), bytes.clone(), Duration::ZERO))
    }

    /// Waits until the hub has the event `number`.
    pub(in crate::sse) async fn has_event(&self, number: u64) {
        loop {
            let mut changed = std::pin::pin!(self.room.notified());
            // Registered before the check, so that no notification is missed.
            changed.as_mut().enable();
            if self.event_from(number).is_some() {
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
        if state.ring.base() > FIRST {
            // The ring has dropped some of its own, so that readers of the others would miss them without a gap.
            return Ok(());
        }
        let now = Instant::now();
        for (id, bytes, age) in events.into_iter().rev() {
            state.ring.push_front(id.into(), bytes, now.checked_sub(age).unwrap_or(now));
        }
        state.ring.set_floor(Some(before.into()));
        self.evict(&mut state);
        Ok(())
    }

    /// Adds an event of another hub, with its id.
    pub(in crate::sse) fn import(&self, id: &str, bytes: Bytes) -> io::Result<()> {
        check_id(id).map_err(invalid)?;
        Ok(self.deliver_encoded(id, bytes)?)
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the id of an event of the other hub {why}"))
}

#[cfg(test)]
mod tests;
