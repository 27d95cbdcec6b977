//! Unit tests of `profile`.

use super::*;

#[test]
fn profiles_are_read_by_the_names_they_are_written_by() {
    for (n, profile) in Profile::ALL.into_iter().enumerate() {
        assert_eq!(profile as usize, n, "the number of {profile}");
        assert_eq!(profile.to_string().parse::<Profile>().unwrap(), profile);
    }
    let error = "fast".parse::<Profile>().unwrap_err().to_string();
    assert_eq!(error, "`fast` is not a profile; use one of system, latency, bulk, auto");
}

#[test]
fn the_round_trip_decides_and_does_not_flap() {
    let fitting = |ms, now| Profile::fitting(Duration::from_millis(ms), now);
    for now in [Profile::System, Profile::Latency, Profile::Auto] {
        assert_eq!((fitting(49, now), fitting(50, now)), (Profile::Latency, Profile::Bulk));
    }
    assert_eq!((fitting(40, Profile::Bulk), fitting(39, Profile::Bulk)), (Profile::Bulk, Profile::Latency));
}

#[test]
fn a_share_is_exact_and_spread() {
    for percent in [0, 1, 5, 25, 33, 50, 99, 100, 200] {
        let switch = ProfileSwitch::default();
        assert!(switch.next().is_none());
        switch.set(Profile::Bulk, percent);
        assert_eq!(switch.get(), (Profile::Bulk, percent.min(100)));
        let picked: Vec<usize> = (0..300).filter(|_| switch.clone().next() == Some(Profile::Bulk)).collect();
        let share = usize::from(percent.min(100));
        assert_eq!(picked.len(), 3 * share, "{percent} %");
        let farthest = picked.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(0);
        assert!(share == 0 || farthest <= 100usize.div_ceil(share), "{percent} %: {farthest} apart");
    }
}
