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

/// Origin of connections that count together. A network of IPv6 counts as one, because one client may have all of it.
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
    /// Records a refused connection, or `None`. Returns the report that is due. Reads the clock only if there is one.
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
mod tests {
    use super::*;

    fn admit(limiter: &Arc<ConnLimiter>, ip: &str, limits: &Limits) -> Option<Permit> {
        limiter.admit(Some(ip.parse().unwrap()), limits)
    }

    #[test]
    fn an_address_and_a_network_have_so_many_and_no_more() {
        let (limiter, limits) = (Arc::default(), Limits::default().per_address(2));
        for same in [["192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"], ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:f::"]]
        {
            let two: Vec<_> = same[..2].iter().map(|ip| admit(&limiter, ip, &limits).unwrap()).collect();
            assert!(admit(&limiter, same[2], &limits).is_none(), "{same:?}");
            let other = ["192.0.2.2", "2001:db8:0:1::1"].map(|ip| admit(&limiter, ip, &limits).unwrap());
            drop(two);
            drop(admit(&limiter, same[2], &limits).unwrap());
            drop(other);
        }
        assert_eq!(limiter.totals(), (0, 0));
    }

    #[test]
    fn the_total_is_limited_and_exempt_networks_have_no_limit_of_their_own() {
        let (limiter, limits) = (Arc::default(), Limits::default().per_address(1).connections(8));
        let near = ["127.0.0.1", "127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "10.0.0.1", "fd00::1"];
        let near: Vec<_> = near.map(|ip| admit(&limiter, ip, &limits).unwrap()).into();
        let unix = limiter.admit(None, &limits).unwrap();
        assert!(admit(&limiter, "192.0.2.1", &limits).is_none(), "the ninth");
        assert!(limiter.admit(None, &limits).is_none());
        drop((near, unix));
        let limits = limits.exempt("192.0.2.0/24".parse().unwrap());
        let two = ["192.0.2.1"; 2].map(|ip| admit(&limiter, ip, &limits).unwrap());
        let one = admit(&limiter, "127.0.0.1", &limits).unwrap();
        assert!(admit(&limiter, "127.0.0.1", &limits).is_none());
        drop((one, two));
        assert_eq!(limiter.totals(), (0, 0));
        assert!(admit(&limiter, "198.51.100.1", &limits.per_address(0)).is_none());
        assert_eq!(limiter.totals(), (0, 0));
    }

    #[test]
    fn refusals_are_reported_at_a_bounded_rate_and_none_is_left_out() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let mut at = |seconds, refused: Option<&str>| {
            let refused = refused.map(|ip| (Some(ip.parse().unwrap()), "per_address"));
            refusals.note(refused, || start + Duration::from_secs(seconds))
        };
        let report =
            |refused, ip: &str| Some(Report { refused, address: Some(ip.parse().unwrap()), limit: "per_address" });
        assert_eq!(at(0, None), None);
        assert_eq!(at(0, Some("192.0.2.1")), report(1, "192.0.2.1"));
        for _ in 0..500 {
            assert_eq!(at(9, Some("192.0.2.2")), None);
        }
        assert_eq!(at(9, None), None);
        assert_eq!(at(10, Some("192.0.2.3")), report(501, "192.0.2.3"));
        assert_eq!(at(11, Some("192.0.2.4")), None);
        assert_eq!(at(20, None), report(1, "192.0.2.4"), "reported by an admitted connection");
        assert_eq!(at(40, None), None, "nothing is left");
    }
}
