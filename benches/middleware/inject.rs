//! Two header lines inserted into a response of 4 KiB: [`Injector`] compared with rebuilding the message.
//!
//! The response is one contiguous buffer, as from one read: a head of 500 bytes, then the body. Each way ends with the
//! arguments of one write call.
//!
//! | way | method |
//! |---|---|
//! | `millstream Injector` | three slices: the buffer up to the empty line, the lines, the rest of the buffer |
//! | `Vec` | finds the end of the head with `windows(4)`, copies everything into a `Vec` of the right size |
//! | `String` | splits the response as text at the empty line, joins it with `format!` |
//! | `floor, Vec, end known` | like `Vec` with a known end of the head: the cost of the copy alone |
//!
//! Allocations are exact. **Noise**: single-digit percentages. The counting allocator costs the rivals 2 to 4 ns for
//! each message.

use std::fmt::Write as _;
use std::hint::black_box;

use criterion::Throughput;
use hyper::header::{HeaderMap, HeaderValue};
use millstream_proxy::Injector;

use super::Work;
use crate::common::contest::{Case, Contender};
use crate::common::suite::Suite;

const MESSAGE: usize = 4 << 10;
const HEAD: usize = 500;
const FIELDS: [(&str, &str); 2] = [("via", "1.1 mill"), ("x-request-id", "0190c1a2-7b3d-7c4e-8f5a-6b7c8d9e0f1a")];

/// Returns a response with typical fields.
fn response() -> Vec<u8> {
    let mut text = "HTTP/1.1 200 OK\r\n\
        Date: Fri, 20 Nov 2026 12:00:00 GMT\r\n\
        Content-Type: application/json; charset=utf-8\r\n\
        Content-Length: 3596\r\n\
        Cache-Control: private, max-age=0, must-revalidate\r\n\
        ETag: W/\"5f3-18c2a9d4b10\"\r\n\
        Vary: Accept-Encoding, Origin\r\n\
        X-Content-Type-Options: nosniff\r\n\
        Strict-Transport-Security: max-age=31536000; includeSubDomains\r\n\
        Access-Control-Allow-Origin: https://app.example.com\r\n\
        Set-Cookie: session="
        .to_owned();
    let end = "; Path=/; HttpOnly\r\n\r\n";
    write!(text, "{:x<width$}{end}", "", width = HEAD - text.len() - end.len()).unwrap();
    text.extend(('a'..='z').cycle().take(MESSAGE - HEAD));
    text.into_bytes()
}

fn with_end(response: &[u8], end: usize) -> Vec<u8> {
    let (head, rest) = response.split_at(end + 2);
    let len: usize = FIELDS.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    let mut all = Vec::with_capacity(response.len() + len);
    all.extend_from_slice(head);
    for (name, value) in FIELDS {
        for part in [name, ": ", value, "\r\n"] {
            all.extend_from_slice(part.as_bytes());
        }
    }
    all.extend_from_slice(rest);
    all
}

fn by_vec(response: &[u8]) -> Vec<u8> {
    with_end(response, response.windows(4).position(|four| four == b"\r\n\r\n").unwrap())
}

fn by_string(response: &[u8]) -> String {
    let (head, body) = std::str::from_utf8(response).unwrap().split_once("\r\n\r\n").unwrap();
    let [(a, b), (c, d)] = FIELDS;
    format!("{head}\r\n{a}: {b}\r\n{c}: {d}\r\n\r\n{body}")
}

/// A way to rebuild the response, by name.
type Way<'a> = (&'static str, Box<dyn FnMut() + 'a>);

pub(crate) fn run(suite: &mut Suite) {
    let response = response();
    let end = response.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    assert_eq!((response.len(), end + 4), (MESSAGE, HEAD));
    let fields: HeaderMap =
        FIELDS.iter().map(|&(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect();
    let mut injector = Injector::new(&fields).unwrap();

    let expected = by_vec(&response);
    assert_eq!(injector.feed(&response).unwrap().slices().map(|slice| slice.to_vec()).concat(), expected);
    assert_eq!(by_string(&response).as_bytes(), expected);

    let response = &*response;
    let case = Case::new("two lines into a response of 4 KiB", "CPU us/message", 1);
    suite.run_micro(&case, Throughput::Elements(1), || {
        let ours = move || {
            injector.reset();
            black_box(injector.feed(black_box(response)).unwrap().slices());
        };
        let ways: [Way<'_>; 4] = [
            ("millstream Injector", Box::new(ours)),
            ("Vec", Box::new(|| drop(black_box(by_vec(black_box(response)))))),
            ("String", Box::new(|| drop(black_box(by_string(black_box(response)))))),
            ("floor, Vec, end known", Box::new(move || drop(black_box(with_end(black_box(response), end))))),
        ];
        ways.into_iter().map(|(name, way)| Contender { name, run: Box::new(Work(way)) }).collect()
    });
}
