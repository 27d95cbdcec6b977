//! The breaker compared with a model that keeps every sample, and each of its properties.

mod thresholds;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use proptest::prelude::*;

use super::window::Sums;
use super::*;

const GOOD: Duration = Duration::from_millis(1);
const SLOW: Duration = Duration::from_millis(201);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn breaker() -> Breaker {
    Breaker::new(Thresholds::default(), 1)
}

fn peer(n: u32) -> IpAddr {
    Ipv4Addr::from_bits(n).into()
}

/// Reports `count` responses at `now` to a closed breaker.
fn feed(breaker: &Breaker, count: usize, latency: Duration, now: Duration) {
    for _ in 0..count {
        let Some(ticket) = breaker.admit(None, now) else { return };
        breaker.answered(ticket, latency, now, 0);
    }
}

fn fail(breaker: &Breaker, count: usize, now: Duration) {
    for _ in 0..count {
        let Some(ticket) = breaker.admit(None, now) else { return };
        breaker.failed(ticket, Some(GOOD), now, 0);
    }
}

fn state(breaker: &Breaker) -> BreakerState {
    breaker.status(Duration::ZERO).state
}

#[test]
fn more_than_one_slow_answer_in_a_hundred_trips_it() {
    let breaker = breaker();
    feed(&breaker, 198, GOOD, ms(0));
    feed(&breaker, 2, SLOW, ms(1));
    assert_eq!(state(&breaker), BreakerState::Closed, "two of 200 are one in a hundred");
    assert!(breaker.status(ms(1)).p99.unwrap() < ms(2));
    feed(&breaker, 1, SLOW, ms(2));
    assert_eq!(state(&breaker), BreakerState::Open);
    assert_eq!(breaker.admit(None, ms(3)), None);
}

#[test]
fn a_latency_at_the_threshold_is_no_slow_one() {
    let breaker = breaker();
    feed(&breaker, 1000, ms(200), ms(0));
    assert_eq!(state(&breaker), BreakerState::Closed);
}

#[test]
fn more_than_five_errors_in_a_hundred_trip_it() {
    let breaker = breaker();
    feed(&breaker, 190, GOOD, ms(0));
    fail(&breaker, 10, ms(0));
    assert_eq!(state(&breaker), BreakerState::Closed);
    fail(&breaker, 1, ms(0));
    assert_eq!(state(&breaker), BreakerState::Open);
}

#[test]
fn few_samples_trip_nothing_and_old_ones_do_not_count() {
    let breaker = breaker();
    fail(&breaker, 99, ms(0));
    assert_eq!(state(&breaker), BreakerState::Closed);
    fail(&breaker, 1, secs(10));
    assert_eq!(state(&breaker), BreakerState::Closed, "the others are ten seconds old");
    fail(&breaker, 99, secs(11));
    assert_eq!(state(&breaker), BreakerState::Open);
}

#[test]
fn good_samples_complete_a_window_that_is_bad() {
    let breaker = breaker();
    fail(&breaker, 90, ms(0));
    feed(&breaker, 37, GOOD, ms(1));
    assert_eq!(state(&breaker), BreakerState::Closed);
    feed(&breaker, 1, GOOD, ms(1));
    assert_eq!(state(&breaker), BreakerState::Open, "checked with every 32nd sample");
}

#[test]
fn it_cools_down_probes_and_closes() {
    let breaker = breaker();
    fail(&breaker, 100, ms(0));
    assert_eq!(breaker.status(ms(0)).opens_for, secs(30));
    assert_eq!(breaker.admit(None, secs(30) - ms(1)), None);
    // One in ten, and at most twice the number needed.
    let tickets: Vec<_> = (0..1000).filter_map(|_| breaker.admit(None, secs(30))).collect();
    assert_eq!(tickets.len(), 40);
    assert!(tickets.iter().all(|ticket| ticket.probe));
    for ticket in &tickets[..19] {
        breaker.answered(*ticket, GOOD, secs(31), 0);
    }
    assert_eq!(state(&breaker), BreakerState::HalfOpen);
    breaker.answered(tickets[19], GOOD, secs(31), 0);
    assert_eq!(state(&breaker), BreakerState::Closed);
    assert!(breaker.admit(None, secs(31)).is_some_and(|ticket| !ticket.probe));
    breaker.failed(tickets[20], None, secs(31), 0);
    assert_eq!(state(&breaker), BreakerState::Closed, "of an older generation");
}

