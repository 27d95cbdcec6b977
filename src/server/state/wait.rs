//! Timeout of request bodies.

use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::{Mutex, guarded, lock};

#[derive(Debug, Default)]
pub(in crate::server) struct Wait {
    state: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    waker: Option<Waker>,
    bytes: u64,
    /// Bytes that must arrive in each window.
    rate: u64,
    /// Start of the window, at a check of the reaper, and the bytes by then.
    window: Option<(Instant, u64)>,
    /// Whether the window has passed. The task decides whether too few bytes came, because some may have come while it
    /// slept.
    late: bool,
}

impl Waiting {
    fn lacks(&self) -> bool {
        self.window.is_some_and(|(_, with)| self.bytes < with.saturating_add(self.rate))
    }
}

impl Wait {
    pub(in crate::server) fn new(rate: u64) -> Self {
        Self { state: Mutex::new(Waiting { rate, ..Waiting::default() }) }
    }

    /// Records that the service waits for bytes. Returns `true` if it has waited too long.
    pub(in crate::server) fn pends(&self, waker: &Waker) -> bool {
        let mut state = lock(&self.state);
        match &mut state.waker {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        state.late
    }

    /// Records that `bytes` came and the service does not wait. Returns `true` if they are too late.
    pub(in crate::server) fn came(&self, bytes: u64) -> bool {
        let mut state = lock(&self.state);
        state.bytes += bytes;
        state.waker = None;
        state.late &= state.lacks();
        state.late
    }

    /// Wakes the service if its window has passed at `now` and too few bytes came. Bytes that are `unread` in the
    /// kernel are not missing: the server is late, not the client.
    pub(in crate::server) fn check_window(&self, now: Instant, limit: Duration, unread: impl FnOnce() -> bool) {
        let mut state = lock(&self.state);
        if state.waker.is_none() {
            state.window = None;
            return;
        }
        match state.window {
            Some((began, _)) if state.lacks() => {
                if now.duration_since(began) >= limit && !state.late && !unread() {
                    state.late = true;
                    let waker = state.waker.clone();
                    drop(state);
                    // The reaper calls it, on which all connections depend.
                    guarded(move || waker.map(Waker::wake));
                }
            }
            _ => state.window = Some((now, state.bytes)),
        }
    }
}

#[cfg(test)]
mod tests;
