//! A canary seen from outside: what is changed while requests run, and how the paths do.

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Unit;
use super::shared::{PATHS, PathStats, Shared};
use super::token::Token;
use crate::middleware::canary::breaker::{State, Thresholds};
use crate::net::IoPath;
use crate::server::Trusted;

/// Changes a canary while requests run, and tells how its paths do. Cheap to clone. Requests that have begun end as they
/// began; those that come see the change at once.
#[derive(Clone)]
pub struct CanaryHandle {
    shared: Arc<Shared>,
}

/// How a breaker is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pin {
    /// The path is used, however it does.
    Closed,
    /// The path is not used.
    Open,
}

/// A canary at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CanaryState {
    /// What shares are shares of.
    pub unit: Unit,
    /// Who may ask for a path.
    pub trusted: Trusted,
    /// Whether responses say which path they took.
    pub report: bool,
    /// Whether there is a token, so that trusted peers may ask for a path.
    pub has_token: bool,
    /// Requests that asked for a path and got it, or would have if the path had been well.
    pub heard: u64,
    /// Requests that asked and were not heard: not trusted, no token or a wrong one, no such path.
    pub refused: u64,
    /// All paths, [`IoPath::Auto`] first.
    pub paths: Vec<PathState>,
}

/// One path at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PathState {
    /// Which.
    pub path: IoPath,
    /// Its share, in percent.
    pub share: f64,
    /// Requests that took it; with `auto` those whose connection is not known.
    pub requests: u64,
    /// Those that failed.
    pub errors: u64,
    /// Those that their peer ended before the answer was whole.
    pub resets: u64,
    /// What 99 of 100 answers within the window of the [`Thresholds`] did not exceed, rounded
    /// up by at most a half; longer than 50 s is told as 50 s.
    pub p99: Option<Duration>,
    /// Whether it is used.
    pub breaker: State,
    /// Until an open breaker lets probes through.
    pub opens_for: Duration,
    /// How often its breaker has tripped.
    pub trips: u64,
    /// Peers that go without it, because they ended too many answers.
    pub peers_out: usize,
}

impl CanaryHandle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Changes the share of a path, in percent. Connections that keep a path choose anew, unless they asked for it.
    ///
    /// # Errors
    ///
    /// `ErrorKind::InvalidInput`: not from 0 to 100, more than the others leave, or the path is [`IoPath::Auto`], which has
    /// what is left.
    pub fn set_share(&self, path: IoPath, percent: f64) -> io::Result<()> {
        self.shared.shares.set(path, percent)
    }

    /// Changes the token; without one nobody can ask for a path any more.
    ///
    /// # Errors
    ///
    /// `ErrorKind::InvalidInput`: see [`CanaryBuilder::token`](super::CanaryBuilder::token).
    pub fn set_token(&self, token: Option<&str>) -> io::Result<()> {
        let token = token.map(Token::new).transpose()?;
        *self.shared.token.write().unwrap_or_else(PoisonError::into_inner) = token;
        Ok(())
    }

    /// Changes who may ask for a path. Connections of HTTP/2 keep what was asked for before.
    pub fn set_trusted(&self, trusted: Trusted) {
        *self.shared.trusted.write().unwrap_or_else(PoisonError::into_inner) = trusted;
    }

    /// Changes what shares are shares of. Connections that keep a path choose anew, unless they asked for it.
    pub fn set_unit(&self, unit: Unit) {
        self.shared.set_unit(unit);
    }

    /// Changes when paths are given up, and for how long. What was counted by the old thresholds is forgotten, and answers
    /// that are under way are not counted by the new ones. A path that is given up stays so until the end of its cool-down;
    /// [`clear`](Self::clear) takes it at once.
    pub fn set_thresholds(&self, thresholds: &Thresholds) {
        self.shared.breakers.iter().for_each(|breaker| breaker.set_thresholds(thresholds));
    }

    /// Whether responses say which path they took, as `x-millstream-path`.
    pub fn set_report(&self, on: bool) {
        self.shared.report.store(on, Ordering::Relaxed);
    }

    /// Holds the breaker of a path, until it is let go of.
    pub fn pin(&self, path: IoPath, pin: Pin) {
        self.shared.breakers[path as usize].pin(Some(pin == Pin::Closed));
    }

    /// Lets go of the breaker of a path: it is closed, and may trip.
    pub fn unpin(&self, path: IoPath) {
        self.shared.breakers[path as usize].pin(None);
    }

    /// Closes the breaker of a path, for all peers, and forgets what led to its trips. One that is held is let go of.
    pub fn clear(&self, path: IoPath) {
        self.shared.breakers[path as usize].clear();
    }

    /// How everything is. Takes some microseconds, and locks that requests take only where a breaker is not closed.
    pub fn state(&self) -> CanaryState {
        let shared = &self.shared;
        let now = shared.since_start(Instant::now());
        let path = |path: IoPath| {
            let status = shared.breakers[path as usize].status(now);
            let sum = |count: fn(&PathStats) -> &_| {
                let counts = shared.tallies[path as usize].iter().map(count);
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