#[test]
fn probes_that_never_end_are_followed_by_others_after_a_cool_down() {
    let breaker = breaker();
    fail(&breaker, 100, ms(0));
    let probes = |now| (0..1000).filter_map(|_| breaker.admit(None, now)).count();
    assert_eq!(probes(secs(30)), 40);
    assert_eq!(probes(secs(31)), 0);
    // The second cool-down is twice as long.
    assert_eq!(probes(secs(89)), 0);
    assert_eq!(probes(secs(90)), 40);
}

#[test]
fn trips_in_a_row_take_twice_as_long_up_to_a_bound_and_are_forgotten() {
    let breaker = breaker();
    let mut now = ms(0);
    fail(&breaker, 100, now);
    for expected in [30, 60, 120, 240, 480, 600, 600, 600] {
        assert_eq!(breaker.status(now).opens_for, secs(expected));
        now += secs(expected);
        let ticket = breaker.admit(None, now).unwrap();
        breaker.answered(ticket, SLOW, now, 0);
    }
    now += secs(600);
    let probes: Vec<_> = (0..191).filter_map(|_| breaker.admit(None, now)).collect();
    for ticket in probes {
        breaker.answered(ticket, GOOD, now, 0);
    }
    assert_eq!(state(&breaker), BreakerState::Closed);
    now += secs(600);
    fail(&breaker, 100, now);
    assert_eq!(breaker.status(now).opens_for, secs(30), "it was closed for long");
    assert_eq!(breaker.status(now).trips, 10);
}

#[test]
fn requests_admitted_before_a_trip_are_no_probes() {
    let breaker = breaker();
    let old: Vec<_> = (0..50).filter_map(|_| breaker.admit(None, ms(0))).collect();
    fail(&breaker, 100, ms(0));
    breaker.admit(None, secs(30)).unwrap();
    for ticket in &old {
        breaker.answered(*ticket, GOOD, secs(30), 0);
        breaker.failed(*ticket, None, secs(30), 0);
    }
    assert_eq!(state(&breaker), BreakerState::HalfOpen);
}

#[test]
fn pins_hold_and_clearing_closes() {
    let breaker = breaker();
    breaker.pin(Some(true));
    fail(&breaker, 1000, ms(0));
    (0..9).for_each(|_| breaker.reset_by(peer(1), breaker.admit(None, ms(0)).unwrap(), ms(0)));
    assert!(breaker.admit(Some(peer(1)), ms(0)).is_some());
    assert_eq!(state(&breaker), BreakerState::PinnedClosed);
    breaker.pin(Some(false));
    assert_eq!(breaker.admit(None, secs(3600)), None);
    breaker.pin(None);
    assert_eq!(state(&breaker), BreakerState::Closed);
    fail(&breaker, 100, ms(0));
    assert_eq!(state(&breaker), BreakerState::Open);
    breaker.clear();
    assert!(breaker.admit(None, ms(0)).is_some());
    fail(&breaker, 100, ms(0));
    assert_eq!(breaker.status(ms(0)).opens_for, secs(30), "forgotten");
}

fn reset(breaker: &Breaker, who: IpAddr, now: Duration) {
    let ticket = breaker.admit(None, now).unwrap();
    breaker.reset_by(who, ticket, now);
}

