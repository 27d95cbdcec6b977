//! Limits the number of connections, in total and by address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::refused::Refused;
use crate::counters::log;
use crate::counters::{Counter, count};
use crate::server::limits::Limits;

/// Shortest time between two log lines about refused connections.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Origin of connections that count together. All addresses of an IPv6 network count together, because one client may
/// own the whole network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    Four([u8; 4]),
    Six([u8; 8]),
}

impl Origin {
    fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::Four(ip.octets()),
            IpAddr::V6(ip) => {
                let [a, b, c, d, e, f, g, h, ..] = ip.octets();
                Self::Six([a, b, c, d, e, f, g, h])
            }
        }
    }
}

#[derive(Debug, Default)]
pub(in crate::server) struct ConnLimiter {
    counts: Mutex<Counts>,
    pub(in crate::server) refused: Arc<Refused>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    from: HashMap<Origin, usize>,
    refusals: Refusals,
}

/// Permission for one connection, returned when this is dropped.
#[derive(Debug)]
pub(in crate::server) struct Permit {
    limiter: Arc<ConnLimiter>,
    origin: Option<Origin>,
}

impl ConnLimiter {
    /// Admits one more connection, unless a limit is reached. Refusals are counted and logged.
    pub(in crate::server) fn admit(self: &Arc<Self>, ip: Option<IpAddr>, limits: &Limits) -> Option<Permit> {
        let origin = ip.filter(|&ip| !limits.exempt.contains(ip)).map(Origin::of);
        let mut counts = self.counts();
        let beyond = counts.admit(origin, limits).err();
        let report = counts.refusals.note(beyond.map(|limit| (ip, limit)), Instant::now);
        drop(counts);
        if let Some(Report { refused, address, limit }) = report {
            log::connections_refused(refused, address, limit);
        }
        match beyond {
            Some(_) => {
                count(Counter::ConnectionsRefused, 1);
                None
            }
            None => Some(Permit { limiter: Arc::clone(self), origin }),
        }
    }

    /// Returns the number of connections.
    pub(in crate::server) fn open(&self) -> usize {
        self.counts().all
    }

    #[cfg(test)]
    fn totals(&self) -> (usize, usize) {
        let counts = self.counts();
        (counts.all, counts.from.len())
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Counts one more connection, or returns the name of the limit that forbids it.
    fn admit(&mut self, origin: Option<Origin>, limits: &Limits) -> Result<(), &'static str> {
        if self.all >= limits.connections {
            return Err("connections");
        }
        if let Some(origin) = origin {
            match self.from.entry(origin) {
                Entry::Occupied(from) if *from.get() >= limits.per_address => return Err("per_address"),
                Entry::Vacant(_) if limits.per_address == 0 => return Err("per_address"),
                from => *from.or_default() += 1,
            }
        }
        self.all += 1;
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Refusals {
    unreported: u64,
    /// Address of the last refused connection, and the limit that it exceeded.
    last: Option<(Option<IpAddr>, &'static str)>,
    reported: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
struct Report {
    refused: u64,
    address: Option<IpAddr>,
    limit: &'static str,
}

impl Refusals {
    /// Records a refused connection, or nothing for `None`. Returns the report if one is due. Reads the clock only if
    /// there is something to report.
    fn note(
        &mut self,
        refused: Option<(Option<IpAddr>, &'static str)>,
        now: impl FnOnce() -> Instant,
    ) -> Option<Report> {
        if refused.is_some() {
            self.unreported += 1;
            self.last = refused;
        }
        let (address, limit) = self.last.filter(|_| self.unreported > 0)?;
        let now = now();
        if self.reported.is_some_and(|reported| now.duration_since(reported) < REPORT_EVERY) {
            return None;
        }
        self.reported = Some(now);
        Some(Report { refused: std::mem::take(&mut self.unreported), address, limit })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.limiter.counts();
        counts.all -= 1;
        let Some(origin) = self.origin else { return };
        if let Entry::Occupied(mut from) = counts.from.entry(origin) {
            *from.get_mut() -= 1;
            if *from.get() == 0 {
                from.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests;
