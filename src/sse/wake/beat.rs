//! When the wake task looks for readers that were idle, or have reached their age.

use std::time::Duration;

use crate::spread::Spread;

/// Ticks in the period of comments, so that a comment is sent after half to all of it.
const TICKS: u32 = 2;
/// Shortest and longest time between two looks for the age of readers, and their number in the shortest age.
const AGE_TICK: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
const AGE_TICKS: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sse) struct Beat {
    /// Time between two ticks; `None`: there are none.
    pub(super) period: Option<Duration>,
    /// Ticks after which an idle reader gets a comment.
    pub(super) silence: u64,
}

impl Beat {
    pub(in crate::sse) fn new(keep_alive: Option<Duration>, max_age: Option<Spread>) -> Self {
        let comments = keep_alive.map(|keep_alive| (keep_alive / TICKS).max(Duration::from_millis(1)));
        let ages = max_age.map(|age| (age.least() / AGE_TICKS).clamp(AGE_TICK.0, AGE_TICK.1));
        let period = comments.into_iter().chain(ages).min();
        let ticks = |(keep_alive, period): (Duration, Duration)| (keep_alive.as_nanos() / period.as_nanos()) as u64;
        let silence = keep_alive.zip(period).map_or(u64::MAX, ticks).max(TICKS.into());
        Self { period, silence }
    }

    /// Returns the number of ticks that end `age` or more after now, which may be at any time between two ticks.
    pub(super) fn ticks(&self, age: Duration) -> u64 {
        let ticks = self.period.map_or(u128::MAX, |period| age.as_nanos().div_ceil(period.as_nanos()) + 1);
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn ages_need_ticks_of_a_second_at_most_and_comments_keep_their_period() {
        let beat = |keep_alive, age: Option<Duration>| Beat::new(keep_alive, age.map(Spread::from));
        assert_eq!(beat(None, None), Beat { period: None, silence: u64::MAX });
        assert_eq!(beat(Some(15 * SECOND), None), Beat { period: Some(15 * SECOND / 2), silence: 2 });
        assert_eq!(beat(Some(15 * SECOND), Some(60 * SECOND)), Beat { period: Some(SECOND), silence: 15 });
        assert_eq!(beat(Some(SECOND), Some(60 * SECOND)), Beat { period: Some(SECOND / 2), silence: 2 });
        assert_eq!(beat(None, Some(2 * SECOND)), Beat { period: Some(SECOND / 4), silence: u64::MAX });
        assert_eq!(beat(None, Some(Duration::ZERO)).period, Some(SECOND / 4));
        assert_eq!(beat(Some(Duration::from_nanos(1)), None), Beat { period: Some(SECOND / 1000), silence: 2 });
    }

    #[test]
    fn an_age_ends_with_a_tick_and_not_before() {
        let beat = Beat::new(None, Some((8 * SECOND).into()));
        assert_eq!([0, 1, 1000, 1001].map(|ms| beat.ticks(Duration::from_millis(ms))), [1, 2, 2, 3]);
        assert_eq!(beat.ticks(Duration::MAX), Duration::MAX.as_secs().saturating_add(2));
        assert_eq!(Beat::new(None, None).ticks(SECOND), u64::MAX);
    }
}
