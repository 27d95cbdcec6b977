//! One request, watched until the end of its response.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::shared::{CanaryShared, Chosen, shard};
use millstream::internal::{Counter, count};

/// One request. If it is dropped without an outcome, its peer or a panic has ended it early.
#[derive(Debug)]
pub(super) struct RequestGuard {
    shared: Arc<CanaryShared>,
    chosen: Chosen,
    peer: Option<IpAddr>,
    start: Instant,
    answered: bool,
    ended: bool,
}

impl RequestGuard {
    pub(super) fn new(shared: Arc<CanaryShared>, chosen: Chosen, peer: Option<IpAddr>, start: Instant) -> Self {
        let request_guard = Self { shared, chosen, peer, start, answered: false, ended: false };
        request_guard.shared.stats[chosen.path as usize][shard()].requests.fetch_add(1, Ordering::Relaxed);
        request_guard
    }

    pub(super) fn chosen(&self) -> Chosen {
        self.chosen
    }

    /// Records the latency.
    pub(super) fn answered(&mut self) {
        if let Some(ticket) = self.chosen.ticket.filter(|_| !self.answered) {
            let now = Instant::now();
            let shared = &self.shared;
            let breaker = &shared.breakers[self.chosen.path as usize];
            let latency = now.saturating_duration_since(self.start);
            count(Counter::BreakerTrips, breaker.answered(ticket, latency, shared.since_start(now), shard()).into());
        }
        self.answered = true;
    }

    pub(super) fn ended(mut self) {
        self.answered();
        self.ended = true;
    }

    pub(super) fn failed(mut self) {
        self.fail();
    }

    fn fail(&mut self) {
        self.ended = true;
        let shared = &self.shared;
        let path = self.chosen.path as usize;
        shared.stats[path][shard()].errors.fetch_add(1, Ordering::Relaxed);
        if let Some(ticket) = self.chosen.ticket {
            let now = Instant::now();
            // Reported in one call: if a failed probe counted as good first, it might close the breaker that it must
            // open.
            let latency = (!self.answered).then(|| now.saturating_duration_since(self.start));
            let tripped = shared.breakers[path].failed(ticket, latency, shared.since_start(now), shard());
            count(Counter::BreakerTrips, tripped.into());
        }
    }

    fn reset(&self) {
        let shared = &self.shared;
        let path = self.chosen.path as usize;
        shared.stats[path][shard()].resets.fetch_add(1, Ordering::Relaxed);
        if let (Some(ticket), Some(peer)) = (self.chosen.ticket, self.peer) {
            shared.breakers[path].reset_by(peer, ticket, shared.since_start(Instant::now()));
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        match self.ended {
            true => {}
            false if std::thread::panicking() => self.fail(),
            false => self.reset(),
        }
    }
}
