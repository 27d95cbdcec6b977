//! Readers of one hub in several framings: each gets what a reader of server-sent events gets.

use std::cmp::Ordering;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use http::HeaderValue;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use millstream::net::TcpListener;
use millstream::server::{RequestBody, serve};
use millstream::sse::log::{Log, LogFuture, Replay, ReplayError, Sink};
use millstream::sse::{
    Event, EventBody, EventParts, FramedHub, Framing, FramingEnd, Hub, JsonLines, LagPolicy, Raw, SendError,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::parse::Parser;
use crate::served::until;
use testkit::HANGS;
use testkit::http::{Flavour, Raw as RawClient, h1, h2, on_both, request};

/// Serves the hub at `/`, and each framing at its number.
async fn served(hub: &Hub, framings: Vec<FramedHub>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, hub) = (listener.local_addr().unwrap(), hub.clone());
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let answer = match request.uri().path()[1..].parse::<usize>() {
            Ok(number) => framings[number].subscribe(&request),
            Err(_) => hub.subscribe(&request),
        };
        async { Ok::<_, Infallible>(answer) }
    });
    tokio::spawn(serve(listener, service).into_future());
    addr
}

struct Reader {
    answer: Response<Incoming>,
    text: Vec<u8>,
}

impl Reader {
    async fn connect(addr: SocketAddr, path: &str, is_two: bool, last: Option<&str>) -> Self {
        let mut request: Request<Empty<Bytes>> = request(path);
        if let Some(last) = last {
            request.headers_mut().insert("last-event-id", HeaderValue::from_str(last).unwrap());
        }
        let answer = match is_two {
            false => h1(addr).await.send_request(request).await.unwrap(),
            true => h2(addr).await.send_request(request).await.unwrap(),
        };
        Self { answer, text: Vec::new() }
    }

    /// Reads until the text holds `last`.
    async fn until(&mut self, last: &str) -> &[u8] {
        while !self.text.windows(last.len()).any(|bytes| bytes == last.as_bytes()) {
            let frame = timeout(HANGS, self.answer.frame()).await.expect("a frame in time").expect("no end");
            self.text.extend(frame.unwrap().into_data().unwrap());
        }
        &self.text
    }

    async fn end(mut self) -> Vec<u8> {
        while let Some(frame) = timeout(HANGS, self.answer.frame()).await.expect("an end in time") {
            self.text.extend(frame.unwrap().into_data().unwrap());
        }
        self.text
    }
}

fn lines(text: &[u8]) -> Vec<Value> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn send(hub: &Hub, number: u64) {
    hub.send(Event::new().event("n").data(format!("{{\n\"n\": {number}}}"))).unwrap();
}

#[test]
fn all_framings_have_the_same_events_in_the_same_order() {
    on_both(async || {
        let hub = Hub::new();
        let framings = vec![hub.framed(JsonLines::new().with_ids()), hub.framed(Raw::new())];
        let addr = served(&hub, framings).await;
        send(&hub, 0);
        let position = hub.position();
        send(&hub, 1);
        for is_two in [false, true] {
            let begun = hub.stats().sent;
            let mut events = Reader::connect(addr, "/", is_two, Some(&position)).await;
            let mut ids = Reader::connect(addr, "/0", is_two, Some(&position)).await;
            let mut data = Reader::connect(addr, "/1", is_two, Some(&position)).await;
            assert_eq!(ids.answer.headers()["content-type"], "application/x-ndjson");
            assert_eq!(data.answer.headers()["content-type"], "application/octet-stream");
            assert_eq!(ids.answer.headers()["cache-control"], "no-cache, no-transform");
            if !is_two {
                until(&hub, |stats| stats.direct == 3).await;
            }
            for number in begun..begun + 30 {
                send(&hub, number);
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            let last = format!("\"n\": {}}}", begun + 29);
            let seen = Parser::default().feed(events.until(&format!("{last}\nid: {}\n\n", hub.position())).await);
            let found: Vec<Value> = lines(ids.until(&format!("{last}}}\n")).await);
            let expected: Vec<Value> = seen
                .iter()
                .map(|seen| json!({ "id": seen.id, "event": "n", "data": serde_json::from_str::<Value>(&seen.data).unwrap() }))
                .collect();
            assert_eq!((found.len() as u64, &found), (begun + 29, &expected), "HTTP/2: {is_two}");
            let all: String = seen.iter().map(|seen| seen.data.as_str()).collect();
            assert_eq!(String::from_utf8_lossy(data.until(&last).await), all);
            drop((events, ids, data));
            until(&hub, |stats| (stats.subscribers, stats.direct) == (0, 0)).await;
        }
    });
}

/// The data of each event, but not of odd numbers. Counts its calls.
#[derive(Debug)]
struct Even(Arc<AtomicUsize>);

impl Framing for Even {
    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static("text/plain")
    }

    fn frame(&self, event: EventParts<'_>, to: &mut Vec<u8>) {
        self.0.fetch_add(1, Relaxed);
        let data = event.data.unwrap();
        if data.bytes().rev().nth(1).unwrap().is_multiple_of(2) {
            to.extend(data.bytes().filter(|byte| *byte != b'\n'));
        }
    }

    fn end(&self, end: FramingEnd, to: &mut Vec<u8>) {
        to.extend(format!("{:?}, back in {:?}", end.reason, end.retry).bytes());
    }
}

