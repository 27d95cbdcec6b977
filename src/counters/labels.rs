//! Labels of responses, bounded for any input: methods are the standard ones or `_OTHER`, a service names at most 126
//! routes, other sets count under `_OTHER`. The table of packed labels only grows, so a look-up takes no lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Label value that stands for all values beyond a bound.
pub(super) const OTHER: &str = "_OTHER";

/// Methods by index. The last stands for all others.
pub(crate) const METHODS: [&str; 10] =
    ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT", "PATCH", "TRACE", OTHER];
const VERSIONS: [&str; 5] = ["1.1", "2", "1.0", "3", OTHER];
/// Number of route names. Route 0 is none, the first name is 1, `ROUTE_OTHER` stands for names beyond the bound.
const ROUTES: usize = 126;
const ROUTE_OTHER: u8 = ROUTES as u8 + 1;
/// Number of label sets, a power of two. The first stands for sets beyond the bound.
pub(super) const SETS: usize = 256;
/// Sets available to requests with a route. The others remain for requests without one.
const SETS_WITH_ROUTE: usize = 192;

/// ResponseOutcome of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseOutcome {
    /// The body was given to its end.
    Complete,
    /// The service or the body failed.
    Error,
    /// The response was given up before its end: the client left, or the connection closed.
    Aborted,
}

impl ResponseOutcome {
    const ALL: [Self; 3] = [Self::Complete, Self::Error, Self::Aborted];

    /// Returns the name used in labels and spans.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Error => "error",
            Self::Aborted => "aborted",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Labels {
    pub(crate) method: u8,
    pub(crate) version: u8,
    /// 0 without a status.
    pub(crate) status: u16,
    pub(crate) route: u8,
    pub(crate) outcome: ResponseOutcome,
}

impl Labels {
    const OVERFLOW: Self = Self {
        method: METHODS.len() as u8 - 1,
        version: VERSIONS.len() as u8 - 1,
        status: 0,
        route: ROUTE_OTHER,
        outcome: ResponseOutcome::Complete,
    };

    /// Packs the labels into a key. Never 0, which marks a free place.
    fn pack(self) -> u64 {
        1 << 63
            | u64::from(self.method)
            | u64::from(self.version) << 8
            | u64::from(self.status) << 16
            | u64::from(self.route) << 32
            | (self.outcome as u64) << 40
    }

    fn unpack(key: u64) -> Self {
        Self {
            method: key as u8,
            version: (key >> 8) as u8,
            status: (key >> 16) as u16,
            route: (key >> 32) as u8,
            outcome: ResponseOutcome::ALL[(key >> 40) as usize & 3],
        }
    }
}

/// Keys of the sets that have occurred.
pub(super) struct Table([AtomicU64; SETS]);

pub(super) static TABLE: Table = Table([const { AtomicU64::new(0) }; SETS]);

impl Table {
    pub(super) fn place(&self, labels: Labels) -> usize {
        // Each set is always searched among the same places, or it could get two.
        let limit = if matches!(labels.route, 0 | ROUTE_OTHER) { SETS } else { SETS_WITH_ROUTE };
        let routeless = || self.find(Labels { route: ROUTE_OTHER, ..labels }, SETS);
        self.find(labels, limit).or_else(routeless).unwrap_or(0)
    }

    /// Returns the place of a set, or claims a free one among the first `limit`. Relaxed: keys guard no other data.
    fn find(&self, labels: Labels, limit: usize) -> Option<usize> {
        let key = labels.pack();
        let places = limit - 1;
        let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % places;
        (0..places).map(|step| 1 + (first + step) % places).find(|&at| {
            let found = self.0[at].load(Ordering::Relaxed);
            found == key
                || found == 0
                    && match self.0[at].compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed) {
                        Ok(_) => true,
                        Err(other) => other == key,
                    }
        })
    }

    pub(super) fn labels(&self, at: usize) -> Labels {
        match self.0[at].load(Ordering::Relaxed) {
            0 => Labels::OVERFLOW,
            key => Labels::unpack(key),
        }
    }
}

struct Names([OnceLock<Box<str>>; ROUTES]);

static NAMES: Names = Names([const { OnceLock::new() }; ROUTES]);

