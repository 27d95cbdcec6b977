//! Strategies of writes, for diagnosis and comparisons.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

/// Strategy of a stream's writes. All strategies send the same bytes in the same order; each of the others disables an
/// optimization of [`Auto`](Self::Auto).
///
/// Set for new streams by the builders of listeners and connectors, and for a live one by
/// [`Handle::set_send_strategy`](super::Handle::set_send_strategy). A change takes effect with the next write or flush.
/// [`copy`](mod@crate::copy) chooses its paths by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendStrategy {
    /// The best way for each write.
    #[default]
    Auto,
    /// File contents are sent from their mapping by `sendmsg`, which may wait for the disk.
    NoSendfile,
    /// Every write is sent at once, with the bytes queued before it.
    NoCork,
}

impl SendStrategy {
    /// All strategies, in the order of their numbers.
    pub const ALL: &[Self] = &[Self::Auto, Self::NoSendfile, Self::NoCork];

    /// Returns the name that [`Display`](fmt::Display) writes and [`FromStr`] reads.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::NoSendfile => "no-sendfile",
            Self::NoCork => "no-cork",
        }
    }
}

impl fmt::Display for SendStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for SendStrategy {
    type Err = io::Error;

    /// Parses the name written by [`Display`](fmt::Display); the error, `ErrorKind::InvalidInput`, lists all names.
    fn from_str(name: &str) -> io::Result<Self> {
        Self::ALL.iter().copied().find(|strategy| strategy.as_str() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().copied().map(Self::as_str).collect();
            let names = names.join(", ");
            io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` is not a send strategy; use one of {names}"))
        })
    }
}

#[derive(Debug)]
pub(super) struct StrategySwitch(AtomicU8);

impl StrategySwitch {
    pub(super) fn new(strategy: SendStrategy) -> Self {
        Self(AtomicU8::new(strategy as u8))
    }

    #[inline]
    pub(super) fn get(&self) -> SendStrategy {
        // Relaxed: the value orders nothing, and any write may be the first to see it.
        SendStrategy::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }

    pub(super) fn set(&self, strategy: SendStrategy) {
        self.0.store(strategy as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_are_read_by_the_names_they_are_written_by() {
        for (n, strategy) in SendStrategy::ALL.iter().copied().enumerate() {
            assert_eq!(strategy as usize, n, "the number of {strategy}");
            assert_eq!(strategy.to_string().parse::<SendStrategy>().unwrap(), strategy);
            let switch = StrategySwitch::new(SendStrategy::Auto);
            switch.set(strategy);
            assert_eq!(switch.get(), strategy);
        }
        let error = "sendfile".parse::<SendStrategy>().unwrap_err().to_string();
        assert_eq!(error, "`sendfile` is not a send strategy; use one of auto, no-sendfile, no-cork");
    }
}
