//! Counters and gauges of the process at one moment.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::count::QUEUED;
use super::counter::{COUNTERS, Counter, Gauge, NUMBERS, for_all};
use super::shard;

macro_rules! snapshot {
    (
        gauges { $($(#[doc = $gauge_doc:literal])+ $gauge:ident => $gauge_field:ident,)+ }
        $($(#[doc = $doc:literal])+ $name:ident => $field:ident,)+
    ) => {
        /// Counters and gauges of the process at one moment. Counters only grow: subtract two snapshots to get a rate.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Snapshot {
            $($(#[doc = $doc])+ pub $field: u64,)+
            $($(#[doc = $gauge_doc])+ pub $gauge_field: u64,)+
            /// Bytes that wait in send queues. A queue accounts for what it holds beyond 4 KiB, in steps of 16 KiB.
            pub queued_bytes: u64,
            /// Time since the first snapshot; in a difference, the time between the two snapshots.
            pub elapsed: Duration,
        }


        impl Snapshot {
            /// Reads all counters and gauges. Concurrent updates may or may not be included.
            pub fn now() -> Self {
                let totals = totals();
                Self {
                    $($field: totals[Counter::$name as usize],)+
                    // Negative if a subtraction is read without its addition on another thread.
                    $($gauge_field: (totals[COUNTERS + Gauge::$gauge as usize] as i64).max(0) as u64,)+
                    queued_bytes: QUEUED.load(Ordering::Relaxed) as u64,
                    elapsed: clock(),
                }
            }

            /// Returns the counts added since `earlier` and the time between. Gauges keep their current values.
            pub fn since(&self, earlier: &Self) -> Self {
                Self {
                    $($field: self.$field.saturating_sub(earlier.$field),)+
                    elapsed: self.elapsed.saturating_sub(earlier.elapsed),
                    ..*self
                }
            }

            /// Returns the counters by name, in field order.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                self.described_counters().map(|(name, _, value)| (name, value))
            }

            /// Returns the gauges by name, in field order.
            pub fn gauges(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                self.described_gauges().map(|(name, _, value)| (name, value))
            }

            pub(crate) fn described_counters(&self) -> impl Iterator<Item = Described> + use<> {
                [$((stringify!($field), concat!($($doc),+), self.$field),)+].into_iter()
            }

            pub(crate) fn described_gauges(&self) -> impl Iterator<Item = Described> + use<> {
                [
                    $((stringify!($gauge_field), concat!($($gauge_doc),+), self.$gauge_field),)+
                    ("queued_bytes", "Bytes that wait in queues to be sent, in steps of 16 KiB.", self.queued_bytes),
                ]
                .into_iter()
            }
        }
    };
}

type Described = (&'static str, &'static str, u64);

for_all!(snapshot);

impl Snapshot {
    /// Returns `count`, a field of a difference by [`since`](Self::since), as a rate per second, or 0 without time.
    pub fn per_second(&self, count: u64) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.named().chain(self.gauges()) {
            writeln!(f, "{name} {value}")?;
        }
        Ok(())
    }
}

fn totals() -> [u64; NUMBERS] {
    let mut totals = [0u64; NUMBERS];
    shard::each(|shard| {
        for (total, part) in totals.iter_mut().zip(&shard.numbers) {
            *total = total.wrapping_add(part.load(Ordering::Relaxed));
        }
    });
    totals
}

fn clock() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests;
