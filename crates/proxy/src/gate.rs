//! Limits the number of requests in progress at the upstream, and the number of waiting requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The place of a request. Over HTTP/1.1 the place also stands for the connection: a request takes an idle connection
/// first, or closes one that is of no use for it, and a connection becomes idle before its place is released. So there
/// are never more connections than places.
pub(crate) type RequestPlace = OwnedSemaphorePermit;

pub(crate) struct Gate {
    places: Arc<Semaphore>,
    most: usize,
    waiting: AtomicUsize,
    most_waiting: usize,
    patience: Duration,
    refused: AtomicU64,
}

/// No place became free in time, or too many requests were waiting already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Gate {
    pub(crate) fn new(most: usize, most_waiting: usize, patience: Duration) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(most));
        let (waiting, refused) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { places, most, waiting, most_waiting, patience, refused }
    }

    /// Returns a place; `None` if the request has to wait. Requests that wait come first.
    pub(crate) fn try_enter(&self) -> Option<RequestPlace> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Waits for a place.
    pub(crate) async fn enter(&self) -> Result<RequestPlace, Full> {
        let Some(_waiting) = Waiting::begin(&self.waiting, self.most_waiting) else { return Err(self.refuse()) };
        match timeout(self.patience, Arc::clone(&self.places).acquire_owned()).await {
            Ok(place) => Ok(place.expect("internal: the semaphore is never closed")),
            Err(_) => Err(self.refuse()),
        }
    }

    fn refuse(&self) -> Full {
        self.refused.fetch_add(1, Ordering::Relaxed);
        Full
    }

    /// Returns whether there would be more connections than places if that many were idle.
    pub(crate) fn is_exceeded_by(&self, idle: usize) -> bool {
        self.in_progress() + idle > self.most
    }

    pub(crate) fn in_progress(&self) -> usize {
        self.most - self.places.available_permits()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a AtomicUsize, most: usize) -> Option<Self> {
        let others = waiting.fetch_add(1, Ordering::Relaxed);
        let this = Self(waiting);
        (others < most).then_some(this)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