#[test]
fn an_event_is_framed_once_for_all_readers_and_may_be_left_out() {
    Flavour::CurrentThread.runtime().block_on(async {
        const READERS: usize = 30;
        let hub = Hub::builder().keep_alive(Duration::from_millis(20)).retry(Duration::from_secs(2)).build();
        let calls = Arc::new(AtomicUsize::new(0));
        let addr = served(&hub, vec![hub.framed(Even(Arc::clone(&calls)))]).await;
        let mut readers = Vec::new();
        for number in 0..READERS {
            // Those of HTTP/2 have tasks.
            readers.push(Reader::connect(addr, "/0", number % 3 == 0, None).await);
        }
        until(&hub, |stats| stats.direct == READERS * 2 / 3).await;
        for number in 0..20 {
            send(&hub, number);
            until(&hub, |stats| stats.delivered == (number + 1) * READERS as u64).await;
        }
        assert_eq!(calls.load(Relaxed), 20);
        // Nothing keeps these streams alive.
        tokio::time::sleep(Duration::from_millis(100)).await;
        hub.close();
        let expected: String = (0..20).step_by(2).map(|number| format!("{{\"n\": {number}}}")).collect();
        for reader in readers {
            assert_eq!(String::from_utf8(reader.end().await).unwrap(), format!("{expected}Closed, back in 2s"));
        }
    });
}

/// The data of each event, but panics for one of them.
#[derive(Debug)]
struct Panics;

impl Framing for Panics {
    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static("text/plain")
    }

    fn frame(&self, event: EventParts<'_>, to: &mut Vec<u8>) {
        let data = event.data.unwrap();
        assert!(!data.contains(": 1}"), "the framing of a test panics");
        to.extend(data.bytes());
    }
}

#[test]
fn a_framing_that_panics_ends_the_streams_of_its_readers_only() {
    on_both(async || {
        // Of one beat, so that one task writes to all.
        let (hub, other) = (Hub::new(), Hub::new());
        let addr = served(&hub, vec![hub.framed(Panics)]).await;
        let other_addr = served(&other, Vec::new()).await;
        let mut framed =
            [Reader::connect(addr, "/0", false, None).await, Reader::connect(addr, "/0", false, None).await];
        let mut plain = Reader::connect(addr, "/", false, None).await;
        let mut others = Reader::connect(other_addr, "/", false, None).await;
        until(&hub, |stats| stats.direct == 3).await;
        until(&other, |stats| stats.direct == 1).await;
        send(&hub, 0);
        for reader in &mut framed {
            reader.until(": 0}").await;
        }
        send(&hub, 1);
        for reader in &mut framed {
            let end = timeout(HANGS, reader.answer.frame()).await.expect("an end in time");
            assert!(!matches!(end, Some(Ok(_))), "{end:?}");
        }
        until(&hub, |stats| stats.subscribers == 1).await;
        send(&hub, 2);
        plain.until(": 2}").await;
        send(&other, 0);
        others.until(": 0}").await;
        assert_eq!((hub.stats().direct, other.stats().direct), (1, 1), "the hubs still write");
    });
}

/// The state of the hub, for each event.
#[derive(Debug)]
struct Asks(Hub);

impl Framing for Asks {
    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static("text/plain")
    }

    fn frame(&self, _: EventParts<'_>, to: &mut Vec<u8>) {
        let Self(hub) = self;
        to.extend(format!("{} of {hub:?}\n", hub.stats().direct).bytes());
    }
}

