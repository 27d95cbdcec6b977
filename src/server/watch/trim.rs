//! Decides when the memory of a burst of connections is returned to the system.
//!
//! Thousands of connections that read, answer and come to rest leave free memory between what the resting ones keep.
//! glibc returns such memory only when asked.

use std::time::Duration;

use tokio::time::Instant;

/// Connections after which memory is returned. Fewer leave too little.
pub(super) const TRIM_AFTER: usize = 256;
/// A burst goes on while more connections than these come to rest between two checks.
const STEADY: usize = TRIM_AFTER / 32;
/// Shortest time from one return to the next.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Trim {
    is_on: bool,
    /// Connections that came to rest, or ended, since memory was last returned.
    rested: usize,
    /// `rested` at the previous check.
    before: usize,
    last: Option<Instant>,
}

impl Trim {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, rested: 0, before: 0, last: None }
    }

    /// Counts connections that came to rest or ended.
    pub(super) fn rested(&mut self, connections: usize) {
        if self.is_on {
            self.rested += connections;
        }
    }

    /// Returns whether memory is returned at one of the next checks.
    pub(super) fn is_pending(&self) -> bool {
        self.rested >= TRIM_AFTER
    }

    /// Returns whether memory is returned now. Called at each check of the connections.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let rests = self.rested - std::mem::replace(&mut self.before, self.rested);
        let is_recent = self.last.is_some_and(|last| now.duration_since(last) < PAUSE);
        if !self.is_pending() || rests > STEADY || is_recent {
            return false;
        }
        (self.rested, self.before, self.last) = (0, 0, Some(now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_once_after_a_burst() {
        let (mut trim, now) = (Trim::new(true), Instant::now());
        trim.rested(TRIM_AFTER - 1);
        assert!(!trim.is_due(now) && !trim.is_due(now), "too few");
        trim.rested(STEADY + 1);
        assert!(!trim.is_due(now), "the burst goes on");
        trim.rested(STEADY);
        assert!(trim.is_pending() && trim.is_due(now));
        assert!(!trim.is_pending() && !trim.is_due(now), "once");
    }

    #[test]
    fn the_next_burst_waits_for_the_pause() {
        let (mut trim, now) = (Trim::new(true), Instant::now());
        for now in [now, now + PAUSE] {
            trim.rested(TRIM_AFTER);
            assert!(!trim.is_due(now) && trim.is_due(now));
        }
        trim.rested(TRIM_AFTER);
        assert!(!trim.is_due(now + PAUSE) && !trim.is_due(now + 2 * PAUSE - Duration::from_millis(1)));
        assert!(trim.is_due(now + 2 * PAUSE));
    }

    #[test]
    fn nothing_is_returned_if_that_is_off() {
        let (mut trim, now) = (Trim::new(false), Instant::now());
        trim.rested(TRIM_AFTER);
        assert!(!trim.is_due(now) && !trim.is_due(now) && !trim.is_pending());
    }
}
