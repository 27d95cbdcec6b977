//! Random numbers that a seed decides, so that all contenders get the same.

use std::time::Duration;

/// Increment of the state: the golden ratio in 64 bits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64: <https://prng.di.unimi.it/splitmix64.c>.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns the time to the next event of a Poisson process: exponentially distributed with this mean.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        // 53 bits, as many as a float has: 0 to just below 1.
        let share = (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        mean.mul_f64(-(-share).ln_1p())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_reference() {
        let mut random = SplitMix::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(expected.map(|_| random.next_u64()), expected);
    }

    #[test]
    fn times_between_events_are_exponential() {
        let mut random = SplitMix::new(7);
        let mean = Duration::from_millis(10);
        let times: Vec<f64> = (0..20_000).map(|_| random.exponential(mean).as_secs_f64() / 0.01).collect();
        let average = times.iter().sum::<f64>() / times.len() as f64;
        assert!((average - 1.0).abs() < 0.03, "{average}");
        // The variance is the square of the mean, and a share of 1/e exceeds the mean.
        let variance = times.iter().map(|time| (time - average).powi(2)).sum::<f64>() / times.len() as f64;
        assert!((variance - 1.0).abs() < 0.08, "{variance}");
        let above = times.iter().filter(|&&time| time > 1.0).count() as f64 / times.len() as f64;
        assert!((above - (-1f64).exp()).abs() < 0.02, "{above}");
    }
}
