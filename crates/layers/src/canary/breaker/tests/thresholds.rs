//! Thresholds that change while the breaker is used, and extreme ones.

use super::*;

#[test]
fn thresholds_change_at_once_and_for_new_samples_only() {
    let breaker = breaker();
    fail(&breaker, 99, ms(0));
    let old = breaker.admit(None, ms(0)).unwrap();
    breaker.set_thresholds(&Thresholds::default().p99(ms(1)).samples(3).window(secs(3600)));
    assert!(!breaker.failed(old, Some(GOOD), ms(0), 0), "a sample of the old thresholds");
    feed(&breaker, 3, ms(2), secs(3000));
    assert_eq!((state(&breaker), breaker.status(secs(3000)).trips), (BreakerState::Open, 1));
    breaker.set_thresholds(
        &Thresholds::default().probe_one_in(1).good_probes(1).samples(1).resets(1, secs(60)).window(ms(8)),
    );
    assert_eq!(breaker.status(secs(3000)).opens_for, secs(30), "it stays open");
    let probe = breaker.admit(None, secs(3030)).unwrap();
    breaker.answered(probe, ms(2), secs(3030), 0);
    assert_eq!(state(&breaker), BreakerState::Closed, "slow by the old thresholds only");
    reset(&breaker, peer(1), secs(3030));
    assert_eq!(breaker.admit(Some(peer(1)), secs(3030)), None);
    fail(&breaker, 1, secs(3031));
    assert_eq!(state(&breaker), BreakerState::Open);
    for pinned in [true, false] {
        breaker.pin(Some(pinned));
        breaker.set_thresholds(&Thresholds::default());
        assert_eq!(breaker.admit(None, secs(9000)).is_some(), pinned);
    }
}

#[test]
fn a_table_of_peers_may_get_smaller() {
    let breaker = breaker();
    (0..500).for_each(|n| reset(&breaker, peer(n << 8), ms(0)));
    breaker.set_thresholds(&Thresholds::default().peers(16));
    (0..500).for_each(|n| reset(&breaker, peer(n << 8 | 1), ms(0)));
    assert!(breaker.peers.len() <= 16, "{}", breaker.peers.len());
}

#[test]
fn cool_downs_without_end_do_not_overflow() {
    let breaker = Breaker::new(Thresholds::default().cool_down(Duration::MAX).cool_down_max(secs(1)).samples(1), 1);
    for s in 0..3 {
        reset(&breaker, peer(1), secs(s));
    }
    assert!(breaker.admit(Some(peer(1)), secs(1 << 30)).is_none());
    fail(&breaker, 1, secs(3));
    assert_eq!((state(&breaker), breaker.admit(None, secs(1 << 30))), (BreakerState::Open, None));
    assert!(breaker.status(secs(3)).opens_for > secs(1 << 30));
    // At the end of the clock the first probe passes, and the next ones wait for the end of another cool-down.
    assert!((0..1000).filter_map(|_| breaker.admit(None, Duration::MAX)).count() > 0);
    assert_eq!(state(&breaker), BreakerState::HalfOpen);
}
