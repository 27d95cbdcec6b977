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
mod tests {
    use super::*;
    use crate::counters::labels::{Labels, route};
    use crate::counters::requests;
    use crate::counters::requests::Ended;

    fn name(text: &str) -> (&str, &str) {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
        assert!(end > 0 && !text.as_bytes()[0].is_ascii_digit(), "no name: {text}");
        text.split_at(end)
    }

    fn set(mut text: &str) -> (Vec<(String, String)>, &str) {
        let mut labels = Vec::new();
        while !text.starts_with('}') {
            let (label, rest) = name(text);
            let rest = rest.strip_prefix("=\"").expect("a quoted value");
            let mut value = String::new();
            let mut chars = rest.char_indices();
            let end = loop {
                match chars.next().expect("the value ends") {
                    (at, '"') => break at,
                    (_, '\\') => match chars.next() {
                        Some((_, 'n')) => value.push('\n'),
                        Some((_, c @ ('\\' | '"'))) => value.push(c),
                        other => panic!("escaped: {other:?}"),
                    },
                    (_, c) => value.push(c),
                }
            };
            labels.push((label.to_owned(), value));
            text = rest[end + 1..].strip_prefix(',').unwrap_or(&rest[end + 1..]);
        }
        (labels, &text[1..])
    }

    #[test]
    fn the_text_is_of_the_format_to_the_last_line() {
        let route = route("/strange\"\\\n,}{");
        let labels = Labels { method: 9, version: 4, status: 556, route, outcome: ResponseOutcome::Error };
        for duration in [1, 6_000_000, 99_000_000_000] {
            requests::began(9);
            requests::ended(labels, Ended { duration, time_to_head: None, largest_gap: Some(1), bytes: 0, frames: 2 });
        }
        let text = prometheus_text();
        assert!(text.ends_with('\n'));
        let mut families = std::collections::BTreeSet::new();
        let mut seen = std::collections::BTreeSet::new();
        let (mut family, mut kind) = ("", "");
        // Bound and count of the previous bucket of the current histogram.
        let mut before = (f64::NEG_INFINITY, 0.0);
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = name(help).0;
                assert!(families.insert(family), "{family} comes twice");
                let declared = lines.next().and_then(|line| line.strip_prefix("# TYPE ")).expect("a type follows");
                let (named, of) = declared.split_once(' ').expect("a type");
                assert!(named == family && ["counter", "gauge", "histogram"].contains(&of), "{declared}");
                kind = of;
                continue;
            }
            let (sample, rest) = name(line);
            let (mut labels, rest) = match rest.strip_prefix('{') {
                Some(rest) => set(rest),
                None => (Vec::new(), rest),
            };
            let value: f64 = rest.strip_prefix(' ').expect("a value").parse().expect("a number");
            assert!(value.is_finite() && value >= 0.0, "{line}");
            assert!(seen.insert((sample, labels.clone())), "{line} comes twice");
            match (kind, sample.strip_prefix(family).expect("a sample of its family")) {
                ("counter" | "gauge", "") => assert_eq!(kind == "counter", family.ends_with("_total"), "{line}"),
                ("histogram", "_bucket") => {
                    let (label, bound) = labels.pop().expect("a bound");
                    let bound: f64 = bound.parse().expect("a number");
                    assert!(label == "le" && bound > before.0 && value >= before.1, "{line}");
                    before = (bound, value);
                }
                ("histogram", "_sum") => assert_eq!(before.0, f64::INFINITY, "{line}"),
                ("histogram", "_count") => {
                    assert_eq!(value, before.1, "{line}");
                    before = (f64::NEG_INFINITY, 0.0);
                }
                other => panic!("{other:?}: {line}"),
            }
        }
        assert!(seen.iter().any(|(_, labels)| labels.iter().any(|(_, value)| value == "/strange\"\\\n,}{")));
    }

    #[test]
    fn missing_capabilities_are_written_with_their_reason() {
        let found = [("sendfile", None), ("io_uring", Some("\"no\" \\ not\nhere".to_owned()))];
        let text = render(&Snapshot::default(), &Requests::now(), &found);
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("millstream_capability")).collect();
        let expected = [
            r#"millstream_capability{name="sendfile",reason=""} 1"#,
            r#"millstream_capability{name="io_uring",reason="\"no\" \\ not\nhere"} 0"#,
        ];
        assert_eq!(lines, expected.map(|line| line.to_owned()));
    }

    #[test]
    fn a_response_comes_out_in_its_buckets_under_its_labels() {
        let route = route("/a\"quoted\"\\route\n");
        let labels = Labels { method: 0, version: 1, status: 555, route, outcome: ResponseOutcome::Complete };
        let ended = Ended { duration: 30_000_000, time_to_head: Some(400_000), largest_gap: None, bytes: 9, frames: 2 };
        requests::began(0);
        requests::ended(labels, ended);
        let text = prometheus_text();
        let labels = concat!(
            r#"http_request_method="GET",network_protocol_version="2",http_response_status_code="555","#,
            r#"http_route="/a\"quoted\"\\route\n",error_type="555""#
        );
        for (line, value) in [
            (format!("http_server_request_duration_seconds_bucket{{{labels},le=\"0.025\"}}"), "0"),
            (format!("http_server_request_duration_seconds_bucket{{{labels},le=\"0.05\"}}"), "1"),
            (format!("http_server_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}}"), "1"),
            (format!("http_server_request_duration_seconds_sum{{{labels}}}"), "0.03"),
            (format!("http_server_response_body_size_bytes_sum{{{labels}}}"), "9"),
            (format!("millstream_http_time_to_head_seconds_bucket{{{labels},le=\"0.0005\"}}"), "1"),
            (format!("millstream_http_largest_gap_seconds_count{{{labels}}}"), "0"),
            (format!("millstream_http_frames_sum{{{labels}}}"), "2"),
        ] {
            assert!(text.contains(&format!("\n{line} {value}\n")), "{line} {value}\n{text}");
        }
        assert_eq!(text.matches("# TYPE http_server_request_duration_seconds histogram\n").count(), 1);
    }
}
