//! Unit tests of `high_water`.

use super::*;
use proptest::prelude::*;

const MIN: usize = 16 << 10;
const MAX: usize = 1 << 20;

/// Returns the mark after some seconds with these numbers of bytes every 10 ms.
fn after(seconds: u32, came: usize, left: usize, from: u32) -> usize {
    let mut mark = HighWater::new(MIN..=MAX, from);
    (0..seconds * 100).map(|n| mark.note(came, left, from.wrapping_add(n * 10))).last().unwrap()
}

#[test]
fn a_fast_reader_gets_a_moment_of_input() {
    // 1 MiB per second in and out.
    let mark = after(10, 10_486, 10_486, 0);
    assert!((51_000..=54_000).contains(&mark), "{mark}");
    let mark = after(10, 104_858, 104_858, 0);
    assert!((510_000..=540_000).contains(&mark), "{mark}");
}

#[test]
fn a_slow_reader_gets_little() {
    assert_eq!(after(10, 102, 102, 0), MIN);
}

#[test]
fn a_burst_gets_more_while_it_lasts() {
    let mut mark = HighWater::new(MIN..=MAX, 0);
    assert_eq!(mark.note(1 << 20, 0, 0), (150 * (1 << 20)) / 1000);
    assert_eq!(mark.note(0, 1 << 20, 100), (50 * (1 << 20)) / 1000, "the burst was sent");
    assert_eq!(mark.note(0, 0, 3000), MIN, "the burst is outside the window");
}

#[test]
fn the_window_slides() {
    let mut mark = HighWater::new(0..=MAX, 0);
    mark.note(1_000_000, 1_000_000, 999);
    // Half of the previous window still counts.
    assert_eq!(mark.note(0, 0, 1500), 25_000);
    assert_eq!(mark.note(0, 0, 1999), 50);
    assert_eq!(mark.note(0, 0, 2000), 0);
}

#[test]
fn the_clock_may_wrap() {
    assert_eq!(after(10, 10_486, 10_486, u32::MAX - 5000), after(10, 10_486, 10_486, 0));
}

proptest! {
    #[test]
    fn it_stays_in_its_bounds_and_more_never_lowers_it(
        min in 0usize..100_000, more in 0usize..10_000_000, from in any::<u32>(),
        steps in proptest::collection::vec((0u32..3000, any::<usize>(), any::<usize>()), 1..100),
    ) {
        let mut mark = HighWater::new(min..=min + more, from);
        let mut now = from;
        for (later, came, left) in steps {
            now = now.wrapping_add(later);
            // Arbitrary numbers, and typical ones.
            let (came, left) = if later % 2 == 0 { (came, left) } else { (came % 100_000, left % 100_000) };
            let mut with_more = mark.clone();
            let got = mark.note(came, left, now);
            prop_assert!((min..=min + more).contains(&got));
            prop_assert!(with_more.note(came.saturating_add(1000), left, now) >= got, "more came");
            prop_assert!(with_more.note(0, 1000, now) <= with_more.clone().note(0, 0, now), "more left");
        }
    }

    #[test]
    fn the_mark_follows_recent_input(steps in proptest::collection::vec((1u32..500, 0usize..1_000_000), 1..100)) {
        let mut mark = HighWater::new(0..=usize::MAX, 0);
        let (mut now, mut all) = (0, Vec::new());
        for (later, came) in steps {
            now += later;
            all.push((now, came));
            let got = mark.note(came, 0, now);
            let lately: usize = all.iter().filter(|(at, _)| now - at < 2 * WINDOW).map(|(_, came)| came).sum();
            prop_assert!(got <= lately * (KEEP + BURST) as usize / WINDOW as usize + 1, "{got} of {lately}");
        }
    }
}
