//! Thresholds of a circuit breaker.

use std::time::Duration;

use super::window::Sums;

/// Most resets remembered for a peer.
pub(super) const RESETS_MAX: u32 = 8;

/// Thresholds at which the breaker of a path trips, and closes again.
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
    cool_down: Duration,
    cool_down_max: Duration,
    pub(super) probe_one_in: u32,
    pub(super) good_probes: u32,
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
            good_probes: 20,
        }
    }
}

impl Thresholds {
    /// Trips when more than 1 % of the responses take longer than `latency`; 200 ms by default. Slower probes fail.
    pub fn p99(mut self, latency: Duration) -> Self {
        self.p99 = latency;
        self
    }

    /// Trips when more than `percent` of the responses fail; 5 by default. 100 or more never trips.
    pub fn errors(mut self, percent: f64) -> Self {
        self.errors = (percent.clamp(0.0, 100.0) * 100.0).round() as u32;
        self
    }

    /// Sets the number of responses in the window below which nothing trips; 100 by default, at least 1.
    pub fn samples(mut self, least: u32) -> Self {
        self.samples = least.max(1);
        self
    }

    /// Sets the window of the samples; 10 s by default, at least 8 ms. It slides in eight steps.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window.max(Duration::from_millis(8));
        self
    }

    /// Excludes a peer from the path for a cool-down after it has ended `count` responses early within a time; 3 within
    /// 60 s by default, from 1 to 8. After that, one more such response excludes it again, until it has ended none for
    /// the longest cool-down.
    pub fn resets(mut self, count: u32, within: Duration) -> Self {
        (self.resets, self.resets_within) = (count.clamp(1, RESETS_MAX), within);
        self
    }

    /// Sets how many peers are remembered; 1024 by default, in multiples of 16. Beyond it the oldest is forgotten.
    pub fn peers(mut self, most: usize) -> Self {
        self.peers = most;
        self
    }

    /// Sets the cool-down after a trip; 30 s by default. It doubles with each trip in a row, up to the
    /// [longest](Self::cool_down_max).
    pub fn cool_down(mut self, first: Duration) -> Self {
        self.cool_down = first;
        self
    }

    /// Sets the longest cool-down; 10 min by default, at least the [first](Self::cool_down). Trips are in a row if the
    /// path was closed for less than this time between them.
    pub fn cool_down_max(mut self, longest: Duration) -> Self {
        self.cool_down_max = longest;
        self
    }

    /// Sets that one in this number of requests probes the path after a cool-down; 10 by default, at least 1.
    pub fn probe_one_in(mut self, requests: u32) -> Self {
        self.probe_one_in = requests.max(1);
        self
    }

    /// Sets the number of successful probes that close the breaker; 20 by default, at least 1. A failed probe opens it
    /// again.
    pub fn good_probes(mut self, count: u32) -> Self {
        self.good_probes = count.max(1);
        self
    }

    pub(super) fn longest_cool_down(&self) -> Duration {
        self.cool_down_max.max(self.cool_down)
    }

    /// Returns the cool-down of a trip that follows `strikes` others.
    pub(super) fn cool_down_after(&self, strikes: u32) -> Duration {
        self.cool_down.saturating_mul(1 << strikes.min(20)).min(self.longest_cool_down())
    }

    /// Returns whether the thresholds are met, or there are too few samples.
    pub(super) fn are_met(&self, sums: &Sums) -> bool {
        sums.answered < self.samples.into()
            || (sums.slow * 100 <= sums.answered && sums.failed * 10_000 <= u64::from(self.errors) * sums.answered)
    }
}
