//! Export to the `metrics` facade.

use std::sync::{Mutex, PoisonError};

use metrics::{Label, Unit};

use super::capabilities::{CAPABILITY, Capability, capabilities};
use super::text::{ACTIVE, FAMILIES, FRAME_GAP, labels};
use crate::counters::Histogram;
use crate::counters::Snapshot;
use crate::counters::requests::Requests;

/// Requests that the histograms of the facade contain so far.
static GIVEN: Mutex<Option<Requests>> = Mutex::new(None);

/// Records all numbers in the [`metrics`] facade. Call it when metrics are scraped, or every few seconds.
///
/// | | |
/// |---|---|
/// | counters | `millstream_NAME_total` for each counter of [`Snapshot`], set to its current value |
/// | gauges | `millstream_NAME` for each gauge of [`Snapshot`]; `http.server.active_requests` by method |
/// | gauge | `millstream_capability` by `name` and `reason`, as in [`prometheus_text`](super::prometheus_text()) |
/// | histograms, s | `http.server.request.duration`, `millstream.http.time_to_head`, `millstream.http.largest_gap` |
/// | histograms | `http.server.response.body.size` in bytes, `millstream.http.frames` |
/// | histogram, s, without labels | `millstream.http.frame_gap` |
///
/// Labels have the names of OpenTelemetry: `http.request.method`, `http.response.status_code`,
/// `network.protocol.version`, `http.route`, `error.type`. `url.scheme` is not known here.
///
/// The facade takes single values. A histogram records, for each bucket, its mean for each value added since the last
/// call: counts are right in a recorder with the same buckets, and sums in any. With several recorders each gets a
/// part. A call costs a few look-ups in the recorder for each number; requests pay nothing.
pub fn record_metrics() {
    let snapshot = Snapshot::now();
    for (name, help, value) in snapshot.described_counters() {
        let unit = if name.contains("bytes") || name.starts_with("copied_by") { Unit::Bytes } else { Unit::Count };
        let name = format!("millstream_{name}_total");
        metrics::describe_counter!(name.clone(), unit, help.trim());
        metrics::counter!(name).absolute(value);
    }
    for (name, help, value) in snapshot.described_gauges() {
        let unit = if name.ends_with("bytes") { Unit::Bytes } else { Unit::Count };
        let name = format!("millstream_{name}");
        metrics::describe_gauge!(name.clone(), unit, help.trim());
        metrics::gauge!(name).set(value as f64);
    }

    give_capabilities(&capabilities());

    let (now, new) = since_last();
    metrics::describe_gauge!(ACTIVE.0, Unit::Count, ACTIVE.1);
    for (method, n) in &now.active {
        metrics::gauge!(ACTIVE.0, "http.request.method" => *method).set(*n as f64);
    }
    metrics::describe_histogram!(FRAME_GAP.0, Unit::Seconds, FRAME_GAP.1);
    give(FRAME_GAP.0, Vec::new(), &new.frame_gap);
    for family in &FAMILIES {
        let unit = match family.unit {
            "seconds" => Unit::Seconds,
            "bytes" => Unit::Bytes,
            _ => Unit::Count,
        };
        metrics::describe_histogram!(family.name, unit, family.help);
        for responses in &new.ended {
            let labels = labels(responses).into_iter().map(|(name, value)| Label::new(name, value)).collect();
            give(family.name, labels, (family.of)(responses));
        }
    }
}

/// Returns the current requests and those added since the last call. The recorder is called without the lock.
fn since_last() -> (Requests, Requests) {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Requests::now();
    let new = given.replace(now.clone()).map_or_else(|| now.clone(), |given| now.since(&given));
    (now, new)
}

fn give_capabilities(found: &[Capability]) {
    metrics::describe_gauge!(CAPABILITY.0, CAPABILITY.1);
    for (name, missing) in found {
        let reason = missing.clone().unwrap_or_default();
        let value = if missing.is_none() { 1.0 } else { 0.0 };
        metrics::gauge!(CAPABILITY.0, "name" => *name, "reason" => reason).set(value);
    }
}

fn give(name: &'static str, labels: Vec<Label>, new: &Histogram) {
    if new.count() == 0 {
        return;
    }
    let histogram = metrics::histogram!(name, labels);
    for bucket in new.buckets().filter(|bucket| bucket.count > 0) {
        histogram.record_many(bucket.sum / bucket.count as f64, usize::try_from(bucket.count).unwrap_or(usize::MAX));
    }
}

#[cfg(test)]
mod tests;
