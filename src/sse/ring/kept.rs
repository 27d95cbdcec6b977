//! A hub of a stream. Its ring has the last events of the stream, by the same numbers; the stream keeps all of them.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;

use super::keeper::Keeper;
use super::ring::Name;
use super::shared::{HubShared, Start};
use super::state::{Config, Cursor};
use crate::sse::event::Gap;
use crate::sync::atomic::{AtomicU64, Ordering};

impl HubShared {
    /// Creates a hub whose next event has the number `next`.
    pub(in crate::sse) fn kept(config: Config, next: u64, keeper: Arc<dyn Keeper>) -> Self {
        let mut shared = Self::new(config, true);
        shared.keeper = Some(keeper);
        shared.state.get_mut().unwrap_or_else(PoisonError::into_inner).ring.start_at(next);
        shared.head = AtomicU64::new(next);
        shared
    }

    pub(in crate::sse) fn is_read(&self) -> bool {
        self.seats.load(Ordering::Acquire) > 0
    }

    /// Adds the next event. Readers are not woken, because the caller holds a lock.
    pub(in crate::sse) fn push_kept(&self, event: Bytes) {
        let mut state = self.state();
        state.stats.sent += 1;
        self.push(&mut state, event, Name::Numbered);
    }

    /// Ends the streams of readers behind the last event. Readers are not woken, because the caller holds a lock.
    pub(in crate::sse) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    pub(in crate::sse) fn begin_at(&self, next: u64, gap: Option<Gap>) -> Start {
        self.at(&mut self.state(), next, gap)
    }

    /// Returns the next events of a reader that is behind the ring. `None` if nothing keeps them.
    pub(in crate::sse) fn read_kept(&self, cursor: &mut Cursor) -> Option<Bytes> {
        let (events, next) = self.keeper.as_ref()?.page(cursor.next)?;
        self.replayed(next - cursor.next);
        cursor.next = next;
        Some(events)
    }
}
