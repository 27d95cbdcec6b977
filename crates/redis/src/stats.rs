//! Statistics and connection state of a log.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::describe;
use super::events;

/// State of a [`Redis`](super::Redis), from [`Redis::state`](super::Redis::state).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisState {
    /// Whether the last attempt of the reader, and of the writer if there was one, succeeded.
    pub connected: bool,
    /// Number of reconnections after a lost connection.
    pub reconnects: u64,
    /// Number of appends that Redis has not confirmed.
    pub queued: usize,
    /// Approximate size of the unconfirmed appends in bytes.
    pub queued_bytes: usize,
    /// Number of appends that Redis has confirmed.
    pub appended: u64,
    /// Number of appends given up because the hub was closed while Redis was unreachable.
    pub given_up: u64,
    /// Number of times that missing events were found in the log and reported to readers.
    pub gaps: u64,
    /// Number of duplicate entries in the log that were delivered once.
    pub doubles: u64,
    /// The last error; `None` once connected again.
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Reader,
    Writer,
}

#[derive(Debug, Default)]
pub(crate) struct Stats(Mutex<RedisStatsInner>);

#[derive(Debug, Default)]
struct RedisStatsInner {
    errors: [Option<String>; 2],
    reconnects: u64,
    appended: u64,
    given_up: u64,
    gaps: u64,
    doubles: u64,
}

impl Stats {
    fn inner(&self) -> MutexGuard<'_, RedisStatsInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn up(&self, part: Part, address: &str) {
        let was_down = {
            let mut inner = self.inner();
            let was_down = inner.errors[part as usize].take().is_some();
            inner.reconnects += u64::from(was_down);
            was_down
        };
        // Without the lock, because a tracing subscriber may call back.
        if was_down {
            events::back(address);
        }
    }

    pub(crate) fn down(&self, part: Part, address: &str, error: &redis::RedisError) {
        let before = self.inner().errors[part as usize].replace(describe(error.clone()));
        if before.is_none() {
            events::away(address, error);
        }
    }

    pub(crate) fn appended(&self, appends: usize) {
        self.inner().appended += appends as u64;
    }

    pub(crate) fn given_up(&self, appends: usize) {
        self.inner().given_up += appends as u64;
    }

    pub(crate) fn gap(&self) {
        self.inner().gaps += 1;
    }

    pub(crate) fn double(&self) {
        self.inner().doubles += 1;
    }

    pub(crate) fn state(&self, (queued, queued_bytes): (usize, usize)) -> RedisState {
        let inner = self.inner();
        let error = inner.errors.iter().flatten().next().cloned();
        RedisState {
            connected: error.is_none(),
            reconnects: inner.reconnects,
            queued,
            queued_bytes,
            appended: inner.appended,
            given_up: inner.given_up,
            gaps: inner.gaps,
            doubles: inner.doubles,
            error,
        }
    }
}

#[cfg(feature = "tracing")]
#[cfg(test)]
mod tests;
