//! A circuit breaker for the upstream.
//!
//! ```text
//!           failures in a row
//!   Closed ──────────────────▶ Open ──back-off──▶ HalfOpen: one request
//!     ▲                         ▲                   │   │
//!     │                         └──────it fails─────┘   │
//!     └────────────────────────────it is answered───────┘
//! ```
//!
//! 1. While half-open, one request at a time is sent: the probe. Another request replaces it after the back-off. A
//!    request without a body replaces an upload at once, so that a slow upload does not block the circuit. The outcome
//!    of a replaced probe has no effect.
//! 2. Requests that were sent before the circuit opened neither close nor open it again.
//! 3. A request whose client leaves is neither a failure nor an answer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::state::Circuit;

pub(crate) struct Health {
    /// Failures in a row that open the circuit. `u32::MAX`: the circuit never opens.
    most: u32,
    back_off: Duration,
    failures: AtomicU32,
    opened: Mutex<Opened>,
}

#[derive(Default)]
struct Opened {
    /// `None` while the circuit is closed.
    until: Option<Instant>,
    probe: Option<Probe>,
    /// Number of the last probe.
    last: u64,
    trips: u64,
}

/// The request that is sent while the circuit is half-open.
struct Probe {
    number: u64,
    since: Instant,
    has_body: bool,
}

/// A request that is sent. Dropped without an outcome if its client leaves.
#[must_use]
pub(crate) struct Trial<'a> {
    health: &'a Health,
    /// Number of the probe, if it is one.
    probe: Option<u64>,
}

impl Health {
    pub(crate) fn new(most: u32, back_off: Duration) -> Self {
        Self { most, back_off, failures: AtomicU32::new(0), opened: Mutex::default() }
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a request. `Err` is the time after which another may be admitted.
    pub(crate) fn admit(&self, has_body: bool) -> Result<Trial<'_>, Duration> {
        if self.failures() < self.most {
            return Ok(Trial { health: self, probe: None });
        }
        let mut opened = self.opened();
        if opened.until.is_none() {
            return Ok(Trial { health: self, probe: None });
        }
        let now = Instant::now();
        if let Some(time) = self.refusal(&opened, has_body, now) {
            return Err(time);
        }
        opened.last += 1;
        let number = opened.last;
        opened.probe = Some(Probe { number, since: now, has_body });
        Ok(Trial { health: self, probe: Some(number) })
    }

    /// As [`admit`](Self::admit), for a request that is not sent yet.
    pub(crate) fn check(&self, has_body: bool) -> Result<(), Duration> {
        if self.failures() < self.most {
            return Ok(());
        }
        self.refusal(&self.opened(), has_body, Instant::now()).map_or(Ok(()), Err)
    }

    fn refusal(&self, opened: &Opened, has_body: bool, now: Instant) -> Option<Duration> {
        let until = opened.until?;
        if now < until {
            return Some(until - now);
        }
        let keeps = |probe: &Probe| (has_body || !probe.has_body) && now.duration_since(probe.since) < self.back_off;
        opened.probe.as_ref().is_some_and(keeps).then_some(self.back_off)
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(crate) fn circuit(&self) -> Circuit {
        match self.opened().until {
            None => Circuit::Closed,
            Some(until) if until <= Instant::now() => Circuit::HalfOpen,
            Some(_) => Circuit::Open,
        }
    }

    pub(crate) fn trips(&self) -> u64 {
        self.opened().trips
    }

    fn open(&self, opened: &mut Opened) {
        // A back-off beyond the range of the clock is shortened to 30 years.
        let now = Instant::now();
        let until = now.checked_add(self.back_off).unwrap_or(now + Duration::from_secs(1_000_000_000));
        opened.until = Some(until);
        opened.trips += 1;
    }
}

impl Opened {
    /// Returns whether this request is the current probe.
    fn is_place_of(&self, trial: &Trial<'_>) -> bool {
        self.probe.as_ref().map(|probe| probe.number) == trial.probe
    }
}

impl Trial<'_> {
    /// The upstream has sent the head of a response.
    pub(crate) fn answered(self) {
        let health = self.health;
        if self.probe.is_some() {
            // The lock is held for both changes. A failure between them would open a circuit with a failure count of 0,
            // which no probe closes.
            let mut opened = health.opened();
            if opened.is_place_of(&self) {
                opened.until = None;
                health.failures.store(0, Ordering::Relaxed);
            }
        } else if matches!(health.failures(), 1.. if health.failures() < health.most) {
            let opened = health.opened();
            if opened.until.is_none() {
                health.failures.store(0, Ordering::Relaxed);
            }
        }
    }

    /// The upstream cannot be reached, or has ended the connection, or is too slow.
    pub(crate) fn failed(self) {
        let health = self.health;
        if health.most == u32::MAX {
            return;
        }
        let mut opened = health.opened();
        if self.probe.is_some() {
            if opened.is_place_of(&self) {
                health.open(&mut opened);
            }
        } else if opened.until.is_none() {
            let failures = health.failures.load(Ordering::Relaxed) + 1;
            if failures >= health.most {
                health.open(&mut opened);
            }
            // Stored last, because it is read without the lock: a reader that sees the new count finds the circuit
            // open.
            health.failures.store(failures, Ordering::Relaxed);
        }
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if self.probe.is_some() {
            let mut opened = self.health.opened();
            if opened.is_place_of(self) {
                opened.probe = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
