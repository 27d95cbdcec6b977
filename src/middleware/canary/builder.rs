//! Settings of a canary.

use std::io;
use std::sync::Arc;

use super::shared::{PATHS, Shared};
use super::shares::Shares;
use super::token::Token;
use super::{CanaryLayer, ShareUnit};
use crate::middleware::canary::breaker::Thresholds;
use crate::net::SendStrategy;
use crate::server::Trusted;

/// Builder of a [`CanaryLayer`], from [`CanaryLayer::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing unless `build` is called"]
pub struct CanaryBuilder {
    trusted: Trusted,
    thresholds: Thresholds,
    unit: ShareUnit,
    breaks_auto: bool,
    shares: Vec<(SendStrategy, f64)>,
    token: Option<Token>,
    refused: Option<String>,
    report: bool,
}

impl CanaryBuilder {
    pub(super) fn new() -> Self {
        Self {
            trusted: Trusted::nobody(),
            thresholds: Thresholds::default(),
            unit: ShareUnit::Requests,
            breaks_auto: false,
            shares: Vec::new(),
            token: None,
            refused: None,
            report: false,
        }
    }

    /// Sets the share of requests or connections that take `path`, in percent, to a hundredth; 0 by default. The rest,
    /// the share of [`SendStrategy::Auto`], takes the listener's path. Shares are evenly spread over all threads, and exact
    /// over any ten thousand, whole percents over any hundred.
    pub fn share(mut self, path: SendStrategy, percent: f64) -> Self {
        self.shares.push((path, percent));
        self
    }

    /// Sets the unit of the shares; [`ShareUnit::Requests`] by default.
    pub fn unit(mut self, unit: ShareUnit) -> Self {
        self.unit = unit;
        self
    }

    /// Sets the peers that may select a path by a header; none by default.
    pub fn trusted(mut self, trusted: Trusted) -> Self {
        self.trusted = trusted;
        self
    }

    /// Sets the token that a [trusted](Self::trusted) peer needs to select a path, 16 to 128 visible ASCII characters,
    /// compared in constant time. Without it no request selects a path. The header, such as `x-millstream-canary:
    /// no-sendfile;<token>`, is removed from every request.
    pub fn token(mut self, token: &str) -> Self {
        match Token::new(token) {
            Ok(token) => (self.token, self.refused) = (Some(token), None),
            Err(error) => self.refused = Some(error.to_string()),
        }
        self
    }

    /// Sets whether responses report their path as `x-millstream-path`; off by default. It is the path in use: `epoll`
    /// for a share of `uring` on a thread without a ring.
    pub fn report(mut self, on: bool) -> Self {
        self.report = on;
        self
    }

    /// Sets the thresholds at which a path is disabled.
    pub fn thresholds(mut self, thresholds: Thresholds) -> Self {
        self.thresholds = thresholds;
        self
    }

    /// Sets whether [`SendStrategy::Auto`] may be disabled too, in favour of `epoll`; off by default.
    pub fn breaks_auto(mut self, on: bool) -> Self {
        self.breaks_auto = on;
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// `ErrorKind::InvalidInput` if a share is not from 0 to 100 or is one of `auto`, if the shares exceed 100
    /// together, or if the token is too short, too long, or has other characters.
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
            shared.breakers[SendStrategy::Auto as usize].pin(Some(true));
        }
        debug_assert_eq!(PATHS[SendStrategy::Auto as usize], SendStrategy::Auto);
        Ok(CanaryLayer { shared: Arc::new(shared) })
    }
}
