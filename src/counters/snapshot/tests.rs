//! Unit tests of `snapshot`.

use super::*;
use crate::counters::{Present, count};

#[test]
fn counts_of_all_threads_are_summed() {
    let before = Snapshot::now();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| (0..100).for_each(|_| count(Counter::AcceptPauses, 2)));
        }
    });
    assert_eq!(Snapshot::now().since(&before).accept_pauses, 4000);
}

#[test]
fn one_thread_may_subtract_from_a_gauge_what_another_added() {
    let present: Vec<_> = (0..50).map(|_| Present::in_(Gauge::OpenConnections)).collect();
    let with = Snapshot::now();
    assert!(with.open_connections >= 50);
    std::thread::spawn(move || drop(present)).join().unwrap();
    let without = Snapshot::now();
    assert!(without.open_connections <= with.open_connections - 50);
    assert_eq!(without.since(&with).open_connections, without.open_connections, "a gauge keeps its current value");
}

#[test]
fn rates_are_of_the_time_between() {
    let lately = Snapshot { requests: 30, elapsed: Duration::from_millis(1500), ..Snapshot::default() };
    assert_eq!(lately.per_second(lately.requests), 20.0);
    assert_eq!(Snapshot::default().per_second(5), 0.0);
}

#[test]
fn the_report_names_every_number() {
    let report = Snapshot::default().to_string();
    assert_eq!(report.lines().count(), NUMBERS + 1);
    assert!(report.contains("bytes_by_sendfile 0") && report.contains("pool_bytes 0"));
}
