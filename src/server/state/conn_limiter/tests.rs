//! Unit tests of `conn_limiter`.

use super::*;

fn admit(limiter: &Arc<ConnLimiter>, ip: &str, limits: &Limits) -> Option<Permit> {
    limiter.admit(Some(ip.parse().unwrap()), limits)
}

#[test]
fn an_address_and_a_network_have_so_many_and_no_more() {
    let (limiter, limits) = (Arc::default(), Limits::default().per_address(2));
    for same in [["192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"], ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:f::"]] {
        let two: Vec<_> = same[..2].iter().map(|ip| admit(&limiter, ip, &limits).unwrap()).collect();
        assert!(admit(&limiter, same[2], &limits).is_none(), "{same:?}");
        let other = ["192.0.2.2", "2001:db8:0:1::1"].map(|ip| admit(&limiter, ip, &limits).unwrap());
        drop(two);
        drop(admit(&limiter, same[2], &limits).unwrap());
        drop(other);
    }
    assert_eq!(limiter.totals(), (0, 0));
}

#[test]
fn the_total_is_limited_and_exempt_networks_have_no_limit_of_their_own() {
    let (limiter, limits) = (Arc::default(), Limits::default().per_address(1).connections(8));
    let near = ["127.0.0.1", "127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "10.0.0.1", "fd00::1"];
    let near: Vec<_> = near.map(|ip| admit(&limiter, ip, &limits).unwrap()).into();
    let unix = limiter.admit(None, &limits).unwrap();
    assert!(admit(&limiter, "192.0.2.1", &limits).is_none(), "the ninth");
    assert!(limiter.admit(None, &limits).is_none());
    drop((near, unix));
    let limits = limits.exempt("192.0.2.0/24".parse().unwrap());
    let two = ["192.0.2.1"; 2].map(|ip| admit(&limiter, ip, &limits).unwrap());
    let one = admit(&limiter, "127.0.0.1", &limits).unwrap();
    assert!(admit(&limiter, "127.0.0.1", &limits).is_none());
    drop((one, two));
    assert_eq!(limiter.totals(), (0, 0));
    assert!(admit(&limiter, "198.51.100.1", &limits.per_address(0)).is_none());
    assert_eq!(limiter.totals(), (0, 0));
}

#[test]
fn refusals_are_reported_at_a_bounded_rate_and_none_is_left_out() {
    let (mut refusals, start) = (Refusals::default(), Instant::now());
    let mut at = |seconds, refused: Option<&str>| {
        let refused = refused.map(|ip| (Some(ip.parse().unwrap()), "per_address"));
        refusals.note(refused, || start + Duration::from_secs(seconds))
    };
    let report = |refused, ip: &str| Some(Report { refused, address: Some(ip.parse().unwrap()), limit: "per_address" });
    assert_eq!(at(0, None), None);
    assert_eq!(at(0, Some("192.0.2.1")), report(1, "192.0.2.1"));
    for _ in 0..500 {
        assert_eq!(at(9, Some("192.0.2.2")), None);
    }
    assert_eq!(at(9, None), None);
    assert_eq!(at(10, Some("192.0.2.3")), report(501, "192.0.2.3"));
    assert_eq!(at(11, Some("192.0.2.4")), None);
    assert_eq!(at(20, None), report(1, "192.0.2.4"), "reported by an admitted connection");
    assert_eq!(at(40, None), None, "nothing is left");
}
