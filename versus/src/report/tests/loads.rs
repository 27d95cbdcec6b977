//! What is said of open loops, of servers that do not keep up, and of idle connections.

use super::{check_page, everywhere, select, synthetic};
use crate::report::metric::Metric;
use crate::report::summary::{OURS, Summary};
use crate::report::text::markdown;
use crate::run::{Arrivals, Results, Work};

/// A run of one cell of this kind.
fn run(name: &str, arrivals: Arrivals) -> Results {
    let mut results = synthetic(&[(OURS, 1.0), ("stock", 2.0)], 7);
    let cell = &mut results.header.cells[0];
    (cell.name, cell.work, cell.arrivals) = (name.to_owned(), Work::Hello, arrivals);
    results.rounds.iter_mut().for_each(|record| record.cell = name.to_owned());
    results
}

#[test]
fn an_open_loop_has_its_latencies_and_says_who_did_not_keep_up() {
    let mut results = run("rate/json", Arrivals::Open(40_000));
    for record in &mut results.rounds {
        record.offered = Some(if record.contender == OURS { record.done / 0.99 } else { record.done * 2.0 });
    }
    for text in everywhere(&results) {
        assert!(
            text.contains("rate/json: stock did not keep up: it completed 50 % of 40 k requests a second"),
            "{text}"
        );
        assert!(!text.contains("millstream did not keep up"), "{text}");
    }
    let text = markdown(&results, &Summary::all(&results));
    let (_, table) = text.split_once("Latency in an open loop").unwrap();
    let row = table.lines().find(|line| line.starts_with("| 12 bytes of JSON, 40000 requests a second")).unwrap();
    // Percentiles of 6930 responses and 70 that take three times as long, at both speeds of the machine.
    assert_eq!(row.matches(", ").count(), 8, "{row}");
    let html = check_page(&results);
    assert_eq!(select(&html, "#rate-json .figures .bad").iter().filter(|text| text.contains("50 %")).count(), 1);

    results.rounds.iter_mut().for_each(|record| record.offered = Some(record.done));
    for text in everywhere(&results) {
        assert!(!text.contains("did not keep up"), "{text}");
    }
    // A closed loop offers what the server takes.
    let closed = synthetic(&[(OURS, 1.0)], 5);
    assert!(!markdown(&closed, &Summary::all(&closed)).contains("open loop"));
}

#[test]
fn memory_of_idle_connections_is_that_above_the_start() {
    let mut results = run("rest/5000", Arrivals::Once);
    results.header.cells[0].connections = 5000;
    for record in &mut results.rounds {
        let each = if record.contender == OURS { 5 } else { 20 };
        (record.first_pss_kib, record.pss_kib) = (Some(3000), Some(3000 + 5000 * each));
        record.latency.clear();
    }
    let summaries = Summary::all(&results);
    let row = summaries[0].row("stock").unwrap();
    assert_eq!(row.get(Metric::Idle).map(|kib| kib.median), Some(20.0));
    assert_eq!(row.advantage(Metric::Idle).map(|ratio| ratio.median), Some(4.0));
    assert!(row.get(Metric::Rate).is_none() && row.get(Metric::P99).is_none() && row.get(Metric::Cost).is_some());
    let text = markdown(&results, &summaries);
    let (_, table) = text.split_once("\nMemory for each idle connection").unwrap();
    assert!(table.contains("5000 connections, 1 worker | **5** | 20 |"), "{text}");
    let html = check_page(&results);
    assert_eq!(select(&html, "#rest-5000-idle .bar").len(), 2);
    assert_eq!(select(&html, "#rest-5000-pareto, #rest-5000-latency"), Vec::<String>::new());

    // No other cell has such a table.
    let other = synthetic(&[(OURS, 1.0)], 5);
    assert!(!markdown(&other, &Summary::all(&other)).contains("idle connection"));
}

#[test]
fn p999_has_a_table_of_its_own() {
    let results = synthetic(&[(OURS, 1.0), ("stock", 2.0)], 7);
    let summaries = Summary::all(&results);
    let row = summaries[0].row("stock").unwrap();
    assert!(row.get(Metric::P999).unwrap().median > row.get(Metric::P99).unwrap().median);
    let text = markdown(&results, &summaries);
    assert!(text.contains("\np99, ms:\n") && text.contains("\np99.9, ms:\n"), "{text}");
}

#[test]
fn the_mtu_of_a_run_is_said() {
    let mut results = synthetic(&[(OURS, 1.0)], 5);
    assert!(everywhere(&results).iter().all(|text| !text.contains("1500")));
    results.header.plan.mtu = Some(1500);
    results.header.machine.mtu = "1500".to_owned();
    for text in everywhere(&results) {
        assert!(text.contains("loopback device was 1500") || text.contains("MTU of loopback 1500"), "{text}");
    }
}
