//! Medians with intervals, ratios of rounds, and percentiles. No distribution is assumed.

/// Returns a quantile of values in any order, interpolated between two of them. Panics without values.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    of_sorted(&values, share)
}

/// Returns the median of values in any order: of an even number, the mean of the middle two. Panics without values.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns half the interquartile range, relative to the median.
pub fn spread(values: &[f64]) -> f64 {
    (quantile(values, 0.75) - quantile(values, 0.25)) / 2.0 / median(values)
}

fn of_sorted(values: &[f64], share: f64) -> f64 {
    let at = (values.len() - 1) as f64 * share;
    let (below, above) = (values[at as usize], values[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

/// A median and an interval that contains the true one with a known probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    /// Probability that the interval contains the true median.
    pub coverage: f64,
    pub count: usize,
}

/// The wanted coverage of a rank interval. Few values cover less: five 93.75 %, three 75 %.
const COVERAGE: f64 = 0.95;

/// Fewer values decide nothing.
pub const ENOUGH: usize = 5;

/// A smaller difference decides nothing, however certain it is.
pub const SMALLEST: f64 = 1.02;

impl Estimate {
    /// Returns the median of values, and the rank interval of the sign test. `None` without finite values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        if count == 0 {
            return None;
        }
        let (cut, coverage) = ranks(count);
        Some(Self { median: of_sorted(&values, 0.5), low: values[cut], high: values[count - 1 - cut], coverage, count })
    }

    /// Returns the estimate of the inverse of positive values.
    pub fn inverse(self) -> Self {
        Self { median: 1.0 / self.median, low: 1.0 / self.high, high: 1.0 / self.low, ..self }
    }

    /// Returns the ratio to values that were not measured in the same rounds: the widest that both intervals allow.
    pub fn over(&self, other: &Self) -> Self {
        Self {
            median: self.median / other.median,
            low: self.low / other.high,
            high: self.high / other.low,
            coverage: (self.coverage + other.coverage - 1.0).max(0.0),
            count: self.count.min(other.count),
        }
    }

    /// Returns what a ratio decides. All verdicts of a report come from here: there are [`ENOUGH`] rounds, the interval
    /// excludes 1, and the median differs from 1 by [`SMALLEST`].
    pub fn verdict(&self) -> Verdict {
        match self {
            _ if self.count < ENOUGH => Verdict::Open,
            _ if self.low > 1.0 && self.median >= SMALLEST => Verdict::Above,
            _ if self.high < 1.0 && self.median <= 1.0 / SMALLEST => Verdict::Below,
            _ => Verdict::Open,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Above,
    Open,
    Below,
}

/// Returns how many of the smallest and of the largest values lie outside the interval, and what it covers.
fn ranks(count: usize) -> (usize, f64) {
    // Terms of the binomial distribution with a share of one half.
    let mut term = 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut below = term;
    let mut best = (0, 1.0 - 2.0 * below);
    for cut in 1..count.div_ceil(2) {
        term *= (count - cut + 1) as f64 / cut as f64;
        below += term;
        let coverage = 1.0 - 2.0 * below;
        if coverage < COVERAGE {
            break;
        }
        best = (cut, coverage);
    }
    (best.0, best.1.max(0.0))
}

/// Merges latencies, each with its count, in order.
pub fn merge<'a>(parts: impl IntoIterator<Item = &'a [(u64, u64)]>) -> Vec<(u64, u64)> {
    let mut all = std::collections::BTreeMap::new();
    for &(value, count) in parts.into_iter().flatten() {
        *all.entry(value).or_insert(0) += count;
    }
    all.into_iter().collect()
}

/// Returns a quantile of merged latencies, in nanoseconds. `None` if fewer than one value would lie above it, as for a p99 of 99 values: it
/// would be the maximum.
pub fn quantile_of_counts(latencies: &[(u64, u64)], share: f64) -> Option<u64> {
    let total: u64 = latencies.iter().map(|(_, count)| count).sum();
    // 1 - 0.99 is a little more than 0.01.
    if total == 0 || (total as f64) * (1.0 - share) < 1.0 - 1e-6 {
        return None;
    }
    let wanted = ((total as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    latencies.iter().find_map(|&(value, count)| {
        seen += count;
        (seen >= wanted).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers in [0, 1), as good as random.
    fn random(seed: u64) -> impl FnMut() -> f64 {
        let mut x = seed | 1;
        move || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    #[test]
    fn coverage_is_what_tables_of_the_sign_test_say() {
        for (count, cut, coverage) in
            [(1, 0, 0.0), (3, 0, 0.75), (5, 0, 0.9375), (6, 0, 0.96875), (9, 1, 0.9609375), (20, 5, 0.9586)]
        {
            let (got, covers) = ranks(count);
            assert_eq!(got, cut, "{count}");
            assert!((covers - coverage).abs() < 1e-4, "{count}: {covers}");
        }
    }

    #[test]
    fn intervals_contain_the_true_median_as_often_as_they_say() {
        let mut random = random(7);
        for count in [5, 7, 12, 31] {
            // Skewed, as latencies are: the median of exp(3 u) is exp(1.5).
            let truth = 1.5f64.exp();
            let trials = 4000;
            let mut hits = 0;
            let mut coverage = 0.0;
            for _ in 0..trials {
                let estimate = Estimate::of((0..count).map(|_| (3.0 * random()).exp())).unwrap();
                coverage = estimate.coverage;
                hits += u32::from((estimate.low..=estimate.high).contains(&truth));
            }
            let share = f64::from(hits) / f64::from(trials);
            assert!((share - coverage).abs() < 0.02, "{count} values: {share} in place of {coverage}");
        }
    }

    proptest! {
        #[test]
        fn estimates_stand_in_order_and_forget_the_order_of_values(mut values in prop::collection::vec(0.001f64..1e9, 1..60)) {
            let estimate = Estimate::of(values.iter().copied()).unwrap();
            prop_assert!(estimate.low <= estimate.median && estimate.median <= estimate.high);
            prop_assert!((0.0..1.0).contains(&estimate.coverage));
            let (below, above) = (values.iter().filter(|v| **v < estimate.median).count(), values.iter().filter(|v| **v > estimate.median).count());
            prop_assert!(below <= values.len() / 2 && above <= values.len() / 2);
            values.reverse();
            prop_assert_eq!(Estimate::of(values.iter().copied()).unwrap(), estimate);
            let inverse = Estimate::of(values.iter().map(|value| 1.0 / value)).unwrap();
            prop_assert!((inverse.low - estimate.inverse().low).abs() <= inverse.low * 1e-9);
            prop_assert!((inverse.high - estimate.inverse().high).abs() <= inverse.high * 1e-9);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_values(values in prop::collection::vec(0u64..1000, 1..400), share in 0.01f64..0.999) {
            let pairs: Vec<_> = values.iter().map(|&value| (value, 1)).collect();
            let merged = merge([&pairs[..values.len() / 2], &pairs[values.len() / 2..]]);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            match quantile_of_counts(&merged, share) {
                Some(value) => prop_assert_eq!(value, sorted[((values.len() as f64 * share).ceil() as usize).max(1) - 1]),
                None => prop_assert!(values.len() as f64 * (1.0 - share) < 1.0),
            }
        }
    }

    #[test]
    fn verdicts_need_enough_rounds() {
        let of = |values: &[f64]| Estimate::of(values.iter().copied()).unwrap().verdict();
        assert_eq!(of(&[1.2, 1.3, 1.1, 1.4]), Verdict::Open);
        assert_eq!(of(&[1.2, 1.3, 1.1, 1.4, 1.2]), Verdict::Above);
        assert_eq!(of(&[0.9, 0.8, 0.7, 0.9, 0.9]), Verdict::Below);
        assert_eq!(of(&[1.2, 1.3, 0.9, 1.4, 1.2]), Verdict::Open);
        // Certain, and too small to matter.
        assert_eq!(of(&[1.01, 1.011, 1.012, 1.013, 1.014]), Verdict::Open);
        assert_eq!(of(&[0.99, 0.991, 0.992, 0.993, 0.994]), Verdict::Open);
        // Ratios of two runs: the intervals are apart, touch, or are of too few rounds.
        let of = |values: &[f64]| Estimate::of(values.iter().copied()).unwrap();
        let (old, new) = (of(&[1.0, 1.1, 1.2, 1.1, 1.1]), of(&[2.0, 2.1, 2.2, 2.1, 2.1]));
        assert_eq!((new.over(&old).verdict(), old.over(&new).verdict()), (Verdict::Above, Verdict::Below));
        assert_eq!(new.over(&of(&[2.0, 1.0, 1.1, 1.2, 1.0])).verdict(), Verdict::Open);
        assert_eq!(new.over(&of(&[1.0, 1.1, 1.2, 1.1])).verdict(), Verdict::Open);
        assert_eq!(of(&[1.0; 5]).over(&of(&[1.01; 5])).verdict(), Verdict::Open);
        assert_eq!(Estimate::of([f64::NAN, f64::INFINITY]), None);
        assert_eq!(quantile_of_counts(&[(5, 99)], 0.99), None);
        assert_eq!(quantile_of_counts(&[(5, 99), (6, 1)], 0.99), Some(5));
        assert_eq!(quantile_of_counts(&[(5, 999)], 0.999).or(quantile_of_counts(&[(5, 9999)], 0.9999)), None);
        assert_eq!(quantile_of_counts(&[(5, 1000)], 0.999).and(quantile_of_counts(&[(5, 10_000)], 0.9999)), Some(5));
    }

    #[test]
    fn medians_of_an_even_number_are_between_the_middle_two() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
        assert_eq!((quantile(&[3.0, 1.0, 2.0], 0.25), spread(&[3.0, 1.0, 2.0])), (1.5, 0.25));
    }
}
