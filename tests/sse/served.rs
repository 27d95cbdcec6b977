//! The hub behind `server::serve`: response heads, both protocols, stalled readers, and disconnected ones.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use millstream::net::TcpListener;
use millstream::server;
use millstream::sse::{Event, Hub, LagPolicy};
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::time::sleep;

use crate::parse::{Parser, Seen};
use testkit::http::{Raw, h1, h2, on_both, request};

/// Serves the hub on a free port, with small send buffers.
pub(crate) async fn served(hub: &Hub) -> SocketAddr {
    let hub = hub.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    SockRef::from(&listener).set_send_buffer_size(4096).unwrap();
    let addr = listener.local_addr().unwrap();
    // Not boxed, so that the hub writes to the connections of HTTP/1 itself.
    let service = tower::service_fn(move |request| {
        let answer = hub.subscribe(&request);
        async { Ok::<_, Infallible>(answer) }
    });
    tokio::spawn(server::serve(listener, service).into_future());
    addr
}

/// Waits until the hub's counts meet a condition; the watchdog limits the time.
pub(crate) async fn until(hub: &Hub, what: impl Fn(&millstream::sse::HubStats) -> bool) {
    while !what(&hub.stats()) {
        sleep(Duration::from_millis(2)).await;
    }
}

/// Reads a response until `enough` or its end.
async fn read(answer: &mut Response<Incoming>, parser: &mut Parser, enough: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
    let mut seen = Vec::new();
    while !enough(&seen) {
        let Some(frame) = answer.frame().await else { break };
        seen.extend(parser.feed(&frame.unwrap().into_data().unwrap()));
    }
    seen
}

#[test]
fn both_protocols_have_the_head_the_events_and_the_end() {
    on_both(async || {
        let hub = Hub::builder().build();
        let addr = served(&hub).await;
        for two in [false, true] {
            let mut answer = match two {
                false => h1(addr).await.send_request(request("/")).await.unwrap(),
                true => h2(addr).await.send_request(request("/")).await.unwrap(),
            };
            assert_eq!(answer.headers()["content-type"], "text/event-stream");
            assert_eq!(answer.headers()["cache-control"], "no-cache, no-transform");
            assert_eq!(answer.headers()["x-accel-buffering"], "no");
            let (sender, mut parser) = (hub.clone(), Parser::default());
            let thread = std::thread::spawn(move || {
                for n in 0..500 {
                    sender.send(Event::new().data(n.to_string())).unwrap();
                }
            });
            let seen = read(&mut answer, &mut parser, |seen| seen.len() == 500).await;
            thread.join().unwrap();
            assert!(seen.into_iter().map(|seen| seen.data).eq((0..500).map(|n| n.to_string())), "{two}");
            drop(answer);
            until(&hub, |stats| stats.subscribers == 0).await;
        }
        let mut answer = h1(addr).await.send_request(request("/")).await.unwrap();
        hub.close();
        let mut parser = Parser::default();
        assert_eq!(read(&mut answer, &mut parser, |_| false).await, []);
        assert!(parser.has_retry());
        let refused = h1(addr).await.send_request(request("/")).await.unwrap();
        assert_eq!(refused.status(), 503);
        let after: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=3).contains(&after), "{after}");
    });
}

#[test]
fn head_is_the_head_alone() {
    on_both(async || {
        let hub = Hub::builder().subscribers(0).build();
        let addr = served(&hub).await;
        let mut client = Raw::connect(addr).await;
        for _ in 0..2 {
            client.send("HEAD / HTTP/1.1\r\nHost: mill\r\n\r\n").await;
            let head = client.head().await;
            assert_eq!((head.status, head.field("content-type")), (200, Some("text/event-stream")));
            assert_eq!(head.field("content-length"), None, "{head:?}");
        }
        client.ask("/").await;
        assert_eq!(client.head().await.status, 503);
    });
}

