//! State shared by all clones of a canary: settings, which change, and counts.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use super::breaker::{Breaker, Thresholds, Ticket};
use super::shares::{Draws, PATHS, ShareUnit, Shares};
use super::strategies::Strategies;
use super::token::Token;
use millstream::internal::{Counter, count};
use millstream::net::SendStrategy;
use millstream::server::Connection;
use millstream::server::Trusted;

/// Selects a path, in requests of trusted peers: `<path>;<token>`.
pub(super) const ASK: HeaderName = HeaderName::from_static("x-millstream-canary");
/// Reports the path of a response.
pub(super) const REPORT: HeaderName = HeaderName::from_static("x-millstream-path");

/// Number of shards. A thread always adds to the same shard; several threads may share one.
const SHARDS: usize = 8;

#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct PathStats {
    pub(super) requests: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) resets: AtomicU64,
}

#[derive(Debug)]
pub(super) struct CanaryShared {
    pub(super) trusted: RwLock<Trusted>,
    by_connection: AtomicBool,
    pub(super) shares: Shares,
    pub(super) token: RwLock<Option<Token>>,
    pub(super) report: AtomicBool,
    pub(super) breakers: [Breaker; PATHS.len()],
    pub(super) stats: [[PathStats; SHARDS]; PATHS.len()],
    /// Selections of a path that were accepted, and refused.
    pub(super) heard: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Separate, so that each is exact.
    requests: Draws,
    connections: Draws,
    start: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) path: SendStrategy,
    /// `None` if no breaker admits the request, which takes `no-cork` then.
    pub(super) ticket: Option<Ticket>,
    /// The path in use, if the response reports it.
    pub(super) reported: Option<SendStrategy>,
}

pub(super) fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
    }
    MINE.get()
}

impl CanaryShared {
    pub(super) fn new(
        trusted: Trusted,
        thresholds: &Thresholds,
        unit: ShareUnit,
        shares: Shares,
        token: Option<Token>,
        report: bool,
    ) -> Self {
        Self {
            trusted: RwLock::new(trusted),
            by_connection: AtomicBool::new(unit == ShareUnit::Connections),
            shares,
            token: RwLock::new(token),
            report: AtomicBool::new(report),
            breakers: std::array::from_fn(|_| Breaker::new(thresholds.clone(), SHARDS)),
            stats: Default::default(),
            heard: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            requests: Draws::default(),
            connections: Draws::default(),
            start: Instant::now(),
        }
    }

    pub(super) fn unit(&self) -> ShareUnit {
        if self.by_connection.load(Ordering::Relaxed) { ShareUnit::Connections } else { ShareUnit::Requests }
    }

    pub(super) fn set_unit(&self, unit: ShareUnit) {
        self.by_connection.store(unit == ShareUnit::Connections, Ordering::Relaxed);
        self.shares.have_changed();
    }

    pub(super) fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }

    /// Removes the header that selects a path, and returns the path if the peer may select it.
    pub(super) fn asked(&self, headers: &mut HeaderMap, peer: Option<IpAddr>) -> Option<SendStrategy> {
        if !headers.contains_key(ASK) {
            return None;
        }
        let path = self.heard(headers, peer);
        let mine = if path.is_some() { &self.heard } else { &self.refused };
        mine.fetch_add(1, Ordering::Relaxed);
        count(Counter::CanariesRefused, path.is_none().into());
        headers.remove(ASK);
        path
    }

    fn heard(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Option<SendStrategy> {
        let trusted = self.trusted.read().unwrap_or_else(PoisonError::into_inner);
        peer.filter(|&peer| trusted.contains(peer))?;
        let mut values = headers.get_all(ASK).iter();
        let value = values.next().filter(|_| values.next().is_none())?.as_bytes();
        let (path, token) = value.split_at_checked(value.iter().position(|&b| b == b';')?)?;
        let expected = self.token.read().unwrap_or_else(PoisonError::into_inner);
        // The token is compared before the path is looked up.
        expected.as_ref().filter(|expected| expected.is(&token[1..]))?;
        PATHS.into_iter().find(|&known| known.as_str().as_bytes() == path)
    }

    /// Returns the path for a request, regardless of breakers.
    pub(super) fn wanted(
        &self,
        connection: &Connection,
        asked: Option<SendStrategy>,
        multiplexed: bool,
    ) -> SendStrategy {
        let keeps = multiplexed || self.unit() == ShareUnit::Connections;
        if !keeps {
            return asked.unwrap_or_else(|| self.shares.draw(&self.requests));
        }
        // 32 bits for the version of the shares, a bit for a selected path, and the number of the path, from 1.
        let version = self.shares.version();
        let pack =
            |path: SendStrategy, asked: bool| u64::from(version) << 32 | u64::from(asked) << 8 | (path as u64 + 1);
        let kept = Strategies::of(connection).kept.load(Ordering::Relaxed);
        let of_kept = (kept & 0xff).checked_sub(1).map(|n| PATHS[n as usize]);
        match (asked, of_kept) {
            // For this request only: no other shares the socket.
            (Some(path), _) if !multiplexed => path,
            (Some(path), _) => {
                Strategies::of(connection).kept.store(pack(path, true), Ordering::Relaxed);
                path
            }
            (None, Some(path)) if kept >> 8 & 1 == 1 || (kept >> 32) as u32 == version => path,
            _ => {
                let path = self.shares.draw(&self.connections);
                Strategies::of(connection).kept.store(pack(path, false), Ordering::Relaxed);
                path
            }
        }
    }

    /// Returns the path that the breakers admit for a request.
    pub(super) fn choose(
        &self,
        wanted: SendStrategy,
        base: SendStrategy,
        peer: Option<IpAddr>,
        now: Instant,
    ) -> Chosen {
        let now = self.since_start(now);
        // Requests outside the shares take the listener's path.
        let wanted = if wanted == SendStrategy::Auto { base } else { wanted };
        let tried = [wanted, base, SendStrategy::NoCork];
        let admitted = tried.into_iter().enumerate().find_map(|(n, path)| {
            if tried[..n].contains(&path) {
                return None;
            }
            let ticket = self.breakers[path as usize].admit(peer, now)?;
            Some(Chosen { path, ticket: Some(ticket), reported: None })
        });
        admitted.unwrap_or(Chosen { path: SendStrategy::NoCork, ticket: None, reported: None })
    }

    pub(super) fn unchanged(&self) -> Chosen {
        Chosen { path: SendStrategy::Auto, ticket: None, reported: None }
    }

    pub(super) fn reported(&self, connection: &Connection) -> Option<SendStrategy> {
        if self.report.load(Ordering::Relaxed) { connection.handle().send_strategy() } else { None }
    }
}

impl Chosen {
    pub(super) fn report(self) -> Option<HeaderValue> {
        self.reported.map(|path| HeaderValue::from_static(path.as_str()))
    }
}

pub(super) fn take(connection: &Connection, path: SendStrategy) {
    let current = &Strategies::of(connection).current;
    if current.load(Ordering::Relaxed) != path as u8 {
        connection.handle().set_send_strategy(path);
        current.store(path as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_in_order() {
        for (n, path) in PATHS.into_iter().enumerate() {
            assert_eq!(path as usize, n);
        }
    }
}
