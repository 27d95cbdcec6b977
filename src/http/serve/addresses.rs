//! How many connections there are, in all and from where.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::limits::Limits;

/// Whose connections are counted together: an IPv4 address, or the network of an IPv6 address, which one client may have
/// all of.
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

/// The connections of a server, of all its cores.
#[derive(Debug, Default)]
pub(super) struct Census {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    from: HashMap<Origin, usize>,
}

/// The right of one connection to be there, given back when this is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    census: Arc<Census>,
    origin: Option<Origin>,
}

impl Census {
    /// Lets one more connection in, unless there are as many as there may be.
    pub(super) fn admit(self: &Arc<Self>, ip: Option<IpAddr>, limits: &Limits) -> Option<Permit> {
        let counted = |ip: &IpAddr| limits.count_loopback || !ip.to_canonical().is_loopback();
        let origin = ip.filter(counted).map(Origin::of);
        let mut counts = self.counts();
        if counts.all >= limits.connections {
            return None;
        }
        if let Some(origin) = origin {
            match counts.from.entry(origin) {
                Entry::Occupied(from) if *from.get() >= limits.per_address => return None,
                Entry::Vacant(_) if limits.per_address == 0 => return None,
                from => *from.or_default() += 1,
            }
        }
        counts.all += 1;
        Some(Permit { census: Arc::clone(self), origin })
    }

    /// How many there are, and of how many addresses.
    #[cfg(test)]
    fn totals(&self) -> (usize, usize) {
        let counts = self.counts();
        (counts.all, counts.from.len())
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.census.counts();
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

    fn admit(census: &Arc<Census>, ip: &str, limits: &Limits) -> Option<Permit> {
        census.admit(Some(ip.parse().unwrap()), limits)
    }

    #[test]
    fn an_address_and_a_network_have_so_many_and_no_more() {
        let (census, limits) = (Arc::default(), Limits::default().per_address(2));
        for same in [["192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"], ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:f::"]]
        {
            let two: Vec<_> = same[..2].iter().map(|ip| admit(&census, ip, &limits).unwrap()).collect();
            assert!(admit(&census, same[2], &limits).is_none(), "{same:?}");
            let other = ["192.0.2.2", "2001:db8:0:1::1"].map(|ip| admit(&census, ip, &limits).unwrap());
            drop(two);
            drop(admit(&census, same[2], &limits).unwrap());
            drop(other);
        }
        assert_eq!(census.totals(), (0, 0));
    }

    #[test]
    fn all_together_have_so_many_and_those_of_this_machine_are_not_told_apart() {
        let (census, limits) = (Arc::default(), Limits::default().per_address(1).connections(5));
        let near: Vec<_> =
            ["127.0.0.1", "127.0.0.1", "::1", "::ffff:127.0.0.1"].map(|ip| admit(&census, ip, &limits).unwrap()).into();
        let unix = census.admit(None, &limits).unwrap();
        assert!(admit(&census, "192.0.2.1", &limits).is_none(), "the sixth");
        assert!(census.admit(None, &limits).is_none());
        drop((near, unix));
        let limits = limits.count_loopback(true);
        let one = admit(&census, "127.0.0.1", &limits).unwrap();
        assert!(admit(&census, "127.0.0.1", &limits).is_none());
        drop(one);
        assert_eq!(census.totals(), (0, 0));
        assert!(admit(&census, "192.0.2.1", &limits.per_address(0)).is_none());
        assert_eq!(census.totals(), (0, 0));
    }
}
