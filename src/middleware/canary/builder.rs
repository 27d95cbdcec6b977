//! How a canary begins.

use std::io;
use std::sync::Arc;

use super::shared::{PATHS, Shared};
use super::shares::Shares;
use super::token::Token;
use super::{CanaryLayer, Unit};
use crate::middleware::canary::breaker::Thresholds;
use crate::net::IoPath;
use crate::server::Trusted;

/// Settings of a [`CanaryLayer`]; made by [`CanaryLayer::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build"]
pub struct CanaryBuilder {
    trusted: Trusted,
    thresholds: Thresholds,
    unit: Unit,
    breaks_auto: bool,
    shares: Vec<(IoPath, f64)>,
    token: Option<Token>,
    refused: Option<String>,
    report: bool,
}

impl CanaryBuilder {
    pub(super) fn new() -> Self {
        Self {
            trusted: Trusted::nobody(),
            thresholds: Thresholds::default(),
            unit: Unit::Requests,
            breaks_auto: false,
            shares: Vec::new(),
            token: None,
            refused: None,
            report: false,
        }
    }

    /// The share of requests or connections that take `path`, in percent, to a hundredth. 0 for each path unless set; what is
    /// left, which is the share of [`IoPath::Auto`], takes the listener's path. Exact: whole percents over any hundred, others
    /// over any ten thousand, of all threads together, spread evenly.
    pub fn share(mut self, path: IoPath, percent: f64) -> Self {
        self.shares.push((path, percent));
        self
    }

    /// What shares are shares of. [`Unit::Requests`] unless set.
    pub fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// Who may ask for a path by a header. Nobody unless set.
    pub fn trusted(mut self, trusted: Trusted) -> Self {
        self.trusted = trusted;
        self
    }

    /// The token that a request needs to ask for a path, besides coming from a [trusted](Self::trusted) peer:
    /// `x-millstream-canary: no-sendfile;<token>`. From 16 to 128 visible ASCII characters; compared in constant time. Without
    /// one nobody can ask. The header is taken off each request, whoever sends it.
    pub fn token(mut self, token: &str) -> Self {
        match Token::new(token) {
            Ok(token) => (self.token, self.refused) = (Some(token), None),
            Err(error) => self.refused = Some(error.to_string()),
        }
        self
    }

    /// Whether responses say which path they took, as `x-millstream-path`: what really runs, so `epoll` where the share was of
    /// `uring` and the thread has no ring. They do not unless turned on.
    pub fn report(mut self, on: bool) -> Self {
        self.report = on;
        self
    }

    /// When a path is given up, and for how long.
    pub fn thresholds(mut self, thresholds: Thresholds) -> Self {
        self.thresholds = thresholds;
        self
    }

    /// Whether [`IoPath::Auto`] is given up like the others, for `epoll`. It is not unless turned on.
    pub fn breaks_auto(mut self, on: bool) -> Self {
        self.breaks_auto = on;
        self
    }

    /// Makes the layer.
    ///
    /// # Errors
    ///
    /// `ErrorKind::InvalidInput`: a share is not from 0 to 100, or one of `auto`, or together they are more than 100; or the
    /// token is too short, too long, or has other characters.
    pub fn build(self) -> io::Result<CanaryLayer> {
        if let Some(refused) = self.refused {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, refused));
        }
        let shares = Shares::default();
        for (path, percent) in self.shares {
            shares.set(path, percent)?;
        }
        let shared = Shared::new(self.trusted, &self.thresholds, self.unit, shares, self.token, self.report);
        if !self.breaks_auto {
            shared.breakers[IoPath::Auto as usize].pin(Some(true));
        }
        debug_assert_eq!(PATHS[IoPath::Auto as usize], IoPath::Auto);
        Ok(CanaryLayer { shared: Arc::new(shared) })
    }
}
