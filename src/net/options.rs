//! Options of connections.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::pace::SharedPace;
use super::profile::Profile;
use super::resumed::Resumed;
use super::send_strategy::SendStrategy;
use super::stats::StreamStats;

#[derive(Clone, Debug)]
pub(super) struct Options {
    /// Maximum time that a byte waits for more bytes; zero sends every write at once.
    pub(super) limit: Duration,
    /// Number of queued bytes above which writers wait; they are woken at half of it.
    pub(super) high: usize,
    /// Bounds of the adaptive high-water mark, if set.
    pub(super) high_range: Option<(usize, usize)>,
    pub(super) send_strategy: SendStrategy,
    pub(super) profile: Profile,
    pub(super) pace: Option<SharedPace>,
    pub(super) on_close: Option<CloseHook>,
    /// Present if another process has served the connection before.
    pub(super) resumed: Option<Arc<Resumed>>,
}

impl Options {
    /// Returns an error if an option has an invalid value.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.high_range {
            Some((low, high)) if low > high => {
                let why = format!("invalid adaptive_high_mark: {low}..={high}; allowed: the lower bound first");
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
impl Options {
    /// Options of a stream that gathers up to 1 MiB, and that only the test flushes, however late it goes on.
    pub(super) fn of_a_gathering_stream() -> Self {
        Self { limit: Duration::from_secs(3600), high: 1 << 20, ..Self::default() }
    }
}

#[derive(Clone)]
pub(super) struct CloseHook(pub(super) Arc<dyn Fn(&StreamStats) + Send + Sync>);

impl fmt::Debug for CloseHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CloseHook")
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limit: Duration::from_millis(1),
            high: 64 << 10,
            high_range: None,
            send_strategy: SendStrategy::Auto,
            profile: Profile::System,
            pace: None,
            on_close: None,
            resumed: None,
        }
    }
}

/// Implements the setters of a builder with the field `options`.
macro_rules! stream_options {
    ($builder:ident) => {
        impl $builder {
            /// Sets the maximum time that a written byte waits for more bytes; 1 ms by default. Zero sends every write
            /// at once, like tokio's stream.
            #[must_use]
            pub fn gather_limit(mut self, limit: std::time::Duration) -> Self {
                self.options.limit = limit;
                self
            }

            /// Sets the number of queued bytes of one connection above which its writer waits; 64 KiB by default. The
            /// writer is woken at half of it. A connection references at most twice as much pool memory plus
            /// 256 KiB.
            #[must_use]
            pub fn high_mark(mut self, bytes: usize) -> Self {
                self.options.high = bytes;
                self.options.high_range = None;
                self
            }

            /// Replaces the fixed [`high_mark`](Self::high_mark) by one that adapts to each connection's rates over the
            /// last second, between these bounds in bytes. The mark is 50 ms of input, and more while input is faster
            /// than output. A fast reader gets room for bursts. A slow reader holds little memory and gets no stale
            /// bytes. Use it with [`profile`](Self::profile), because the kernel queues bytes as well. The lower bound
            /// comes first; otherwise binding or connecting fails with
            /// [`InvalidInput`](std::io::ErrorKind::InvalidInput).
            #[must_use]
            pub fn adaptive_high_mark(mut self, bounds: std::ops::RangeInclusive<usize>) -> Self {
                self.options.high_range = Some((*bounds.start(), *bounds.end()));
                self
            }

            /// Sets the strategy of writes of new connections; [`SendStrategy::Auto`](crate::net::SendStrategy::Auto)
            /// by default. [`Handle::set_send_strategy`](crate::net::Handle::set_send_strategy) changes a live
            /// connection.
            #[must_use]
            pub fn send_strategy(mut self, strategy: $crate::net::SendStrategy) -> Self {
                self.options.send_strategy = strategy;
                self
            }

            /// Sets the socket profile of new connections; [`Profile::System`](crate::net::Profile::System) by default.
            /// [`Handle::set_profile`](crate::net::Handle::set_profile) changes a live connection.
            #[must_use]
            pub fn profile(mut self, profile: $crate::net::Profile) -> Self {
                self.options.profile = profile;
                self
            }

            /// Limits the total send rate of all connections; unlimited by default. Several listeners can share one
            /// rate, and it can be changed at any time.
            ///
            /// Needs the runtime's timer: binding a listener with a rate panics on a runtime without timers.
            #[must_use]
            pub fn pace_all(mut self, rate: &$crate::net::SharedPace) -> Self {
                self.options.pace = Some(rate.clone());
                self
            }

            /// Sets a function that receives the last numbers of every connection when it closes, including those of
            /// the kernel. It runs on the closing thread and must not block; a panic in it has no other effect. Without
            /// a hook, and without a [`Closing`](crate::net::Closing), the kernel is not queried.
            #[must_use]
            pub fn on_close(mut self, hook: impl Fn(&$crate::net::StreamStats) + Send + Sync + 'static) -> Self {
                self.options.on_close = Some($crate::net::options::CloseHook(std::sync::Arc::new(hook)));
                self
            }
        }
    };
}
pub(super) use stream_options;
