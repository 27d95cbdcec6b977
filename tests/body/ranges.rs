//! `body::ranges`: the same answers as `files::Files`, from an object store with slow, failing and short reads.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::header::{ACCEPT_RANGES, CONTENT_TYPE, ETAG, HeaderName, LAST_MODIFIED};
use hyper::{HeaderMap, Method, Request};
use millstream::body::{Ranges, ReadAt, ranges};
use millstream::files::Files;
use millstream::net::TcpListener;
use millstream::server;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use testkit::http::{self, Flavour, on_both, watched};
use testkit::noise;
use testkit::serving::serve;

/// Behavior of an object besides returning its bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Habits {
    /// Turns of the runtime that a read takes, by its offset.
    slow: bool,
    /// Maximum length of what a read returns.
    short: Option<usize>,
    /// A read of this offset fails.
    fails_at: Option<u64>,
    /// A read of this offset returns nothing.
    empty_at: Option<u64>,
    /// A read of this offset returns one byte too many.
    long_at: Option<u64>,
}

#[derive(Debug)]
struct Object {
    bytes: Bytes,
    etag: Option<&'static str>,
    modified: Option<SystemTime>,
    habits: Habits,
    /// Reads in progress, their maximum, and their number.
    reading: AtomicUsize,
    most: AtomicUsize,
    reads: AtomicUsize,
}

impl Object {
    fn new(bytes: impl Into<Bytes>, habits: Habits) -> Arc<Self> {
        let (reading, most, reads) = Default::default();
        Arc::new(Self { bytes: bytes.into(), etag: Some("\"v1\""), modified: None, habits, reading, most, reads })
    }
}

struct Reading<'a>(&'a Object);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.reading.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReadAt for Object {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let reading = self.reading.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(reading, Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
        let _reading = Reading(self);
        assert!(len > 0 && offset + len as u64 <= self.len(), "{len} bytes at {offset}");
        if self.habits.slow {
            // Later pieces are ready before earlier ones.
            for _ in 0..7 - offset / 1000 % 7 {
                tokio::task::yield_now().await;
            }
        }
        let within = |at: Option<u64>| at.is_some_and(|at| (offset..offset + len as u64).contains(&at));
        if within(self.habits.fails_at) {
            return Err(io::Error::other("the store is down"));
        }
        if within(self.habits.empty_at) {
            return Ok(Bytes::new());
        }
        if within(self.habits.long_at) {
            return Ok(vec![0; len + 1].into());
        }
        let len = len.min(self.habits.short.unwrap_or(len));
        Ok(self.bytes.slice(offset as usize..offset as usize + len))
    }

    fn etag(&self) -> Option<hyper::header::HeaderValue> {
        self.etag.map(|etag| etag.parse().unwrap())
    }

    fn last_modified(&self) -> Option<SystemTime> {
        self.modified
    }

    fn content_type(&self) -> hyper::header::HeaderValue {
        "text/plain; charset=utf-8".parse().unwrap()
    }
}

/// A response as it is compared: status, header fields and body, without the random separator.
type Shown = (u16, Vec<(String, String)>, Vec<u8>);

async fn shown<B: Body<Data = Bytes, Error = io::Error>>(response: hyper::Response<B>) -> Shown {
    let (head, body) = response.into_parts();
    let size = body.size_hint().exact();
    let bytes = body.collect().await.unwrap().to_bytes();
    assert_eq!(size, Some(bytes.len() as u64));
    let mut fields: Vec<_> =
        head.headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    fields.sort();
    let boundary = fields.iter().find_map(|(_, value)| Some(value.split_once("boundary=")?.1.to_owned()));
    let Some(boundary) = boundary else { return (head.status.as_u16(), fields, bytes.to_vec()) };
    let text: Vec<u8> = bytes.to_vec();
    // Separators have the same length, so the bytes can be compared in place.
    let mut plain = Vec::new();
    let mut rest = &text[..];
    while let Some(at) = rest.windows(boundary.len()).position(|window| window == boundary.as_bytes()) {
        plain.extend_from_slice(&rest[..at]);
        rest = &rest[at + boundary.len()..];
    }
    plain.extend_from_slice(rest);
    let fields = fields.into_iter().map(|(name, value)| (name, value.replace(&boundary, ""))).collect();
    (head.status.as_u16(), fields, plain)
}

const LEN: usize = 5000;

