//! Choices that follow from a seed.

use std::ops::RangeInclusive;

/// The step of SplitMix64, an odd number.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64: each bit of `x` changes half of the bits of the result.
fn finalise(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A source of choices: the same seed gives the same choices.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a source of its own, so that the choices of one client do not depend on those of the others. Sources of
    /// different seeds or labels are not correlated, however small the numbers are.
    pub fn fork(&self, label: u64) -> Self {
        Self(finalise(finalise(self.0.wrapping_add(GAMMA)).wrapping_add(label.wrapping_mul(GAMMA))))
    }

    /// SplitMix64.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        finalise(self.0)
    }

    pub fn in_range(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.roll() % (range.end() - range.start() + 1)
    }

    /// Returns a number of the range. Each order of magnitude is as likely as the others.
    pub fn of_any_size(&mut self, range: RangeInclusive<u64>) -> u64 {
        let bits = 64 - range.end().leading_zeros() as u64;
        let most = (1u64 << self.in_range(1..=bits)).min(*range.end());
        self.in_range(*range.start()..=most.max(*range.start()))
    }

    /// Returns `true` in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.roll() % 100 < percent
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[(self.roll() % of.len() as u64) as usize]
    }
}
