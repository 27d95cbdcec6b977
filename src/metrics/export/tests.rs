//! Unit tests of `export`.

use super::*;
use crate::counters::labels::{Labels, ResponseOutcome};
use crate::counters::requests;
use crate::counters::requests::Ended;
use metrics::{Counter, CounterFn, Gauge, GaugeFn, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
struct Kept {
    values: BTreeMap<String, f64>,
    recorded: Vec<(String, f64, usize)>,
    described: BTreeMap<String, (Option<Unit>, String)>,
}

#[derive(Default)]
struct Keeper(Arc<Mutex<Kept>>);

/// Held by each test that records, because the recorder checks that the lock is free.
static ALONE: Mutex<()> = Mutex::new(());

struct Cell(String, Arc<Mutex<Kept>>);

impl CounterFn for Cell {
    fn increment(&self, _: u64) {
        panic!("counters are set, not added to");
    }
    fn absolute(&self, value: u64) {
        self.1.lock().unwrap().values.insert(self.0.clone(), value as f64);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, _: f64) {
        panic!("gauges are set, not added to");
    }
    fn decrement(&self, _: f64) {
        panic!("gauges are set, not taken from");
    }
    fn set(&self, value: f64) {
        assert!(GIVEN.try_lock().is_ok(), "{} was set under the lock", self.0);
        self.1.lock().unwrap().values.insert(self.0.clone(), value);
    }
}

impl HistogramFn for Cell {
    fn record(&self, _: f64) {
        panic!("values are recorded together");
    }
    fn record_many(&self, value: f64, times: usize) {
        assert!(GIVEN.try_lock().is_ok(), "{} was recorded under the lock", self.0);
        self.1.lock().unwrap().recorded.push((self.0.clone(), value, times));
    }
}

impl Keeper {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        Arc::new(Cell(key.to_string(), Arc::clone(&self.0)))
    }
    fn describe(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.0.lock().unwrap().described.insert(name.as_str().to_owned(), (unit, text.into_owned()));
    }
}

impl Recorder for Keeper {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(name, unit, text);
    }
    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(name, unit, text);
    }
    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(name, unit, text);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        metrics::Histogram::from_arc(self.cell(key))
    }
}

#[test]
fn everything_is_recorded_once_with_name_unit_and_description() {
    let _alone = ALONE.lock().unwrap();
    let keeper = Keeper::default();
    let labels = Labels { method: 7, version: 0, status: 277, route: 0, outcome: ResponseOutcome::Aborted };
    let ended = Ended { duration: 30_000_000, time_to_head: Some(1), largest_gap: None, bytes: 5, frames: 1 };
    for _ in 0..3 {
        requests::began(7);
    }
    (0..2).for_each(|_| requests::ended(labels, ended));
    metrics::with_local_recorder(&keeper, record_metrics);
    requests::ended(labels, ended);
    metrics::with_local_recorder(&keeper, record_metrics);

    let kept = keeper.0.lock().unwrap();
    let snapshot = Snapshot::now();
    let plain = |name: &&String| name.starts_with("Key(millstream_") && !name.contains(CAPABILITY.0);
    let plain = kept.values.keys().filter(plain).count();
    assert_eq!(plain, snapshot.named().count() + snapshot.gauges().count(), "{:?}", kept.values);
    let recorded: Vec<_> = kept.recorded.iter().filter(|(key, ..)| key.contains("277")).collect();
    let durations: Vec<_> = recorded.iter().filter(|(key, ..)| key.contains("http.server.request.duration")).collect();
    let of = |value| durations.iter().filter(|(_, v, _)| *v == value).map(|(.., times)| *times).collect::<Vec<_>>();
    assert_eq!(of(0.03), [2, 1], "the new values of each call: {durations:?}");
    assert!(durations[0].0.contains("http.request.method = PATCH") && durations[0].0.contains("error.type = aborted"));
    assert!(recorded.iter().any(|(key, v, n)| key.contains("body.size") && (*v, *n) == (5.0, 2)), "{recorded:?}");
    let active = kept.values.iter().find(|(key, _)| key.contains("active_requests") && key.contains("PATCH"));
    assert_eq!(active.map(|(_, &n)| n), Some(0.0), "the gauge goes from 1 to 0");
    let described = |name: &str| kept.described.get(name).and_then(|(unit, text)| Some(((*unit)?, text.len())));
    assert!(matches!(described("http.server.request.duration"), Some((Unit::Seconds, 20..))));
    assert!(matches!(described("millstream_bytes_by_sendfile_total"), Some((Unit::Bytes, 20..))));
    assert!(matches!(described("millstream_pool_bytes"), Some((Unit::Bytes, 20..))));
}

#[test]
fn missing_capabilities_are_recorded_with_their_reason() {
    let _alone = ALONE.lock().unwrap();
    let keeper = Keeper::default();
    let found = [("sendfile", None), ("io_uring", Some("not here".to_owned()))];
    metrics::with_local_recorder(&keeper, || give_capabilities(&found));
    let kept = keeper.0.lock().unwrap();
    let told = |name: &str, reason: &str| {
        let key = format!("Key(millstream_capability, [name = {name}, reason = {reason}])");
        kept.values.get(&key).copied()
    };
    assert_eq!((told("sendfile", ""), told("io_uring", "not here")), (Some(1.0), Some(0.0)), "{:?}", kept.values);
}