/// Values of the header fields that both sides read; `TAG` and `DATE` stand for those of the file.
fn lines() -> impl Strategy<Value = Vec<(HeaderName, String)>> {
    let range = prop_oneof![
        3 => "bytes=[0-9]{1,4}-[0-9]{0,4}",
        3 => "bytes=[0-9]{1,4}-[0-9]{0,4}, ?[0-9]{1,4}-[0-9]{0,4}(, ?-[0-9]{1,3})?",
        1 => "bytes=-[0-9]{1,5}",
        2 => "bytes=[5-9][0-9]{3}-",
        1 => "[a-z]{1,6}=[0-9,-]{0,9}",
    ];
    let tag = prop_oneof![Just("TAG"), Just("W/TAG"), Just("\"other\""), Just("*"), Just("\"a\", TAG"), Just("bad")];
    let date = prop_oneof![Just("DATE"), Just("Sun, 06 Nov 1994 08:49:37 GMT"), Just("bad")];
    let either = prop_oneof![tag.clone(), date.clone()];
    let field = |name: &'static str| move |value: &str| (HeaderName::from_static(name), value.to_owned());
    let line = prop_oneof![
        10 => range.prop_map(|value| (HeaderName::from_static("range"), value)),
        1 => tag.clone().prop_map(field("if-match")),
        1 => tag.prop_map(field("if-none-match")),
        2 => either.prop_map(field("if-range")),
        1 => date.clone().prop_map(field("if-modified-since")),
        1 => date.prop_map(field("if-unmodified-since")),
    ];
    prop::collection::vec(line, 0..4)
}

#[test]
fn the_answers_are_those_of_a_file_with_the_same_bytes() {
    watched(|| {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("file.txt")).unwrap();
        std::io::Write::write_all(&mut &file, &noise(LEN)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000_000_500)).unwrap();
        let runtime = Flavour::CurrentThread.runtime();
        let files = Files::new(dir.path()).unwrap();
        let get = |method: &Method, headers: &HeaderMap| {
            runtime.block_on(async {
                let mut request = Request::get("/file.txt").method(method).body(()).unwrap();
                *request.headers_mut() = headers.clone();
                shown(files.get(request.method(), request.uri(), request.headers()).await).await
            })
        };
        let (_, fields, bytes) = get(&Method::GET, &HeaderMap::new());
        let field = |name: HeaderName| fields.iter().find(|(found, _)| **found == name).unwrap().1.clone();
        let (tag, date): (&str, _) = (field(ETAG).leak(), field(LAST_MODIFIED));
        assert_eq!((&*field(CONTENT_TYPE), &*field(ACCEPT_RANGES)), ("text/plain; charset=utf-8", "bytes"));
        let habits = Habits { slow: true, short: Some(300), ..Habits::default() };
        let object = Object {
            etag: Some(tag),
            modified: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000_000_500)),
            ..Arc::into_inner(Object::new(bytes, habits)).unwrap()
        };
        let object = Ranges::new(object).piece_len(1000).in_flight(3);
        let method = prop_oneof![5 => Just(Method::GET), 1 => Just(Method::HEAD), 1 => Just(Method::PUT)];
        let config = Config { cases: 2000, failure_persistence: None, ..Config::default() };
        // The same requests in every run: what they reach is known. Then other ones, of which that would be luck.
        let same = TestRunner::new_with_rng(config.clone(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let runs = [(same, true), (TestRunner::new(config), false)];
        let requests = (method, lines());
        for (mut runner, is_known) in runs {
            let statuses = RefCell::new(BTreeMap::<u16, usize>::new());
            let multiparts = Cell::new(0);
            let ran = runner.run(&requests, |(method, lines)| {
                let mut headers = HeaderMap::new();
                for (name, value) in lines {
                    headers.append(name, value.replace("TAG", tag).replace("DATE", &date).parse().unwrap());
                }
                let ours = runtime.block_on(async { shown(object.respond(&method, &headers)).await });
                *statuses.borrow_mut().entry(ours.0).or_default() += 1;
                let is_multipart = ours.1.iter().any(|(_, value)| value.starts_with("multipart/"));
                multiparts.set(multiparts.get() + usize::from(is_multipart));
                prop_assert_eq!(ours, get(&method, &headers), "{} {:?}", method, headers);
                Ok(())
            });
            ran.unwrap();
            let statuses = statuses.into_inner();
            for status in [200, 206, 304, 405, 412, 416] {
                assert!(!is_known || statuses.get(&status).is_some_and(|&count| count > 5), "{statuses:?}");
            }
            assert!(!is_known || multiparts.get() > 5, "{multiparts:?}");
        }
    });
}

