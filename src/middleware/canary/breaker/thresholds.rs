//! When a breaker trips, and what it takes to close again.

use std::time::Duration;

use super::window::Sums;

/// Most resets that are remembered of a peer.
pub(super) const RESETS_MAX: u32 = 8;

/// When the breaker of a path trips, and what it takes to close again.
#[derive(Clone, Debug)]
#[must_use = "thresholds do nothing unless given to a builder"]
pub struct Thresholds {
    pub(super) p99: Duration,
    /// In ten-thousandths.
    pub(super) errors: u32,
    pub(super) samples: u32,
    pub(super) window: Duration,
    pub(super) resets: u32,
    pub(super) resets_within: Duration,
    pub(super) peers: usize,
    pub(super) cool_down: Duration,
    pub(super) cool_down_max: Duration,
    pub(super) probe_one_in: u32,
    pub(super) probes: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            p99: Duration::from_millis(200),
            errors: 500,
            samples: 100,
            window: Duration::from_secs(10),
            resets: 3,
            resets_within: Duration::from_secs(60),
            peers: 1024,
            cool_down: Duration::from_secs(30),
            cool_down_max: Duration::from_secs(600),
            probe_one_in: 10,
            probes: 20,
        }
    }
}

impl Thresholds {
    /// Trips when more than one answer in a hundred took longer: 200 ms unless set. A probe that takes longer has failed.
    pub fn p99(mut self, latency: Duration) -> Self {
        self.p99 = latency;
        self
    }

    /// Trips when a larger share of the answers failed, in percent: 5 unless set; 100 or more is never.
    pub fn errors(mut self, percent: f64) -> Self {
        self.errors = (percent.clamp(0.0, 100.0) * 100.0).round() as u32;
        self
    }

    /// Fewer answers than these within the window trip nothing: 100 unless set, at least 1.
    pub fn samples(mut self, least: u32) -> Self {
        self.samples = least.max(1);
        self
    }

    /// How far back answers are looked at: 10 s unless set, at least 8 ms. It slides in eight steps.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window.max(Duration::from_millis(8));
        self
    }

    /// A peer that ends so many answers before they are whole, within so much time, goes without the path for a cool-down:
    /// 3 within 60 s unless set; from 1 to 8. After that cool-down the next one is enough, until nothing was heard of it for
    /// the longest cool-down.
    pub fn resets(mut self, count: u32, within: Duration) -> Self {
        (self.resets, self.resets_within) = (count.clamp(1, RESETS_MAX), within);
        self
    }

    /// Most peers whose resets are remembered: 1024 unless set, rounded up to a multiple of 16. One more, and the one heard of
    /// least recently is forgotten.
    pub fn peers(mut self, most: usize) -> Self {
        self.peers = most;
        self
    }

    /// For how long a path is not used after a trip: 30 s unless set, and twice as long for each trip in a row, up to `max`,
    /// 10 min unless set. Trips are in a row if the path was not closed for `max` between them.
    pub fn cool_down(mut self, first: Duration, max: Duration) -> Self {
        (self.cool_down, self.cool_down_max) = (first, max.max(first));
        self
    }

    /// After the cool-down, one request in `one_in` tries the path, and `good` of them that are well close the breaker: one in
    /// 10, and 20, unless set; each at least 1. One that is not opens it again.
    pub fn probes(mut self, one_in: u32, good: u32) -> Self {
        (self.probe_one_in, self.probes) = (one_in.max(1), good.max(1));
        self
    }

    /// The cool-down after one more trip than `strikes`.
    pub(super) fn cool_down_after(&self, strikes: u32) -> Duration {
        self.cool_down.saturating_mul(1 << strikes.min(20)).min(self.cool_down_max)
    }

    /// Whether all is well, or too little known.
    pub(super) fn are_met(&self, sums: &Sums) -> bool {
        sums.answered < self.samples.into()
            || (sums.slow * 100 <= sums.answered && sums.failed * 10_000 <= u64::from(self.errors) * sums.answered)
    }
}
