//! A circuit breaker for a path.
//!
//! ```text
//!            p99 or errors over the threshold
//!   Closed ───────────────────────────────────▶ Open ──cool-down──▶ HalfOpen
//!     ▲                                          ▲                    │   │
//!     │                                          └──one bad probe─────┘   │
//!     └──────────────────────enough good probes───────────────────────────┘
//! ```
//!
//! Samples go to shards that threads do not share, in a window that slides by slots. A request reads one word. Times
//! count from any fixed point, on one clock for all calls.
//!
//! Invariants:
//! 1. Each change of state begins a generation. Tickets of older generations have no effect: a request that was
//!    admitted before a trip is no probe after it.
//! 2. While half-open, at most one request in [`Thresholds::probe_one_in`] passes, and in each cool-down at most twice
//!    as many as close the breaker. This bounds the cost of probes that never end.
//! 3. The thresholds are checked with each bad sample, and with every 32nd good one of a shard.

mod peers;
#[cfg(test)]
mod tests;
mod thresholds;
mod window;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peers::Peers;
pub use thresholds::Thresholds;
use window::Window;

/// Good samples of a shard between two checks of the thresholds.
const LOOK_EVERY: u32 = 32;

/// State of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// The path is used.
    Closed,
    /// The path is not used.
    Open,
    /// Some requests probe the path.
    HalfOpen,
    /// An operator has set that the path is used, regardless of its samples.
    PinnedClosed,
    /// An operator has set that the path is not used.
    PinnedOpen,
}

impl BreakerState {
    const ALL: [Self; 5] = [Self::Closed, Self::Open, Self::HalfOpen, Self::PinnedClosed, Self::PinnedOpen];
}

/// Admission of a request. The outcome of the request is reported with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    generation: u32,
    probe: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    pub(crate) state: BreakerState,
    pub(crate) opens_for: Duration,
    pub(crate) trips: u64,
    pub(crate) p99: Option<Duration>,
    pub(crate) peers_out: usize,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    window: Window,
    /// Copies of thresholds, read without the lock: nanoseconds, and requests.
    p99: AtomicU64,
    probe_one_in: AtomicU32,
    /// The generation, with the state in the low byte.
    word: AtomicU64,
    /// End of the cool-down, in nanoseconds.
    until: AtomicU64,
    /// Requests since the breaker became half-open.
    asked: AtomicU64,
    peers: Peers,
    slow_path: Mutex<Slow>,
}

/// State that is used only by changes, probes, and samples that may change the state.
#[derive(Debug)]
struct Slow {
    thresholds: Thresholds,
    /// Trips since the last long closed period.
    strikes: u32,
    closed_at: Duration,
    probes_sent: u32,
    probes_good: u32,
    trips: u64,
}

impl Slow {
    fn cool_down(&self) -> Duration {
        self.thresholds.cool_down_after(self.strikes)
    }
}

impl Breaker {
    /// Creates a closed breaker. Each sample names one of `shards` shards.
    pub(crate) fn new(thresholds: Thresholds, shards: usize) -> Self {
        Self {
            window: Window::new(thresholds.window, shards),
            word: AtomicU64::new(1 << 8),
            until: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            p99: AtomicU64::new(nanos(thresholds.p99)),
            probe_one_in: AtomicU32::new(thresholds.probe_one_in),
            peers: Peers::default(),
            slow_path: Mutex::new(Slow {
                thresholds,
                strikes: 0,
                closed_at: Duration::ZERO,
                probes_sent: 0,
                probes_good: 0,
                trips: 0,
            }),
        }
    }

    fn now(&self) -> (u32, BreakerState) {
        let word = self.word.load(Ordering::Acquire);
        ((word >> 8) as u32, BreakerState::ALL[(word & 0xff) as usize])
    }