#[test]
fn three_resets_within_a_minute_trip_it_for_that_peer() {
    let breaker = breaker();
    for s in [0, 59, 60, 119] {
        reset(&breaker, peer(1), secs(s));
        assert!(breaker.admit(Some(peer(1)), secs(s)).is_some(), "no three within a minute at {s}");
    }
    reset(&breaker, peer(1), ms(119_500));
    assert_eq!(breaker.admit(Some(peer(1)), ms(119_500)), None);
    assert!(breaker.admit(Some(peer(2)), ms(119_500)).is_some(), "other peers are still admitted");
    assert_eq!(breaker.status(secs(120)).peers_out, 1);
    assert_eq!(state(&breaker), BreakerState::Closed);
    assert!(breaker.admit(Some(peer(1)), secs(150)).is_some(), "after the cool-down");
    reset(&breaker, peer(1), secs(150));
    assert_eq!(breaker.admit(Some(peer(1)), secs(209)), None, "one reset is enough now, for twice as long");
    assert!(breaker.admit(Some(peer(1)), secs(210)).is_some());
    for s in [0, 1] {
        reset(&breaker, peer(1), secs(1000 + s));
        assert!(breaker.admit(Some(peer(1)), secs(1000 + s)).is_some(), "forgotten");
    }
}

#[test]
fn a_host_has_many_ipv6_addresses_and_one_ipv4_address_in_two_forms() {
    let breaker = breaker();
    for n in 1..=3 {
        reset(&breaker, Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, n).into(), ms(0));
        reset(
            &breaker,
            if n == 2 { Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().into() } else { peer(0xc000_0201) },
            ms(0),
        );
    }
    assert_eq!(breaker.admit(Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 9, 9, 9, 9).into()), ms(0)), None);
    assert!(breaker.admit(Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 1).into()), ms(0)).is_some());
    assert_eq!(breaker.admit(Some(peer(0xc000_0201)), ms(0)), None);
}

#[test]
fn the_table_of_peers_is_bounded_and_keeps_those_that_are_out() {
    let breaker = Breaker::new(Thresholds::default().peers(64), 1);
    (0..3).for_each(|_| reset(&breaker, peer(7), ms(0)));
    for n in 0..10_000 {
        reset(&breaker, peer(n << 8), ms(1));
    }
    assert!(breaker.peers.len() <= 64, "{}", breaker.peers.len());
    assert_eq!(breaker.admit(Some(peer(7)), ms(2)), None);
}

#[test]
fn threads_that_feed_it_together_trip_it_once() {
    let breaker = Breaker::new(Thresholds::default(), 4);
    std::thread::scope(|scope| {
        for shard in 0..4 {
            let breaker = &breaker;
            scope.spawn(move || {
                for _ in 0..1000 {
                    let Some(ticket) = breaker.admit(None, ms(0)) else { continue };
                    breaker.answered(ticket, SLOW, ms(0), shard);
                }
            });
        }
    });
    assert_eq!((state(&breaker), breaker.status(ms(0)).trips), (BreakerState::Open, 1));
}

