//! Event readers over TLS to whose connections the hub writes itself, as it does without TLS.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use millstream::metrics::Snapshot;
use millstream::net::TcpListener;
use millstream::server::{RequestBody, serve};
use millstream::sse::{Event, Hub, HubStats};
use socket2::SockRef;
use testkit::HANGS;
use testkit::alone::ran_in_child;
use testkit::http::{H1, narrow, on_both, request};
use testkit::parse::Parser;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::over::{OF_OURS, Over};

struct Reader {
    answer: Response<Incoming>,
    client: H1,
    parser: Parser,
}

impl Reader {
    async fn connect(addr: SocketAddr, over: Over, is_narrow: bool) -> Self {
        let socket = if is_narrow { narrow(addr).await } else { TcpStream::connect(addr).await.unwrap() };
        let (mut client, connection) = handshake(TokioIo::new(over.client(socket).await)).await.unwrap();
        tokio::spawn(connection);
        let answer = client.send_request(request("/")).await.unwrap();
        Self { answer, client, parser: Parser::default() }
    }

    /// Reads until an event has this data. Returns the data of all events.
    async fn until(&mut self, last: &str) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        while seen.last().is_none_or(|seen| seen != last) {
            let frame = timeout(HANGS, self.answer.frame()).await.expect("a frame in time").expect("no end");
            seen.extend(self.parser.feed(&frame.unwrap().into_data().unwrap()).into_iter().map(|seen| seen.data));
        }
        seen
    }
}

async fn served(hub: &Hub, over: Over, send_buffer: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    SockRef::from(&listener).set_send_buffer_size(send_buffer).unwrap();
    let (addr, hub) = (listener.local_addr().unwrap(), hub.clone());
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let answer = hub.subscribe(&request);
        async { Ok::<_, Infallible>(answer) }
    });
    tokio::spawn(over.secured(serve(listener, service)).into_future());
    addr
}

async fn until(hub: &Hub, what: impl Fn(&HubStats) -> bool) {
    let reached = async {
        while !what(&hub.stats()) {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(HANGS, reached).await.unwrap_or_else(|_| panic!("{:?}", hub.stats()));
}

fn send(hub: &Hub, data: impl ToString) {
    hub.send(Event::new().data(data.to_string())).unwrap();
}

#[test]
fn each_event_is_one_call_for_each_reader() {
    if ran_in_child() {
        return;
    }
    on_both(async || {
        const READERS: usize = 20;
        for over in OF_OURS {
            let hub = Hub::new();
            let addr = served(&hub, over, 1 << 20).await;
            let mut readers = Vec::new();
            for _ in 0..READERS {
                readers.push(Reader::connect(addr, over, false).await);
            }
            until(&hub, |stats| stats.direct == READERS).await;
            let before = Snapshot::now();
            for n in 1..=50 {
                send(&hub, n);
                until(&hub, |stats| stats.delivered == n * READERS as u64).await;
            }
            for reader in &mut readers {
                assert!(reader.until("50").await.into_iter().eq((1..=50).map(|n| n.to_string())), "{over:?}");
            }
            let writes = Snapshot::now().since(&before).writes;
            assert_eq!((hub.stats().direct, writes), (READERS, 50 * READERS as u64), "{over:?}");
        }
    });
}

#[test]
fn a_full_connection_returns_to_its_task_and_back() {
    on_both(async || {
        for over in OF_OURS {
            let hub = Hub::builder().queue(1000).replay(1000).build();
            let mut reader = Reader::connect(served(&hub, over, 4096).await, over, true).await;
            until(&hub, |stats| stats.direct == 1).await;
            for round in 0..3 {
                // Short events, and one in many records.
                let long = format!("{round}{}", "x".repeat(300_000));
                let events: Vec<String> = (0..100).map(|n| n.to_string()).chain([long]).collect();
                events.iter().for_each(|event| send(&hub, event));
                until(&hub, |stats| stats.direct == 0).await;
                assert_eq!(reader.until(events.last().unwrap()).await, events, "{over:?}");
                until(&hub, |stats| stats.direct == 1).await;
            }
        }
    });
}

#[test]
fn the_connection_serves_further_requests_after_the_stream() {
    on_both(async || {
        for over in OF_OURS {
            let hub = Hub::new();
            let mut reader = Reader::connect(served(&hub, over, 1 << 20).await, over, false).await;
            until(&hub, |stats| stats.direct == 1).await;
            send(&hub, "last");
            hub.close();
            reader.until("last").await;
            while timeout(HANGS, reader.answer.frame()).await.expect("an end in time").is_some() {}
            timeout(HANGS, reader.client.ready()).await.expect("kept alive").unwrap();
            assert_eq!(reader.client.send_request(request("/")).await.unwrap().status(), 503, "{over:?}");
        }
    });
}

#[test]
fn a_reader_that_leaves_frees_its_place() {
    on_both(async || {
        for over in OF_OURS {
            let hub = Hub::new();
            let addr = served(&hub, over, 1 << 20).await;
            let readers = [Reader::connect(addr, over, false).await, Reader::connect(addr, over, false).await];
            until(&hub, |stats| stats.direct == 2).await;
            let [stays, leaves] = readers;
            drop(leaves);
            until(&hub, |stats| (stats.subscribers, stats.direct) == (1, 1)).await;
            drop(stays);
            until(&hub, |stats| (stats.subscribers, stats.direct) == (0, 0)).await;
        }
    });
}
