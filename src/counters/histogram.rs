//! Distributions in a fixed number of buckets: one thread adds, any thread reads. A bucket holds the sum of its values
//! besides their count, so the total sum is exact, and an exporter of single values can use the mean of a bucket.

use std::sync::atomic::{AtomicU64, Ordering};

/// Other threads that add to the same shard.
#[derive(Clone, Copy)]
pub(super) enum Adder {
    /// No other thread adds, so a load and a store suffice. A read-modify-write costs ten times as much.
    Alone,
    /// Threads that are ending may add.
    Among,
}

impl Adder {
    /// Adds `n`. Relaxed: counts order nothing.
    #[inline]
    pub(super) fn add(self, cell: &AtomicU64, n: u64) {
        match self {
            Self::Alone => cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed),
            Self::Among => drop(cell.fetch_add(n, Ordering::Relaxed)),
        }
    }
}

/// Number of buckets of every histogram; the last has no upper bound.
pub(super) const BUCKETS: usize = 16;

/// Upper bounds of the buckets, in whole nanoseconds, bytes or frames, and how many of those make a unit.
#[derive(Debug)]
pub(super) struct Scale {
    bounds: &'static [u64],
    unit: u64,
}

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Duration of a request: the buckets that OpenTelemetry recommends for `http.server.request.duration`.
pub(super) static DURATION: Scale = Scale {
    bounds: &[
        5 * MILLI,
        10 * MILLI,
        25 * MILLI,
        50 * MILLI,
        75 * MILLI,
        100 * MILLI,
        250 * MILLI,
        500 * MILLI,
        750 * MILLI,
        SECOND,
        2500 * MILLI,
        5 * SECOND,
        7500 * MILLI,
        10 * SECOND,
    ],
    unit: SECOND,
};

pub(super) static TIME_TO_HEAD: Scale = Scale {
    bounds: &[
        250 * MICRO,
        500 * MICRO,
        MILLI,
        2500 * MICRO,
        5 * MILLI,
        10 * MILLI,
        25 * MILLI,
        50 * MILLI,
        100 * MILLI,
        250 * MILLI,
        500 * MILLI,
        SECOND,
        2500 * MILLI,
        5 * SECOND,
        10 * SECOND,
    ],
    unit: SECOND,
};

/// Time between the frames of a response, on a clock whose ticks are 1 to 10 ms apart.
pub(super) static GAP: Scale = Scale {
    bounds: &[
        5 * MILLI,
        10 * MILLI,
        25 * MILLI,
        50 * MILLI,
        75 * MILLI,
        100 * MILLI,
        250 * MILLI,
        500 * MILLI,
        750 * MILLI,
        SECOND,
        2500 * MILLI,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
        60 * SECOND,
    ],
    unit: SECOND,
};

pub(super) static SIZE: Scale = Scale {
    bounds: &[
        64,
        256,
        1 << 10,
        4 << 10,
        16 << 10,
        64 << 10,
        256 << 10,
        1 << 20,
        4 << 20,
        16 << 20,
        64 << 20,
        256 << 20,
        1 << 30,
        4 << 30,
        16 << 30,
    ],
    unit: 1,
};

pub(super) static FRAMES: Scale =
    Scale { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16_384, 65_536, 1 << 20], unit: 1 };

#[derive(Debug)]
pub(super) struct Buckets {
    counts: [AtomicU64; BUCKETS],
    sums: [AtomicU64; BUCKETS],
}

impl Buckets {
    pub(super) const fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BUCKETS], sums: [const { AtomicU64::new(0) }; BUCKETS] }
    }

    /// Adds `times` values whose sum is `sum`, each of about `value`.
    #[inline]
    pub(super) fn add(&self, adder: Adder, scale: &Scale, value: u64, times: u64) {
        // Linear search from the front: most requests are quick and small.
        let bucket = scale.bounds.iter().position(|&bound| value <= bound).unwrap_or(scale.bounds.len());
        adder.add(&self.counts[bucket], times);
        adder.add(&self.sums[bucket], value.saturating_mul(times));
    }
}

/// Distribution of values in buckets that never change. Durations are in seconds, sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Histogram {
    scale: &'static Scale,
    counts: [u64; BUCKETS],
    sums: [u64; BUCKETS],
}

/// One bucket of a [`Histogram`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Bucket {
    /// The largest value of the bucket; infinite for the last bucket.
    pub upper: f64,
    /// Number of values in the bucket.
    pub count: u64,
    /// Sum of the values in the bucket.
    pub sum: f64,
}

/// Bounds of a quantile as far as the buckets of a [`Histogram`] determine it, in the unit of the histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Quantile {
    /// The value is larger than this; 0 for values in the first bucket, which also contains 0.
    pub lower: f64,
    /// The value is at most this; infinite for values in the last bucket.
    pub upper: f64,
}

impl Histogram {
    pub(super) fn new(scale: &'static Scale) -> Self {
        Self { scale, counts: [0; BUCKETS], sums: [0; BUCKETS] }
    }

    pub(super) fn absorb(&mut self, part: &Buckets) {
        let absorb = |all: &mut [u64; BUCKETS], part: &[AtomicU64; BUCKETS]| {
            all.iter_mut().zip(part).for_each(|(all, part)| *all = all.wrapping_add(part.load(Ordering::Relaxed)));
        };
        absorb(&mut self.counts, &part.counts);
        absorb(&mut self.sums, &part.sums);
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(all, part)| *all = all.wrapping_add(part));
        self.sums.iter_mut().zip(other.sums).for_each(|(all, part)| *all = all.wrapping_add(part));
    }

    /// Returns the values added since `earlier`; none where `earlier` has more.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let mut new = *self;
        new.counts.iter_mut().zip(earlier.counts).for_each(|(new, old)| *new = new.saturating_sub(old));
        new.sums.iter_mut().zip(earlier.sums).for_each(|(new, old)| *new = new.saturating_sub(old));
        new
    }

    /// Returns the buckets, from the smallest values to the largest.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + use<> {
        let Self { scale, counts, sums } = *self;
        // Division, not multiplication by a fraction: 5 ms is then exactly the number written as 0.005.
        let value = |whole: u64| whole as f64 / scale.unit as f64;
        (0..=scale.bounds.len()).map(move |at| Bucket {
            upper: scale.bounds.get(at).map_or(f64::INFINITY, |&bound| value(bound)),
            count: counts[at],
            sum: value(sums[at]),
        })
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |all, &count| all.wrapping_add(count))
    }

    /// Returns the sum of all values.
    pub fn sum(&self) -> f64 {
        self.sums.iter().fold(0u64, |all, &sum| all.wrapping_add(sum)) as f64 / self.scale.unit as f64
    }

    /// Returns the bounds of the smallest value that `share` (0 to 1) of all values do not exceed. They are the bounds
    /// of its bucket, because its exact value is unknown. Returns `None` without values.
    pub fn quantile(&self, share: f64) -> Option<Quantile> {
        let wanted = self.count() as f64 * share.clamp(0.0, 1.0);
        let (mut seen, mut lower) = (0.0, 0.0);
        for Bucket { upper, count, .. } in self.buckets() {
            seen += count as f64;
            if count > 0 && seen >= wanted {
                return Some(Quantile { lower, upper });
            }
            lower = upper;
        }
        None
    }
}

#[cfg(test)]
mod tests;