proptest! {
    /// A closed breaker trips when a model does that keeps every sample.
    #[test]
    fn it_trips_when_the_model_does(
        steps in prop::collection::vec((0u64..200, 0u8..100), 1..600), slow in 0u8..4, failed in 0u8..12, least in 1u32..50,
    ) {
        let breaker = Breaker::new(Thresholds::default().samples(least).window(secs(8)), 1);
        let mut kept: Vec<(u64, bool, bool)> = Vec::new();
        let mut now = 0;
        for (later, dice) in steps {
            now += later;
            let (is_slow, is_failed) = (dice < slow, (50..50 + failed).contains(&dice));
            let ticket = breaker.admit(None, ms(now)).unwrap();
            breaker.answered(ticket, if is_slow { SLOW } else { GOOD }, ms(now), 0);
            if is_failed {
                breaker.failed(ticket, None, ms(now), 0);
            }
            kept.push((now, is_slow, is_failed));
            let slot = |at: u64| at / 1000;
            let within = kept.iter().filter(|(at, ..)| slot(*at) + 8 > slot(now));
            let sums = within.fold(Sums::default(), |sums, (_, slow, failed)| Sums {
                answered: sums.answered + 1,
                slow: sums.slow + u64::from(*slow),
                failed: sums.failed + u64::from(*failed),
            });
            let bad = sums.answered >= least.into()
                && (sums.slow as f64 > sums.answered as f64 / 100.0 || sums.failed as f64 > sums.answered as f64 / 20.0);
            match state(&breaker) {
                BreakerState::Open => {
                    // A response counts as answered before it fails: it may be one slow response of too few.
                    prop_assert!(bad, "{sums:?}");
                    return Ok(());
                }
                BreakerState::Closed => prop_assert!(!bad || !(is_slow || is_failed), "{sums:?}"),
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }

    /// Nothing passes before the cool-down, probes keep to their share, and good probes close the breaker.
    #[test]
    fn its_states_follow_its_rules(
        steps in prop::collection::vec((0u64..20_000, 0u8..10), 1..2000), one_in in 1u32..20, good in 1u32..10,
    ) {
        let thresholds = Thresholds::default().samples(5).probe_one_in(one_in).good_probes(good);
        let breaker = Breaker::new(thresholds, 1);
        let (mut now, mut opens, mut before) = (ms(0), Duration::ZERO, BreakerState::Closed);
        let (mut asked, mut probes, mut well) = (0u32, 0u32, 0u32);
        for (later, dice) in steps {
            now += ms(if dice == 0 { later } else { later / 100 });
            let ticket = breaker.admit(None, now);
            let status = breaker.status(now);
            match (before, ticket) {
                (BreakerState::Closed, ticket) => prop_assert!(ticket.is_some_and(|ticket| !ticket.probe)),
                (BreakerState::Open, ticket) => {
                    prop_assert_eq!(ticket.is_some(), now >= opens, "at {:?}, {:?}", now, opens);
                    (asked, probes, well) = (1, u32::from(ticket.is_some()), 0);
                }
                (BreakerState::HalfOpen, ticket) => {
                    asked += 1;
                    probes += u32::from(ticket.is_some());
                    prop_assert!(probes <= asked.div_ceil(one_in), "{} of {}", probes, asked);
                }
                (other, _) => prop_assert!(false, "{other:?}"),
            }
            if let Some(ticket) = ticket {
                prop_assert!(status.state != BreakerState::Open);
                let trips = breaker.status(now).trips;
                let tripped = match dice {
                    9 => breaker.failed(ticket, Some(GOOD), now, 0),
                    8 => breaker.answered(ticket, SLOW, now, 0),
                    _ => breaker.answered(ticket, GOOD, now, 0),
                };
                let after = breaker.status(now);
                prop_assert_eq!(after.trips, trips + u64::from(tripped));
                if ticket.probe {
                    well += u32::from(dice < 8);
                    let expected = match dice {
                        8 | 9 => BreakerState::Open,
                        _ if well >= good => BreakerState::Closed,
                        _ => BreakerState::HalfOpen,
                    };
                    prop_assert_eq!(after.state, expected);
                }
                if after.state == BreakerState::Open {
                    prop_assert!((secs(30)..=secs(600)).contains(&after.opens_for));
                    opens = now + after.opens_for;
                }
            }
            before = state(&breaker);
        }
    }

    /// A peer is excluded exactly if the last of its resets are close enough together.
    #[test]
    fn peers_are_out_when_a_model_says_so(resets in prop::collection::vec((0u64..50, 0u32..3), 1..60), most in 1u32..=8) {
        let breaker = Breaker::new(Thresholds::default().resets(most, secs(60)).cool_down(secs(10_000)), 1);
        let mut kept: Vec<(u64, u32)> = Vec::new();
        let mut out = [false; 3];
        let mut now = 0;
        for (later, who) in resets {
            now += later;
            let ticket = breaker.admit(None, secs(now)).unwrap();
            breaker.reset_by(peer(who), ticket, secs(now));
            kept.push((now, who));
            let close = kept.iter().filter(|(at, other)| *other == who && now - at < 60).count();
            out[who as usize] |= close >= most as usize;
            for who in 0..3 {
                prop_assert_eq!(breaker.admit(Some(peer(who)), secs(now)).is_none(), out[who as usize]);
            }
        }
    }
}
