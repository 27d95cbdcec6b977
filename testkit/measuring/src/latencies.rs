//! Latencies in constant memory.

use std::time::Duration;

use hdrhistogram::Histogram;

/// A histogram of latencies in nanoseconds, 1 % exact, up to an hour. It takes less than 100 KiB.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, 3_600_000_000_000, 2).expect("the bounds are in order"))
    }
}

impl Latencies {
    pub fn record(&mut self, latency: Duration, times: u64) {
        self.0.saturating_record_n(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX), times);
    }

    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the bounds are the same");
    }

    /// Returns the values in order, each with its count.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        self.0.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
    }

    /// Returns the quantile `share` (0 to 1); `None` without values.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        (!self.0.is_empty()).then(|| Duration::from_nanos(self.0.value_at_quantile(share)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_percent_of_the_truth() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        for micros in 1..=1000 {
            latencies.record(Duration::from_micros(micros), 2);
        }
        for (share, truth) in [(0.0, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let got = latencies.quantile(share).expect("it was filled").as_secs_f64() * 1e6;
            assert!((got / truth - 1.0).abs() <= 0.01, "{share}: {got} instead of {truth}");
        }
        let mut both = Latencies::default();
        both.record(Duration::ZERO, 3);
        both.record(Duration::from_secs(7200), 1);
        both.add(&latencies);
        assert_eq!((both.counts()[0], both.counts().iter().map(|(_, count)| count).sum()), ((0, 3), 2004));
    }
}