impl Names {
    fn number(&self, name: &str) -> u8 {
        // FNV-1a: names are short and chosen by the service.
        let hash =
            name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        let first = (hash % ROUTES as u64) as usize;
        let mut places = (0..ROUTES).map(|step| (first + step) % ROUTES);
        let found = places.find(|&at| &**self.0[at].get_or_init(|| name.into()) == name);
        found.map_or(ROUTE_OTHER, |at| at as u8 + 1)
    }

    fn name(&self, number: u8) -> Option<&str> {
        match number {
            0 => None,
            ROUTE_OTHER => Some(OTHER),
            number => self.0.get(usize::from(number) - 1)?.get().map(|name| &**name),
        }
    }
}

pub(crate) fn version_name(number: u8) -> &'static str {
    VERSIONS[usize::from(number)]
}

pub(crate) fn route(name: &str) -> u8 {
    NAMES.number(name)
}

pub(crate) fn route_name(number: u8) -> Option<&'static str> {
    NAMES.name(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: Labels = Labels { method: 0, version: 0, status: 200, route: 0, outcome: ResponseOutcome::Complete };

    #[test]
    fn labels_are_packed_without_loss() {
        for outcome in ResponseOutcome::ALL {
            let labels = Labels { method: 9, version: 4, status: 599, route: ROUTE_OTHER, outcome };
            assert_eq!(Labels::unpack(labels.pack()), labels);
            assert_eq!(Labels::unpack(Labels { outcome, ..LABELS }.pack()).outcome, outcome);
        }
    }

    #[test]
    fn sets_keep_their_places_up_to_a_bound() {
        let table = Table([const { AtomicU64::new(0) }; SETS]);
        let with_route =
            |n: usize| Labels { route: 1 + (n % ROUTES) as u8, status: 200 + (n / ROUTES) as u16, ..LABELS };
        let places: Vec<usize> = (0..1000).map(|n| table.place(with_route(n))).collect();
        let again: Vec<usize> = (0..1000).map(|n| table.place(with_route(n))).collect();
        assert_eq!(places, again);
        let own = places.iter().filter(|&&at| table.labels(at).route != ROUTE_OTHER).count();
        assert_eq!(own, SETS_WITH_ROUTE - 1, "only the first sets have places");
        for (n, &place) in places.iter().enumerate().take(own) {
            assert_eq!(table.labels(place), with_route(n));
        }
        // Sets without a route still find room, down to the last place.
        for status in 100..600 {
            let at = table.place(Labels { status, ..LABELS });
            let kept = table.labels(at);
            assert!(
                kept == Labels { status, ..LABELS } || kept.route == ROUTE_OTHER && [status, 0].contains(&kept.status)
            );
        }
        assert_eq!(table.place(Labels { status: 599, outcome: ResponseOutcome::Error, ..LABELS }), 0);
        assert_eq!(METHODS[usize::from(table.labels(0).method)], OTHER);
    }

    #[test]
    fn a_set_has_one_place_whichever_way_it_lost_its_route() {
        let table = Table([const { AtomicU64::new(0) }; SETS]);
        for n in 0..400u16 {
            // Beyond the bound of names, and beyond the bound of sets.
            for route in [ROUTE_OTHER, 1 + (n / 20) as u8] {
                table.place(Labels { route, status: 200 + n % 20, ..LABELS });
            }
        }
        let mut keys: Vec<_> = table.0.iter().map(|key| key.load(Ordering::Relaxed)).filter(|&key| key > 0).collect();
        keys.sort_unstable();
        let twice: Vec<_> =
            keys.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| Labels::unpack(pair[0])).collect();
        assert!(twice.is_empty() && keys.len() >= SETS_WITH_ROUTE - 1, "{twice:?} of {}", keys.len());
    }

    #[test]
    fn routes_have_names_up_to_a_bound() {
        let names = Names([const { OnceLock::new() }; ROUTES]);
        let numbers: Vec<u8> = (0..200).map(|n| names.number(&format!("/{n}"))).collect();
        for (n, &number) in numbers.iter().enumerate().take(ROUTES) {
            assert_eq!(names.name(number), Some(&*format!("/{n}")));
        }
        assert!(numbers[ROUTES..].iter().all(|&number| names.name(number) == Some(OTHER)));
        assert_eq!((names.number("/7"), names.name(0)), (numbers[7], None));
    }
}
