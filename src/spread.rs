//! Times that are drawn from a range, so that many clients do not act at once.

use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A range of times, from which each connection, reader or response draws its own. A [`Duration`] is the same time for
/// all. The bounds of a range may be in either order.
///
/// ```
/// use std::time::Duration;
///
/// use millstream::Spread;
///
/// let seconds = Duration::from_secs;
/// assert_eq!(Spread::from(seconds(2)), Spread::from(seconds(2)..=seconds(2)));
/// assert_eq!(Spread::from(seconds(3)..=seconds(1)), Spread::from(seconds(1)..=seconds(3)));
/// ```
///
/// Consecutive draws are spread evenly over the range, more evenly than random ones: each tenth of the range gets a
/// tenth of any hundred draws, give or take two. The start is random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    least: Duration,
    most: Duration,
}

impl From<Duration> for Spread {
    fn from(time: Duration) -> Self {
        Self { least: time, most: time }
    }
}

impl From<RangeInclusive<Duration>> for Spread {
    fn from(range: RangeInclusive<Duration>) -> Self {
        let (start, end) = range.into_inner();
        Self { least: start.min(end), most: start.max(end) }
    }
}

impl Spread {
    /// 1 s to 3 s: the time after which clients return that were told to leave, or were refused. Browsers return after
    /// about 3 s of their own accord. A thousand clients are then 50 in each tenth of a second.
    pub(crate) const RETURN: Self = Self { least: Duration::from_secs(1), most: Duration::from_secs(3) };

    pub(crate) fn least(self) -> Duration {
        self.least
    }

    /// Returns the time at a `place` in the range, as a fraction of 2^64.
    fn at(self, place: u64) -> Duration {
        // Without the lower half, the product has at most 126 bits.
        let nanos = ((self.most - self.least).as_nanos() * u128::from(place >> 32)) >> 32;
        const SECOND: u128 = 1_000_000_000;
        self.least + Duration::new((nanos / SECOND) as u64, (nanos % SECOND) as u32)
    }
}

/// Step from one draw to the next, as a fraction of 2^64: the golden ratio. Multiples of no other number are spread more
/// evenly over a circle, however many there are.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Draws times from a range. A clone begins anew.
#[derive(Debug)]
pub struct Draws {
    spread: Spread,
    next: AtomicU64,
}

impl Draws {
    /// Draws from `spread`, from a random start.
    pub fn new(spread: impl Into<Spread>) -> Self {
        // The hasher keys are random for each process and differ between calls.
        Self::seeded(spread, RandomState::new().hash_one(0))
    }

    /// Draws the same times for the same `seed`.
    pub(crate) fn seeded(spread: impl Into<Spread>, seed: u64) -> Self {
        Self { spread: spread.into(), next: AtomicU64::new(seed) }
    }

    pub(crate) fn spread(&self) -> Spread {
        self.spread
    }

    fn place(&self) -> u64 {
        self.next.fetch_add(STEP, Ordering::Relaxed)
    }

    /// Draws the next time.
    pub fn draw(&self) -> Duration {
        self.spread.at(self.place())
    }

    /// Draws whole seconds, at least 1, for `Retry-After`. The bounds are rounded up.
    pub fn draw_seconds(&self) -> u64 {
        let seconds = |time: Duration| time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)).max(1);
        let (least, most) = (seconds(self.spread.least), seconds(self.spread.most));
        least + ((u128::from(most - least + 1) * u128::from(self.place())) >> 64) as u64
    }
}

impl Clone for Draws {
    fn clone(&self) -> Self {
        Self::new(self.spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const SEEDS: [u64; 5] = [0, 1, STEP / 3, u64::MAX / 2, u64::MAX];

    /// Returns the largest number of `times` within `window`.
    fn most_within(times: &mut [Duration], window: Duration) -> usize {
        times.sort_unstable();
        let within = |from: usize| times[from..].partition_point(|&time| time < times[from] + window);
        (0..times.len()).map(within).max().unwrap_or(0)
    }

    #[test]
    fn draws_are_in_the_range_and_spread_evenly() {
        for seed in SEEDS {
            for count in [10, 100, 1000] {
                let draws = Draws::seeded(SECOND..=SECOND * 11, seed);
                let mut times: Vec<_> = (0..count).map(|_| draws.draw()).collect();
                assert!(times.iter().all(|time| (SECOND..=SECOND * 11).contains(time)), "{times:?}");
                let most = most_within(&mut times, SECOND);
                assert!(most <= count / 10 + 2, "{most} of {count} within a tenth of the range");
            }
        }
    }

    #[test]
    fn one_time_is_the_same_for_all_and_no_range_overflows() {
        for seed in SEEDS {
            assert_eq!([Draws::seeded(SECOND, seed).draw(); 2], [SECOND; 2]);
            let all = Draws::seeded(Duration::ZERO..=Duration::MAX, seed);
            let half = Duration::MAX / 2;
            let places = (0..100).map(|_| all.draw()).filter(|&time| time < half).count();
            assert!((48..=52).contains(&places), "{places}");
            assert_eq!(Draws::seeded(Duration::MAX, seed).draw(), Duration::MAX);
            assert!(Draws::seeded(Duration::ZERO..=Duration::MAX, seed).draw_seconds() >= 1);
        }
        assert_eq!(Draws::seeded(Duration::MAX, 0).draw_seconds(), u64::MAX);
    }

    #[test]
    fn seconds_are_whole_and_at_least_one() {
        let drawn = |spread: Spread, seed| {
            let draws = Draws::seeded(spread, seed);
            let mut seconds = [0; 5];
            (0..90).for_each(|_| seconds[draws.draw_seconds() as usize] += 1);
            seconds
        };
        for seed in SEEDS {
            assert_eq!(drawn(Duration::ZERO.into(), seed), [0, 90, 0, 0, 0]);
            assert_eq!(drawn((SECOND * 3 / 2).into(), seed), [0, 0, 90, 0, 0]);
            let [none, each @ .., more] = drawn(Spread::RETURN, seed);
            assert!(none == 0 && more == 0 && each.iter().all(|count| (28..=32).contains(count)), "{each:?}");
        }
    }

    #[test]
    fn seeds_differ() {
        let draws = || Draws::new(Duration::ZERO..=SECOND);
        let (one, other) = (draws(), draws());
        let times = [one.draw(), other.draw(), one.clone().draw(), one.clone().draw()];
        assert!((1..4).all(|at| !times[at..].contains(&times[at - 1])), "{times:?}");
    }
}
