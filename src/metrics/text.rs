//! Export in the text format of Prometheus, and the names and descriptions that all exports share.

use std::fmt::Write;

use super::capabilities::{CAPABILITY, Capability, capabilities};
use crate::counters::Histogram;
use crate::counters::Snapshot;
use crate::counters::labels::ResponseOutcome;
use crate::counters::requests::{Requests, Responses};

/// Histograms of responses, with the names of OpenTelemetry where it defines them.
pub(super) const FAMILIES: [Family; 5] = [
    Family {
        name: "http.server.request.duration",
        unit: "seconds",
        help: "Duration of HTTP server requests, until the end of the response.",
        of: |responses| &responses.duration,
    },
    Family {
        name: "http.server.response.body.size",
        unit: "bytes",
        help: "Size of HTTP server response bodies.",
        of: |responses| &responses.body_size,
    },
    Family {
        name: "millstream.http.time_to_head",
        unit: "seconds",
        help: "Time until the head of a response, and what its body had ready, were handed to HTTP.",
        of: |responses| &responses.time_to_head,
    },
    Family {
        name: "millstream.http.largest_gap",
        unit: "seconds",
        help: "Largest gap between two frames of a response.",
        of: |responses| &responses.largest_gap,
    },
    Family {
        name: "millstream.http.frames",
        unit: "",
        help: "Data frames of a response.",
        of: |responses| &responses.frames,
    },
];

pub(super) const FRAME_GAP: (&str, &str) = (
    "millstream.http.frame_gap",
    "Gaps between the frames of all responses, unfinished ones included, in ticks of 1 to 10 ms.",
);
pub(super) const ACTIVE: (&str, &str) = ("http.server.active_requests", "HTTP server requests in flight.");

pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) help: &'static str,
    pub(super) of: fn(&Responses) -> &Histogram,
}

/// Returns the labels of a set with their OpenTelemetry names.
pub(super) fn labels(responses: &Responses) -> Vec<(&'static str, String)> {
    let mut labels = vec![
        ("http.request.method", responses.method.to_owned()),
        ("network.protocol.version", responses.version.to_owned()),
    ];
    labels.extend(responses.status.map(|status| ("http.response.status_code", status.to_string())));
    labels.extend(responses.route.map(|route| ("http.route", route.to_owned())));
    let error = match (responses.outcome, responses.status) {
        (ResponseOutcome::Complete, Some(status @ 500..)) => Some(status.to_string()),
        (ResponseOutcome::Complete, _) => None,
        (outcome, _) => Some(outcome.as_str().to_owned()),
    };
    labels.extend(error.map(|error| ("error.type", error)));
    labels
}

/// Returns all numbers of the process in the Prometheus [text format] 0.0.4, to serve as `text/plain; version=0.0.4`.
///
/// Counters are named `millstream_NAME_total`, after the fields of [`Snapshot`]; numbers that OpenTelemetry defines
/// have its names. `millstream_capability` is 1 for each entry of [`Capabilities`](crate::Capabilities) that is used,
/// or 0 with the `reason`. The numbers show the load of a service: do not serve them on a public address.
///
/// [text format]: https://prometheus.io/docs/instrumenting/exposition_formats/
pub fn prometheus_text() -> String {
    render(&Snapshot::now(), &Requests::now(), &capabilities())
}

fn render(snapshot: &Snapshot, requests: &Requests, found: &[Capability]) -> String {
    let mut text = Text(String::with_capacity(64 << 10));
    for (name, help, value) in snapshot.described_counters() {
        let name = format!("millstream_{name}_total");
        text.head(&name, help, "counter");
        text.sample(&name, "", &[], value as f64);
    }
    for (name, help, value) in snapshot.described_gauges() {
        let name = format!("millstream_{name}");
        text.head(&name, help, "gauge");
        text.sample(&name, "", &[], value as f64);
    }
    text.head(CAPABILITY.0, CAPABILITY.1, "gauge");
    for (name, missing) in found {
        let reason = missing.clone().unwrap_or_default();
        let labels = [("name", (*name).to_owned()), ("reason", reason)];
        text.sample(CAPABILITY.0, "", &labels, if missing.is_none() { 1.0 } else { 0.0 });
    }
    let active = plain(ACTIVE.0);
    text.head(&active, ACTIVE.1, "gauge");
    for (method, n) in &requests.active {
        text.sample(&active, "", &[("http.request.method", (*method).to_owned())], *n as f64);
    }
    let gap = plain(FRAME_GAP.0) + "_seconds";
    text.head(&gap, FRAME_GAP.1, "histogram");
    text.histogram(&gap, &[], &requests.frame_gap);
    for family in &FAMILIES {
        let unit = if family.unit.is_empty() { String::new() } else { format!("_{}", family.unit) };
        let name = plain(family.name) + &unit;
        text.head(&name, family.help, "histogram");
        for responses in &requests.ended {
            text.histogram(&name, &labels(responses), (family.of)(responses));
        }
    }
    text.0
}

/// Replaces the dots, which Prometheus does not accept.
fn plain(name: &str) -> String {
    name.replace('.', "_")
}

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let help = help.trim().replace('\\', "\\\\").replace('\n', " ");
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &[(&str, String)], value: f64) {
        let mut list = String::new();
        for (label, value) in labels {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let comma = if list.is_empty() { "" } else { "," };
            write!(list, "{comma}{}=\"{value}\"", plain(label)).expect("writing to a String does not fail");
        }
        let list = if list.is_empty() { list } else { format!("{{{list}}}") };
        self.line(format_args!("{name}{suffix}{list} {value}"));
    }

    fn histogram(&mut self, name: &str, labels: &[(&'static str, String)], histogram: &Histogram) {
        let mut below = 0;
        for bucket in histogram.buckets() {
            below += bucket.count;
            let upper = if bucket.upper.is_finite() { bucket.upper.to_string() } else { "+Inf".to_owned() };
            let labels = [labels, &[("le", upper)]].concat();
            self.sample(name, "_bucket", &labels, below as f64);
        }
        self.sample(name, "_sum", labels, histogram.sum());
        self.sample(name, "_count", labels, below as f64);
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a String does not fail");
    }
}

#[cfg(test)]
mod tests;