    fn slow_path(&self) -> MutexGuard<'_, Slow> {
        // Poisoning is harmless: the numbers are valid after each statement.
        self.slow_path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a generation. The lock is held, so that there is one writer.
    fn enter(&self, _slow: &mut Slow, state: BreakerState, until: Duration) {
        let (generation, _) = self.now();
        self.until.store(nanos(until), Ordering::Relaxed);
        self.asked.store(0, Ordering::Relaxed);
        self.word.store(u64::from(generation.wrapping_add(1)) << 8 | state as u64, Ordering::Release);
    }

    /// Returns a ticket if a request of `peer` may take the path.
    pub(crate) fn admit(&self, peer: Option<IpAddr>, now: Duration) -> Option<Ticket> {
        let (generation, state) = self.now();
        match state {
            BreakerState::PinnedClosed => return Some(Ticket { generation, probe: false }),
            BreakerState::PinnedOpen => return None,
            BreakerState::Open if nanos(now) < self.until.load(Ordering::Relaxed) => return None,
            _ if peer.is_some_and(|peer| self.peers.is_out(peer, now)) => return None,
            BreakerState::Closed => return Some(Ticket { generation, probe: false }),
            BreakerState::Open => {
                let mut slow = self.slow_path();
                // Another thread may have been first.
                if self.now() == (generation, BreakerState::Open) {
                    (slow.probes_sent, slow.probes_good) = (0, 0);
                    let until = now.saturating_add(slow.cool_down());
                    self.enter(&mut slow, BreakerState::HalfOpen, until);
                }
            }
            BreakerState::HalfOpen => {}
        }
        self.probe(now)
    }