#[test]
fn ids_come_by_the_field_or_the_query() {
    on_both(async || {
        for (path, field, seen, bad) in [
            ("/", None, 0, 0),
            ("/?lastEventId=a%20b", None, 1, 0),
            ("/?lastEventId=a+b", None, 1, 0),
            ("/?x=y&lastEventId=a%20b", Some("é+".as_bytes()), 0, 0),
            ("/", Some(b"a b"), 1, 0),
            ("/", Some(b""), 0, 0),
            // A gap, and all available events.
            ("/", Some(b"nobody's"), 3, 0),
            ("/", Some(b"\xff"), 0, 1),
            ("/", Some(&[b'x'; 1025]), 0, 1),
            ("/?lastEventId=%FF", None, 0, 1),
            ("/?lastEventId=a%00", None, 0, 1),
        ] {
            let hub = Hub::new();
            let addr = served(&hub).await;
            for id in ["a b", "é+"] {
                hub.send(Event::new().id(id).data(id)).unwrap();
            }
            let mut request = request(path);
            if let Some(field) = field {
                request.headers_mut().insert("last-event-id", HeaderValue::from_bytes(field).unwrap());
            }
            let mut answer = h1(addr).await.send_request(request).await.unwrap();
            hub.send(Event::new().data("end")).unwrap();
            let ended = |seen: &[Seen]| seen.last().is_some_and(|seen| seen.data == "end");
            let all = read(&mut answer, &mut Parser::default(), ended).await;
            assert_eq!((all.len() - 1, hub.stats().bad_ids), (seen, bad), "{path} {field:?}: {all:?}");
        }
    });
}

const STALLED: u64 = 150;
const QUEUE: u64 = 40;

/// Sends events of 10 000 bytes to a reader that starts to read only afterwards. Returns what it receives.
async fn stalled(hub: &Hub) -> (Vec<u64>, Vec<Seen>, Parser) {
    let addr = served(hub).await;
    let mut client = Raw::connect_narrow(addr).await;
    // HTTP/1.0 has no chunks.
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!(client.head().await.status, 200);
    let sender = hub.clone();
    let sending = tokio::spawn(async move {
        for n in 0..STALLED {
            sender.send_wait(Event::new().data(format!("{n:010000}"))).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let blocks = format!("{hub:?}").contains("slow: Block");
    match blocks {
        false => sending.await.unwrap(),
        true => {
            until(hub, |stats| stats.sent - stats.delivered == QUEUE).await;
            sleep(Duration::from_millis(20)).await;
            assert!(!sending.is_finished() && hub.stats().sent < STALLED);
        }
    }
    let (mut parser, mut seen, mut gaps) = (Parser::default(), Vec::new(), Vec::new());
    let mut bytes = client.buffered();
    loop {
        for event in parser.feed(&bytes) {
            match event.name == "gap" {
                true => gaps.push(event),
                false => seen.push(event.data.parse().unwrap()),
            }
        }
        if seen.last() == Some(&(STALLED - 1)) {
            break;
        }
        bytes.resize(64 << 10, 0);
        let n = client.io.read(&mut bytes).await.unwrap();
        bytes.truncate(n);
        if n == 0 {
            break;
        }
    }
    drop(client);
    until(hub, |stats| stats.subscribers == 0).await;
    (seen, gaps, parser)
}

fn slow(slow: LagPolicy) -> Hub {
    // The patience is longer than any test, even on a slow machine.
    Hub::builder().lag_policy(slow).queue(QUEUE as usize).patience(Duration::from_secs(3600)).build()
}

#[test]
fn a_stalled_reader_goes_on_with_the_newest_and_knows_what_it_missed() {
    on_both(async || {
        for (policy, behind) in [(LagPolicy::DropOldest, QUEUE), (LagPolicy::Latest, 1)] {
            let hub = slow(policy);
            let (seen, gaps, _) = stalled(&hub).await;
            // On a busy machine the socket may accept events in between, so there may be several gaps.
            let (mut missed, mut next, mut tail) = (gaps.iter().map(|gap| gap.missed().unwrap()), 0, 0);
            for event in seen {
                tail += 1;
                while next < event {
                    next += missed.next().expect("a gap event for each gap");
                    tail = 1;
                }
                assert_eq!(next, event, "{policy:?}: wrong length of a gap");
                next += 1;
            }
            assert_eq!((next, missed.next()), (STALLED, None), "{policy:?}");
            assert!(!gaps.is_empty() && tail >= behind, "{policy:?}: {tail} events after the last gap");
            assert_eq!(hub.stats().dropped, gaps.iter().map(|gap| gap.missed().unwrap()).sum::<u64>());
        }
    });
}

#[test]
fn a_stalled_reader_is_disconnected() {
    on_both(async || {
        let hub = slow(LagPolicy::Disconnect);
        let (seen, gaps, parser) = stalled(&hub).await;
        assert!(gaps.is_empty() && !seen.is_empty() && (seen.len() as u64) < STALLED - QUEUE);
        assert!(seen.iter().copied().eq(0..seen.len() as u64));
        assert!(parser.has_retry());
    });
}

#[test]
fn a_stalled_reader_holds_senders_up() {
    on_both(async || {
        let hub = slow(LagPolicy::Block);
        let (seen, gaps, _) = stalled(&hub).await;
        assert!(gaps.is_empty() && seen.into_iter().eq(0..STALLED));
    });
}
