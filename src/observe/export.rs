//! The counters, given to the `metrics` facade.

use super::counters::Snapshot;

/// Sets one counter of the [`metrics`] facade, `millstream_NAME_total`, for each field of [`Snapshot`] to its present
/// value. Call it when metrics are scraped, or every few seconds. Costs one look-up in the recorder per counter.
pub fn record_metrics() {
    for (name, value) in Snapshot::now().named() {
        metrics::counter!(format!("millstream_{name}_total")).absolute(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    struct Kept(Arc<Mutex<BTreeMap<String, u64>>>);

    struct Cell(String, Arc<Mutex<BTreeMap<String, u64>>>);

    impl CounterFn for Cell {
        fn increment(&self, _: u64) {
            panic!("counters are set, not added to");
        }
        fn absolute(&self, value: u64) {
            self.1.lock().unwrap().insert(self.0.clone(), value);
        }
    }

    impl Recorder for Kept {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::new(Cell(key.name().to_owned(), Arc::clone(&self.0))))
        }
        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn every_counter_is_set_under_its_name() {
        let kept = Kept::default();
        metrics::with_local_recorder(&kept, record_metrics);
        let kept = kept.0.lock().unwrap();
        assert_eq!(kept.len(), Snapshot::now().named().count());
        assert!(kept.contains_key("millstream_bytes_by_sendfile_total"), "{kept:?}");
    }
}
