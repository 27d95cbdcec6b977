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

/// Outcome of a response.
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
        // Each set is always searched among the same places; otherwise it could get two.
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
mod tests;