#[test]
fn a_framing_may_ask_its_hub_for_its_state() {
    on_both(async || {
        let hub = Hub::new();
        let addr = served(&hub, vec![hub.framed(Asks(hub.clone()))]).await;
        let mut reader = Reader::connect(addr, "/0", false, None).await;
        until(&hub, |stats| stats.direct == 1).await;
        send(&hub, 0);
        timeout(HANGS, reader.until("1 of Hub")).await.expect("a frame in time");
        hub.close();
    });
}

#[tokio::test(start_paused = true)]
async fn a_framing_is_told_why_a_stream_ends() {
    let builder = || Hub::builder().replay(2).queue(2).retry(Duration::from_secs(2)).max_age(Duration::from_secs(60));
    type End = fn(&Hub, &EventBody);
    let ends: [(&str, LagPolicy, End); 4] = [
        ("Closed", LagPolicy::DropOldest, |hub, _| hub.close()),
        ("Drained", LagPolicy::DropOldest, |_, body| body.ending().unwrap().end()),
        ("TooSlow", LagPolicy::Disconnect, |hub, _| (0..10).for_each(|number| send(hub, 2 * number))),
        ("Aged", LagPolicy::DropOldest, |_, _| {}),
    ];
    for (reason, policy, end) in ends {
        let hub = builder().lag_policy(policy).build();
        let mut body = hub.framed(Even(Arc::default())).subscribe_from(None).unwrap();
        end(&hub, &body);
        let mut last = Bytes::new();
        while let Some(frame) = body.frame().await {
            last = frame.unwrap().into_data().unwrap();
        }
        assert_eq!(String::from_utf8_lossy(&last), format!("{reason}, back in 2s"));
    }
}

#[test]
fn lines_keep_idle_connections_alive_and_tell_gaps() {
    on_both(async || {
        let hub = Hub::builder().keep_alive(Duration::from_millis(50)).lag_policy(LagPolicy::Latest).queue(1).build();
        let addr = served(&hub, vec![hub.framed(JsonLines::new())]).await;
        let mut client = RawClient::connect(addr).await;
        client.send("GET /0 HTTP/1.0\r\n\r\n").await;
        assert_eq!(client.head().await.status, 200);
        assert_eq!(client.body(3).await.unwrap(), b"\n\n\n");
        let mut body = hub.framed(JsonLines::new()).subscribe_from(None).unwrap();
        for number in 0..5 {
            send(&hub, number);
        }
        let mut text = Vec::new();
        while lines(&text).len() < 2 {
            text.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        assert_eq!(lines(&text), [json!({ "gap": { "reason": "slow", "missed": 4 } }), json!({ "n": 4 })]);
    });
}

/// A log that has the events 1 to 5, and delivers those after them.
#[derive(Debug)]
struct Past;

fn number(id: &str) -> Option<u64> {
    id.parse().ok()
}

impl Log for Past {
    fn append(&self, _: Event) -> Result<(), SendError> {
        Err(SendError::Full)
    }

    fn order(&self, id: &str, other: &str) -> Option<Ordering> {
        Some(number(id)?.cmp(&number(other)?))
    }

    fn run(self: Arc<Self>, sink: Sink) -> LogFuture<'static, ()> {
        sink.start(Some("5"));
        sink.deliver("6", &Event::new().data("6")).unwrap();
        Box::pin(async move { sink.closed().await })
    }

    fn replay<'a>(&'a self, after: &'a str, upto: &'a str, _: usize) -> LogFuture<'a, Result<Replay, ReplayError>> {
        let events = number(after).unwrap() + 1..=number(upto).unwrap();
        let events = events.map(|n| (n.to_string(), Event::new().data(n.to_string()))).collect();
        Box::pin(async move { Ok(Replay::new(events)) })
    }
}

#[test]
fn events_of_a_log_are_framed_too() {
    on_both(async || {
        let hub = Hub::builder().log(Past).build();
        let addr = served(&hub, vec![hub.framed(JsonLines::new().with_ids())]).await;
        let mut reader = Reader::connect(addr, "/0", false, Some("2")).await;
        let found = lines(reader.until("\"6\",\"data\":6}\n").await);
        let expected: Vec<Value> = (3..=6).map(|n| json!({ "id": n.to_string(), "data": n })).collect();
        assert_eq!(found, expected);
        until(&hub, |stats| stats.direct == 1).await;
    });
}