    fn probe(&self, now: Duration) -> Option<Ticket> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if !asked.is_multiple_of(self.probe_one_in.load(Ordering::Relaxed).into()) {
            return None;
        }
        let mut slow = self.slow_path();
        let (generation, state) = self.now();
        if state != BreakerState::HalfOpen {
            return (state == BreakerState::Closed).then_some(Ticket { generation, probe: false });
        }
        if slow.probes_sent >= slow.thresholds.good_probes.saturating_mul(2) {
            if nanos(now) < self.until.load(Ordering::Relaxed) {
                return None;
            }
            slow.probes_sent = 0;
            self.until.store(nanos(now.saturating_add(slow.cool_down())), Ordering::Relaxed);
        }
        slow.probes_sent += 1;
        Some(Ticket { generation, probe: true })
    }

    fn is_slow(&self, latency: Duration) -> bool {
        nanos(latency) > self.p99.load(Ordering::Relaxed)
    }

    /// Records a response within `latency`, in the caller's `shard`. Returns whether the breaker tripped.
    pub(crate) fn answered(&self, ticket: Ticket, latency: Duration, now: Duration, shard: usize) -> bool {
        let (generation, state) = self.now();
        if ticket.generation != generation {
            return false;
        }
        let slow = self.is_slow(latency);
        if state == BreakerState::HalfOpen {
            if slow {
                return self.probe_failed(ticket, now);
            }
            self.probe_succeeded(ticket, now);
            return false;
        }
        let count = self.window.answered(generation, latency, slow, now, shard);
        (slow || count.is_multiple_of(LOOK_EVERY))
            && state == BreakerState::Closed
            && self.trip_if_exceeded(generation, now)
    }

    /// Records a failure, with its latency unless it was answered before. Returns whether the breaker tripped.
    pub(crate) fn failed(&self, ticket: Ticket, latency: Option<Duration>, now: Duration, shard: usize) -> bool {
        let (generation, state) = self.now();
        if ticket.generation != generation {
            return false;
        }
        if state == BreakerState::HalfOpen {
            return self.probe_failed(ticket, now);
        }
        if let Some(latency) = latency {
            self.window.answered(generation, latency, self.is_slow(latency), now, shard);
        }
        self.window.failed(generation, now, shard);
        state == BreakerState::Closed && self.trip_if_exceeded(generation, now)
    }

    /// Records that `peer` ended a request before its response was complete.
    pub(crate) fn reset_by(&self, peer: IpAddr, ticket: Ticket, now: Duration) {
        let (generation, state) = self.now();
        if ticket.generation == generation && !matches!(state, BreakerState::PinnedClosed | BreakerState::PinnedOpen) {
            let thresholds = self.slow_path().thresholds.clone();
            self.peers.reset_by(peer, &thresholds, now);
        }
    }

    /// Trips if the thresholds are exceeded.
    fn trip_if_exceeded(&self, generation: u32, now: Duration) -> bool {
        let sums = self.window.sums(generation, now);
        let mut slow = self.slow_path();
        if slow.thresholds.are_met(&sums) || self.now() != (generation, BreakerState::Closed) {
            return false;
        }
        // A long closed period ends a row of trips.
        if now.saturating_sub(slow.closed_at) >= slow.thresholds.longest_cool_down() {
            slow.strikes = 0;
        }
        self.trip(&mut slow, now);
        true
    }

    fn trip(&self, slow: &mut Slow, now: Duration) {
        let until = now.saturating_add(slow.cool_down());
        slow.strikes = slow.strikes.saturating_add(1);
        slow.trips += 1;
        self.enter(slow, BreakerState::Open, until);
    }

    fn probe_failed(&self, ticket: Ticket, now: Duration) -> bool {
        let mut slow = self.slow_path();
        let trips = ticket.probe && self.now() == (ticket.generation, BreakerState::HalfOpen);
        if trips {
            self.trip(&mut slow, now);
        }
        trips
    }

    fn probe_succeeded(&self, ticket: Ticket, now: Duration) {
        let mut slow = self.slow_path();
        if ticket.probe && self.now() == (ticket.generation, BreakerState::HalfOpen) {
            slow.probes_good += 1;
            if slow.probes_good >= slow.thresholds.good_probes {
                slow.closed_at = now;
                self.enter(&mut slow, BreakerState::Closed, Duration::ZERO);
            }
        }
    }

    /// Changes the thresholds. Begins a generation, so that no sample is compared with other thresholds.
    pub(crate) fn set_thresholds(&self, thresholds: &Thresholds) {
        let mut slow = self.slow_path();
        // Before the new generation, which readers load first.
        self.window.set_length(thresholds.window);
        self.p99.store(nanos(thresholds.p99), Ordering::Relaxed);
        self.probe_one_in.store(thresholds.probe_one_in, Ordering::Relaxed);
        slow.thresholds = thresholds.clone();
        (slow.probes_sent, slow.probes_good) = (0, 0);
        let until = Duration::from_nanos(self.until.load(Ordering::Relaxed));
        self.enter(&mut slow, self.now().1, until);
    }

    /// Pins the breaker closed or open. `None` unpins and closes it.
    pub(crate) fn pin(&self, pinned: Option<bool>) {
        let state = match pinned {
            Some(true) => BreakerState::PinnedClosed,
            Some(false) => BreakerState::PinnedOpen,
            None => BreakerState::Closed,
        };
        self.enter(&mut self.slow_path(), state, Duration::ZERO);
    }

    /// Closes the breaker and forgets its strikes and peers. The count of trips remains.
    pub(crate) fn clear(&self) {
        let mut slow = self.slow_path();
        slow.strikes = 0;
        self.peers.clear();
        self.enter(&mut slow, BreakerState::Closed, Duration::ZERO);
    }

    /// Returns the current status. Takes locks; not for the hot path.
    pub(crate) fn status(&self, now: Duration) -> Status {
        let slow = self.slow_path();
        let (generation, state) = self.now();
        let opens_for = match state {
            BreakerState::Open => Duration::from_nanos(self.until.load(Ordering::Relaxed)).saturating_sub(now),
            _ => Duration::ZERO,
        };
        let p99 = self.window.quantile(generation, now, 0.99);
        Status { state, opens_for, trips: slow.trips, p99, peers_out: self.peers.out(now) }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
