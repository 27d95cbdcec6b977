//! Histogram of durations in buckets about 3 % wide, from a nanosecond to centuries, in 15 KiB.

use std::time::Duration;

/// Buckets per power of two.
const STEPS: u32 = 32;

#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; bucket(u64::MAX) + 1], total: 0 }
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, duration: Duration, times: u64) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)] += times;
        self.total += times;
    }

    /// Returns the quantile `share` (0 to 1), at most 3 % too low; `None` if the histogram is empty.
    pub(crate) fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Duration::from_nanos(floor(found)))
    }
}

/// Returns the bucket of a value: one per nanosecond below 32 ns, then 32 per power of two.
fn bucket(nanos: u64) -> usize {
    let shift = nanos.max(1).ilog2().saturating_sub(STEPS.ilog2());
    (shift * STEPS) as usize + (nanos >> shift) as usize
}

/// Returns the smallest value of a bucket, the inverse of [`bucket`].
fn floor(bucket: usize) -> u64 {
    let steps = STEPS as usize;
    let shift = (bucket / steps).saturating_sub(1);
    ((bucket - shift * steps) as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_starts_where_the_one_before_ends() {
        for index in 0..bucket(u64::MAX) {
            assert_eq!(bucket(floor(index)), index);
            assert_eq!(bucket(floor(index + 1) - 1), index);
        }
    }

    #[test]
    fn quantiles_are_within_a_bucket_of_the_truth() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros), 2);
        }
        for (share, truth) in [(0.0, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let got = histogram.quantile(share).expect("it was filled").as_secs_f64() * 1e6;
            assert!(got <= truth && got > truth * 0.96, "{share}: {got} instead of {truth}");
        }
    }
}
