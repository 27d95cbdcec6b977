//! Unit tests of `stats`.

use super::*;

#[test]
fn it_is_small() {
    assert!(size_of::<Meter>() <= 128, "{} bytes for each connection", size_of::<Meter>());
}

#[test]
fn times_pair_matching_events() {
    let meter = Meter { since: 1000, ..Meter::new() };
    let millis = |n| Duration::from_millis(n);
    assert_eq!(meter.stats(0, false, SendStrategy::Auto).first_byte, None);
    meter.heard.store(1010, Ordering::Relaxed);
    meter.sent_at(1030);
    meter.sent_at(1035);
    let numbers = meter.stats(0, false, SendStrategy::Auto);
    assert_eq!((numbers.first_byte, numbers.longest_answer), (Some(millis(30)), millis(20)));
    assert_eq!(numbers.longest_gap, millis(5));
    // The time until the peer's next request is not a gap.
    meter.heard.store(9000, Ordering::Relaxed);
    meter.sent_at(9001);
    meter.sent_at(9008);
    let numbers = meter.stats(0, false, SendStrategy::Auto);
    assert_eq!((numbers.longest_answer, numbers.longest_gap), (millis(20), millis(7)));
    assert_eq!(numbers.first_byte, Some(millis(30)));
}

#[test]
fn times_go_over_the_end_of_the_clock() {
    let meter = Meter { since: u32::MAX - 4, ..Meter::new() };
    meter.sent_at(0);
    meter.sent_at(10);
    let numbers = meter.stats(0, false, SendStrategy::Auto);
    assert_eq!(numbers.first_byte, Some(Duration::from_millis(5)));
    assert_eq!(numbers.longest_gap, Duration::from_millis(9));
    meter.heard.store(1, Ordering::Relaxed);
    meter.sent_at(0);
    assert_eq!(meter.stats(0, false, SendStrategy::Auto).longest_answer, Duration::ZERO);
}
