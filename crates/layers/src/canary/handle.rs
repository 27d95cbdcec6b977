//! Control of a canary at run time.

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::breaker::{BreakerState, Thresholds};
use super::shared::{CanaryShared, PathStats};
use super::shares::{PATHS, ShareUnit};
use super::token::Token;
use millstream::net::SendStrategy;
use millstream::server::Trusted;

/// Changes a canary at run time, and reports the state of its paths. Cheap to clone. Changes apply to new requests.
#[derive(Clone)]
pub struct CanaryHandle {
    shared: Arc<CanaryShared>,
}

/// Pinned state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerPin {
    /// The path is used, regardless of its samples.
    Closed,
    /// The path is not used.
    Open,
}

/// State of a canary at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CanaryState {
    /// Unit of the shares.
    pub unit: ShareUnit,
    /// Peers that may select a path.
    pub trusted: Trusted,
    /// Whether responses report their path.
    pub report: bool,
    /// Whether there is a token. Without one, no request selects a path.
    pub has_token: bool,
    /// Accepted selections of a path, even if the path was disabled.
    pub heard: u64,
    /// Refused selections of a path: peer not trusted, no token or a wrong one, or no such path.
    pub refused: u64,
    /// All paths, [`SendStrategy::Auto`] first.
    pub paths: Vec<PathState>,
}

/// State of a path at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PathState {
    /// The path.
    pub path: SendStrategy,
    /// Share in percent.
    pub share: f64,
    /// Requests that took the path; for `auto`, also those of unknown connections.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that the peer ended before the response was complete.
    pub resets: u64,
    /// 99th percentile of the latency in the window of the [`Thresholds`], rounded up by at most a half, up to 50 s.
    pub p99: Option<Duration>,
    /// State of the breaker.
    pub breaker: BreakerState,
    /// Time until an open breaker admits probes.
    pub opens_for: Duration,
    /// Trips of the breaker.
    pub trips: u64,
    /// Peers excluded from the path because they ended too many responses early.
    pub peers_out: usize,
}

impl CanaryHandle {
    pub(super) fn new(shared: Arc<CanaryShared>) -> Self {
        Self { shared }
    }

    /// Changes the share of a path, in percent. Connections that keep a path choose again, unless they selected it.
    ///
    /// # Errors
    ///
    /// `ErrorKind::InvalidInput` if `percent` is not from 0 to 100, if the other paths leave less, or if the path is
    /// [`SendStrategy::Auto`], which has the rest.
    pub fn set_share(&self, path: SendStrategy, percent: f64) -> io::Result<()> {
        self.shared.shares.set(path, percent)
    }

    /// Changes the token. Without one, no request selects a path.
    ///
    /// # Errors
    ///
    /// `ErrorKind::InvalidInput` for an invalid token; see [`CanaryBuilder::token`](super::CanaryBuilder::token).
    pub fn set_token(&self, token: Option<&str>) -> io::Result<()> {
        let token = token.map(Token::new).transpose()?;
        *self.shared.token.write().unwrap_or_else(PoisonError::into_inner) = token;
        Ok(())
    }

    /// Changes the peers that may select a path. HTTP/2 connections keep earlier selections.
    pub fn set_trusted(&self, trusted: Trusted) {
        *self.shared.trusted.write().unwrap_or_else(PoisonError::into_inner) = trusted;
    }

    /// Changes the unit of the shares. Connections that keep a path choose again, unless they selected it.
    pub fn set_unit(&self, unit: ShareUnit) {
        self.shared.set_unit(unit);
    }

    /// Changes the thresholds. Earlier samples and requests in progress no longer count. A disabled path stays disabled
    /// until the end of its cool-down, unless it is [cleared](Self::clear).
    pub fn set_thresholds(&self, thresholds: &Thresholds) {
        self.shared.breakers.iter().for_each(|breaker| breaker.set_thresholds(thresholds));
    }

    /// Sets whether responses report their path as `x-millstream-path`.
    pub fn set_report(&self, on: bool) {
        self.shared.report.store(on, Ordering::Relaxed);
    }

    /// Pins the breaker of a path until it is unpinned.
    pub fn pin(&self, path: SendStrategy, pin: BreakerPin) {
        self.shared.breakers[path as usize].pin(Some(pin == BreakerPin::Closed));
    }

    /// Unpins the breaker of a path. It is closed, and may trip.
    pub fn unpin(&self, path: SendStrategy) {
        self.shared.breakers[path as usize].pin(None);
    }

    /// Closes and unpins the breaker of a path, for all peers, and forgets the causes of its trips.
    pub fn clear(&self, path: SendStrategy) {
        self.shared.breakers[path as usize].clear();
    }

    /// Returns the current state. Takes some microseconds, and the locks of breakers that are not closed.
    pub fn state(&self) -> CanaryState {
        let shared = &self.shared;
        let now = shared.since_start(Instant::now());
        let path = |path: SendStrategy| {
            let status = shared.breakers[path as usize].status(now);
            let sum = |count: fn(&PathStats) -> &_| {
                let counts = shared.stats[path as usize].iter().map(count);
                counts.map(|count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed)).sum()
            };
            PathState {
                path,
                share: shared.shares.get(path),
                requests: sum(|tally| &tally.requests),
                errors: sum(|tally| &tally.errors),
                resets: sum(|tally| &tally.resets),
                p99: status.p99,
                breaker: status.state,
                opens_for: status.opens_for,
                trips: status.trips,
                peers_out: status.peers_out,
            }
        };
        CanaryState {
            unit: shared.unit(),
            trusted: shared.trusted.read().unwrap_or_else(PoisonError::into_inner).clone(),
            report: shared.report.load(Ordering::Relaxed),
            has_token: shared.token.read().unwrap_or_else(PoisonError::into_inner).is_some(),
            heard: shared.heard.load(Ordering::Relaxed),
            refused: shared.refused.load(Ordering::Relaxed),
            paths: PATHS.into_iter().map(path).collect(),
        }
    }
}

impl fmt::Debug for CanaryHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CanaryHandle").field("state", &self.state()).finish()
    }
}