#[test]
fn reads_are_bounded_in_order_and_only_for_what_is_sent() {
    on_both(|| async {
        let bytes = noise(100_000);
        for in_flight in [1, 2, 5, 64] {
            for (piece, short) in [(1000, None), (1000, Some(7)), (999, Some(998)), (usize::MAX, None)] {
                let object = Object::new(bytes.clone(), Habits { slow: true, short, ..Habits::default() });
                let answers = Ranges::new(Arc::clone(&object)).in_flight(in_flight).piece_len(piece);
                let response = answers.respond(&Method::HEAD, &HeaderMap::new());
                assert_eq!(response.headers()["content-length"], "100000");
                assert_eq!(object.reads.load(Ordering::Relaxed), 0, "HEAD");
                let body = answers.respond(&Method::GET, &HeaderMap::new()).into_body();
                assert_eq!(object.reads.load(Ordering::Relaxed), 0, "not polled");
                assert!(body.collect().await.unwrap().to_bytes() == bytes);
                let most = object.most.load(Ordering::Relaxed);
                let pieces = bytes.len().div_ceil(piece);
                assert!(most <= in_flight, "{most} reads at once");
                assert!(short.is_some() || most == in_flight.min(pieces), "{most} reads at once");
                let mut range = HeaderMap::new();
                range.append("range", "bytes=500-1499".parse().unwrap());
                let before = object.reads.load(Ordering::Relaxed);
                let part = answers.respond(&Method::GET, &range).into_body().collect().await.unwrap().to_bytes();
                assert!(part == bytes[500..1500]);
                assert!(short.is_some() || object.reads.load(Ordering::Relaxed) - before <= 2);
            }
        }
    });
}

#[test]
fn a_read_that_fails_fails_the_body_behind_the_bytes_before_it() {
    on_both(|| async {
        for (habits, kind) in [
            (Habits { fails_at: Some(3500), ..Habits::default() }, io::ErrorKind::Other),
            (Habits { empty_at: Some(3500), ..Habits::default() }, io::ErrorKind::UnexpectedEof),
            (Habits { long_at: Some(3500), ..Habits::default() }, io::ErrorKind::InvalidData),
        ] {
            for slow in [false, true] {
                let object = Object::new(noise(LEN), Habits { slow, ..habits });
                let answers = Ranges::new(Arc::clone(&object)).in_flight(4).piece_len(1000);
                let mut body = answers.respond(&Method::GET, &HeaderMap::new()).into_body();
                let mut got = 0;
                let error = loop {
                    match body.frame().await.expect("the body does not end early") {
                        Ok(frame) => got += frame.into_data().unwrap().len(),
                        Err(e) => break e,
                    }
                };
                assert_eq!((got, error.kind()), (3000, kind), "{error}");
                assert!(body.frame().await.is_none());
                assert_eq!(object.reading.load(Ordering::Relaxed), 0, "the other reads are dropped");
            }
        }
    });
}

#[test]
fn tags_that_are_none_are_not_sent() {
    let object = Object { etag: Some("no quotes"), ..Arc::into_inner(Object::new("x", Habits::default())).unwrap() };
    let response = ranges(object, &Request::get("/").header("if-none-match", "no quotes").body(()).unwrap());
    assert_eq!((response.status().as_u16(), response.headers().get(ETAG)), (200, None));
}

/// A client over a socket: a download that is resumed, one that is cut, and one that the client leaves.
#[test]
fn clients_get_ranges_and_learn_that_bytes_are_missing() {
    on_both(|| async {
        let bytes = Bytes::from(noise(3 << 20));
        let good = Object::new(bytes.clone(), Habits { slow: true, ..Habits::default() });
        let bad = Object::new(bytes.clone(), Habits { fails_at: Some(2 << 20), ..Habits::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (one, other) = (Arc::clone(&good), Arc::clone(&bad));
        let service = tower::service_fn(move |request: Request<server::RequestBody>| {
            let object = if request.uri().path() == "/bad" { &other } else { &one };
            let response = ranges(Arc::clone(object), &request);
            async { Ok::<_, std::convert::Infallible>(response) }
        });
        tokio::spawn(serve(listener, service).into_future());
        let mut client = http::h1(addr).await;
        let request = |path: &str, range: &str| {
            let mut request = http::request(path);
            request.headers_mut().insert("range", range.parse().unwrap());
            request
        };
        for from in [0, 1_000_000] {
            let range = format!("bytes={from}-");
            let mut resumed = request("/good", &range);
            resumed.headers_mut().insert("if-range", "\"v1\"".parse().unwrap());
            let response = client.send_request(resumed).await.unwrap();
            assert_eq!(response.status(), 206);
            assert!(http::whole(response).await.unwrap() == bytes[from..]);
            client.ready().await.unwrap();
        }
        http::whole(client.send_request(http::request("/bad")).await.unwrap()).await.unwrap_err();
        let mut client = http::h1(addr).await;
        drop(client.send_request(http::request("/good")).await.unwrap());
        drop(client);
        let start = std::time::Instant::now();
        while Arc::strong_count(&good) > 2 || good.reading.load(Ordering::Relaxed) > 0 {
            assert!(start.elapsed() < testkit::HANGS, "a body of a client that left is kept");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}
