//! The values that the documentation of the limits names.

use super::*;

const KIB: usize = 1024;
const MIB: usize = 1_048_576;

#[test]
fn the_defaults_are_as_documented() {
    let limits = Limits::default();
    let seconds = Duration::from_secs;
    assert_eq!((limits.head_time, limits.body_progress, limits.write_stall), (seconds(10), seconds(30), seconds(30)));
    assert_eq!((limits.keep_alive, limits.half_close), (seconds(75), seconds(1)));
    assert!(limits.age.is_none());
    let returns = Spread::from(seconds(1)..=seconds(3));
    assert_eq!((limits.drain_spread, limits.retry_after.spread()), (Duration::MAX, returns));
    assert!(!limits.half_close_events && !limits.adaptive_window && limits.streaming.is_none());
    assert_eq!((limits.ping_interval, limits.ping_timeout), (seconds(60), seconds(20)));
    assert_eq!((limits.body_rate, limits.write_rate, limits.body), (1024, 8192, u64::MAX));
    assert_eq!((limits.head, limits.uri, limits.fields), (16 * KIB, 8 * KIB, 100));
    assert_eq!((limits.connections, limits.per_address, limits.streams), (10_000, 1000, 100));
    assert_eq!((limits.stream_window, limits.connection_window), (3 << 20, 4 << 20));
    assert_eq!((limits.buffer, limits.budget), (64 * KIB, 256 * MIB));
}

#[test]
fn each_setting_is_kept_within_its_bounds() {
    let second = Duration::from_secs(7);
    let limits = Limits::default()
        .head_time(second)
        .body_progress(second)
        .write_stall(second)
        .keep_alive(second)
        .half_close(second)
        .half_close_events(true)
        .age(second, 2 * second)
        .drain_spread(second)
        .retry_after(second)
        .http2_ping_interval(second)
        .http2_ping_timeout(second);
    let times = [limits.head_time, limits.body_progress, limits.write_stall, limits.keep_alive, limits.half_close];
    assert_eq!((times, limits.half_close_events), ([second; 5], true));
    assert_eq!([limits.ping_interval, limits.ping_timeout, limits.drain_spread], [second; 3]);
    assert_eq!(limits.age.map(|(ages, grace)| (ages.spread(), grace)), Some((second.into(), 2 * second)));
    assert_eq!(limits.retry_after.spread(), second.into());

    let limits = Limits::default()
        .body_rate(7)
        .write_rate(7)
        .head(7)
        .uri(7)
        .fields(7)
        .body(7)
        .connections(7)
        .per_address(7)
        .http2_streams(7)
        .http2_stream_window(7)
        .http2_connection_window(7)
        .http2_adaptive_window(true)
        .buffer(9000)
        .budget(7);
    assert_eq!([limits.body_rate, limits.write_rate, limits.body], [7; 3]);
    assert_eq!([limits.head, limits.uri, limits.fields, limits.connections, limits.per_address, limits.budget], [7; 6]);
    assert_eq!([limits.streams, limits.stream_window, limits.connection_window], [7; 3]);
    assert_eq!((limits.buffer, limits.adaptive_window), (9000, true));

    let least = Limits::default().body_rate(0).write_rate(0).head(0).buffer(0);
    assert_eq!((least.body_rate, least.write_rate, least.head, least.buffer), (1, 1, 1, 8 * KIB));
    let most = Limits::default().fields(usize::MAX).http2_stream_window(u32::MAX).http2_connection_window(u32::MAX);
    assert_eq!((most.fields, most.stream_window, most.connection_window), (16_384, 2_147_483_647, 2_147_483_647));
}

#[test]
fn pressure_begins_at_90_and_95_percent() {
    let of = |used| Pressure::of(used, 1000);
    assert_eq!([of(0), of(899)], [Pressure::None; 2]);
    assert_eq!([of(900), of(949)], [Pressure::High; 2]);
    assert_eq!([of(950), of(1000), of(usize::MAX)], [Pressure::Full; 3]);
    // A budget of nothing is always used up.
    assert_eq!(Pressure::of(0, 0), Pressure::Full);
    assert_eq!(Pressure::of(0, usize::MAX), Pressure::None);
    assert_eq!(Pressure::of(usize::MAX, usize::MAX), Pressure::Full);
}

#[test]
fn an_empty_budget_is_pressure() {
    assert_eq!(Limits::default().budget(0).pressure(), Pressure::Full);
    assert_eq!(Limits::default().budget(usize::MAX).pressure(), Pressure::None);
}
