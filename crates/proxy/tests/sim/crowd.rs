//! The requests that clients wait for, from which follows whether the proxy may let one wait or refuse it.

use std::sync::{Mutex, PoisonError};

use crate::terms::LATE;
use crate::world::World;

/// From when to when each request may have a place at the proxy or wait for one, in milliseconds.
#[derive(Default)]
pub(crate) struct Crowd(Mutex<Vec<(u64, u64)>>);

impl Crowd {
    /// Returns how many requests were there between two times, at most.
    pub(crate) fn count(&self, from: u64, to: u64) -> usize {
        let spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spans.iter().filter(|&&(begin, end)| begin <= to && from <= end).count()
    }
}

/// A request in the crowd, until some time after it is dropped.
pub(crate) struct Asking<'a> {
    world: &'a World,
    number: usize,
    /// Milliseconds after which the proxy has noticed that its client is gone.
    pub(crate) lingers: u64,
}

impl<'a> Asking<'a> {
    pub(crate) fn begin(world: &'a World) -> Self {
        let mut spans = world.crowd.0.lock().unwrap_or_else(PoisonError::into_inner);
        spans.push((world.net.now(), u64::MAX));
        Self { world, number: spans.len() - 1, lingers: LATE }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut spans = self.world.crowd.0.lock().unwrap_or_else(PoisonError::into_inner);
        spans[self.number].1 = self.world.net.now() + self.lingers;
    }
}
