//! Unit tests of `text`.

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
