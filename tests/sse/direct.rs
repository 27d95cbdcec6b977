//! Readers to whose connections the hub writes itself.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::{Request, Response};
use millstream::metrics::Snapshot;
use millstream::server::RequestBody;
use millstream::sse::{Event, EventBody, Hub, LagPolicy};
use tokio::io::AsyncWriteExt;
use tokio::time::{Sleep, sleep, timeout};

use crate::parse::{Parser, Seen};
use crate::served::{served, until};
use testkit::HANGS;
use testkit::alone::ran_in_child;
use testkit::http::{H1, Raw, h1, on_both, request};

struct Reader {
    answer: Response<Incoming>,
    parser: Parser,
    client: H1,
}

impl Reader {
    async fn connect(addr: std::net::SocketAddr) -> Self {
        let mut client = h1(addr).await;
        let answer = client.send_request(request("/")).await.unwrap();
        Self { answer, parser: Parser::default(), client }
    }

    /// Reads until an event has this data.
    async fn until(&mut self, last: &str) -> Vec<Seen> {
        let mut seen: Vec<Seen> = Vec::new();
        while seen.last().is_none_or(|seen| seen.data != last) {
            let frame = timeout(HANGS, self.answer.frame()).await.expect("a frame in time");
            seen.extend(self.parser.feed(&frame.expect("no end").unwrap().into_data().unwrap()));
        }
        seen
    }

    async fn end(mut self) -> (Parser, H1) {
        while let Some(frame) = timeout(HANGS, self.answer.frame()).await.expect("an end in time") {
            self.parser.feed(&frame.unwrap().into_data().unwrap());
        }
        (self.parser, self.client)
    }
}

/// Serves the hub to so many readers, to which it writes itself.
async fn connected(hub: &Hub, count: usize) -> Vec<Reader> {
    let addr = served(hub).await;
    let mut readers = Vec::new();
    for _ in 0..count {
        readers.push(Reader::connect(addr).await);
    }
    until(hub, |stats| stats.direct == count).await;
    readers
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Layer {
    Passes,
    Changes,
    /// Keeps each frame for a while.
    Keeps,
    /// Waits for a while after each frame.
    Waits,
}

/// A layer's body.
struct Layered {
    body: EventBody,
    layer: Layer,
    kept: Option<Bytes>,
    waits: Option<Pin<Box<Sleep>>>,
}

impl Body for Layered {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self { body, layer, kept, waits } = &mut *self;
        let a_while = || Box::pin(sleep(Duration::from_millis(20)));
        loop {
            if let Some(wait) = waits {
                ready!(wait.as_mut().poll(cx));
                *waits = None;
            }
            if let Some(data) = kept.take() {
                *waits = (*layer == Layer::Waits).then(a_while);
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(cx)) else { return Poll::Ready(None) };
            let data = frame.unwrap().into_data().unwrap();
            *kept = Some(if *layer == Layer::Changes { [b": changed\n", &data[..]].concat().into() } else { data });
            *waits = (*layer == Layer::Keeps).then(a_while);
        }
    }
}

/// Serves the hub inside the body of a layer.
async fn layered(hub: &Hub, layer: Layer) -> std::net::SocketAddr {
    let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let hub = hub.clone();
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let answer = hub.subscribe(&request);
        let answer = answer.map(|body| Layered { body, layer, kept: None, waits: None }.boxed_unsync());
        async { Ok::<_, Infallible>(answer) }
    });
    tokio::spawn(millstream::server::serve(listener, service).into_future());
    addr
}

fn send(hub: &Hub, data: impl ToString) {
    hub.send(Event::new().data(data.to_string())).unwrap();
}

#[test]
fn every_reader_gets_every_event_once() {
    on_both(async || {
        const READERS: usize = 200;
        let hub = Hub::new();
        let mut readers = connected(&hub, READERS).await;
        for round in 0..20 {
            // Some turns have several events.
            for n in 0..round % 4 {
                send(&hub, format!("{round}/{n}"));
            }
            send(&hub, round);
            tokio::task::yield_now().await;
        }
        for reader in &mut readers {
            let seen = reader.until("19").await;
            let expected = (0..20)
                .flat_map(|round| (0..round % 4).map(move |n| format!("{round}/{n}")).chain([round.to_string()]));
            assert!(seen.into_iter().map(|seen| seen.data).eq(expected));
        }
        let stats = hub.stats();
        assert_eq!((stats.direct, stats.delivered, stats.dropped), (READERS, READERS as u64 * stats.sent, 0));
        drop(readers);
        until(&hub, |stats| (stats.subscribers, stats.direct) == (0, 0)).await;
    });
}

#[test]
fn events_of_a_turn_leave_in_one_call_for_each_reader() {
    if ran_in_child() {
        return;
    }
    on_both(async || {
        const READERS: usize = 100;
        let hub = Hub::new();
        let mut readers = connected(&hub, READERS).await;
        let before = Snapshot::now();
        // No task runs between the sends of a current-thread runtime.
        let (sender, rounds) = (hub.clone(), 10);
        tokio::spawn(async move {
            for round in 0..rounds {
                for n in 0..9 {
                    send(&sender, format!("{round}/{n}"));
                }
                send(&sender, round);
                until(&sender, |stats| stats.delivered == (round + 1) * 10 * READERS as u64).await;
            }
        });
        for reader in &mut readers {
            assert_eq!(reader.until("9").await.len(), 100);
        }
        let after = Snapshot::now().since(&before);
        let most = 10 * READERS as u64;
        match tokio::runtime::Handle::current().runtime_flavor() {
            tokio::runtime::RuntimeFlavor::CurrentThread => assert_eq!(after.writes, most),
            // The pass may begin before the last event.
            _ => assert!((most..10 * most).contains(&after.writes), "{}", after.writes),
        }
    });
}

#[test]
fn the_hub_writes_to_readers_that_offer_an_upgrade() {
    on_both(async || {
        let hub = Hub::new();
        let addr = served(&hub).await;
        for protocol in ["h2c", "websocket"] {
            let mut reader = Raw::connect(addr).await;
            reader
                .send(format!("GET / HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: {protocol}\r\n\r\n"))
                .await;
            assert_eq!(reader.head().await.status, 200);
            timeout(HANGS, until(&hub, |stats| stats.direct == 1)).await.expect("the hub writes");
            send(&hub, "event");
            assert!(reader.body(16).await.unwrap().ends_with(b"\r\ndata: event\n"));
            drop(reader);
            until(&hub, |stats| stats.subscribers == 0).await;
        }
    });
}

#[test]
fn silent_connections_get_comments() {
    on_both(async || {
        let hub = Hub::builder().keep_alive(Duration::from_millis(100)).build();
        let addr = served(&hub).await;
        let mut reader = Reader::connect(addr).await;
        until(&hub, |stats| stats.direct == 1).await;
        while reader.parser.comments < 5 {
            let frame = timeout(HANGS, reader.answer.frame()).await.expect("a comment in time").unwrap().unwrap();
            assert_eq!(reader.parser.feed(&frame.into_data().unwrap()), []);
        }
        assert_eq!(hub.stats().direct, 1, "comments need no task");
        send(&hub, "event");
        reader.until("event").await;
    });
}

#[test]
fn a_connection_serves_further_requests_after_its_stream() {
    on_both(async || {
        let (first, second) = (Hub::new(), Hub::new());
        let hubs = Arc::new([first.clone(), second.clone()]);
        let asked = Arc::new(AtomicUsize::new(0));
        let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(move |request| {
            let answer = hubs[asked.fetch_add(1, Ordering::Relaxed).min(1)].subscribe(&request);
            async { Ok::<_, std::convert::Infallible>(answer) }
        });
        tokio::spawn(millstream::server::serve(listener, service).into_future());
        let reader = Reader::connect(addr).await;
        until(&first, |stats| stats.direct == 1).await;
        send(&first, "last");
        first.close();
        let (parser, mut client) = reader.end().await;
        assert!(parser.has_retry());
        client.ready().await.unwrap();
        let answer = client.send_request(request("/")).await.unwrap();
        let mut reader = Reader { answer, parser: Parser::default(), client };
        until(&second, |stats| stats.direct == 1).await;
        send(&second, "on the same connection");
        reader.until("on the same connection").await;
    });
}

#[test]
fn a_reader_that_leaves_is_noticed_without_an_event() {
    on_both(async || {
        let hub = Hub::new();
        let addr = served(&hub).await;
        for resets in [false, true] {
            let mut client = Raw::connect(addr).await;
            client.ask("/").await;
            client.head().await;
            until(&hub, |stats| stats.direct == 1).await;
            match resets {
                true => client.reset(),
                false => drop(client),
            }
            timeout(HANGS, until(&hub, |stats| stats.subscribers == 0)).await.expect("noticed");
        }
    });
}

#[test]
fn a_full_connection_returns_to_its_task_and_back() {
    on_both(async || {
        for slow in [LagPolicy::DropOldest, LagPolicy::Disconnect] {
            let hub = Hub::builder().lag_policy(slow).queue(40).replay(40).build();
            let addr = served(&hub).await;
            let mut client = Raw::connect_narrow(addr).await;
            client.send("GET / HTTP/1.0\r\n\r\n").await;
            client.head().await;
            until(&hub, |stats| stats.direct == 1).await;
            let big = "x".repeat(2000);
            for _ in 0..150 {
                send(&hub, &big);
                tokio::task::yield_now().await;
            }
            timeout(HANGS, until(&hub, |stats| stats.direct == 0)).await.expect("it is full");
            send(&hub, "last");
            let mut parser = Parser::default();
            let mut seen = parser.feed(&client.buffered());
            let mut piece = vec![0; 64 << 10];
            loop {
                let n =
                    timeout(HANGS, tokio::io::AsyncReadExt::read(&mut client.io, &mut piece)).await.unwrap().unwrap();
                seen.extend(parser.feed(&piece[..n]));
                if n == 0 || seen.last().is_some_and(|seen| seen.data == "last") {
                    break;
                }
            }
            let missed: u64 = seen.iter().filter(|seen| seen.name == "gap").filter_map(Seen::missed).sum();
            match slow {
                LagPolicy::Disconnect => assert!(parser.has_retry()),
                _ => {
                    let events = seen.iter().filter(|seen| seen.name.is_empty()).count() as u64;
                    assert_eq!(events + missed, 151, "{missed} missed");
                    assert!(missed > 0);
                    timeout(HANGS, until(&hub, |stats| stats.direct == 1)).await.expect("it has caught up");
                    client.io.shutdown().await.unwrap();
                }
            }
        }
    });
}

/// Readers come and go while events are sent. Each has all events between its first and its last.
#[test]
fn nothing_is_lost_while_readers_come_and_go() {
    on_both(async || {
        const EVENTS: usize = 400;
        let hub = Hub::builder().replay(10 * EVENTS).queue(10 * EVENTS).build();
        let addr = served(&hub).await;
        let sender = hub.clone();
        // Until the last reader has what it wants, however late it comes.
        let sends = tokio::spawn(async move {
            for n in 0.. {
                send(&sender, n);
                match n % 3 {
                    _ if n > EVENTS => sleep(Duration::from_millis(5)).await,
                    0 => tokio::task::yield_now().await,
                    1 => sleep(Duration::from_millis(1)).await,
                    _ => {}
                }
            }
        });
        let mut readers = Vec::new();
        for n in 0..60 {
            readers.push(tokio::spawn(async move {
                sleep(Duration::from_millis(n * 5)).await;
                let mut reader = Reader::connect(addr).await;
                let (mut seen, most) = (Vec::new(), n as usize % 7 * 20 + 1);
                while seen.len() < most {
                    let frame = timeout(HANGS, reader.answer.frame()).await.expect("an event in time");
                    seen.extend(reader.parser.feed(&frame.unwrap().unwrap().into_data().unwrap()));
                }
                let numbers: Vec<usize> = seen.iter().map(|seen| seen.data.parse().unwrap()).collect();
                assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
            }));
        }
        for reader in readers {
            reader.await.unwrap();
        }
        sends.abort();
        until(&hub, |stats| (stats.subscribers, stats.direct) == (0, 0)).await;
    });
}

#[test]
fn old_clients_get_no_chunks() {
    on_both(async || {
        let hub = Hub::builder().retry(Duration::from_secs(1)).build();
        let addr = served(&hub).await;
        let mut client = Raw::connect(addr).await;
        client.send("GET / HTTP/1.0\r\n\r\n").await;
        client.head().await;
        until(&hub, |stats| stats.direct == 1).await;
        for n in 0..3 {
            hub.send(Event::new().data(n.to_string()).id("i")).unwrap();
            until(&hub, |stats| stats.delivered == n + 1).await;
        }
        hub.close();
        let text = String::from_utf8(client.drain().await).unwrap();
        assert_eq!(text, "data: 0\nid: i\n\ndata: 1\nid: i\n\ndata: 2\nid: i\n\nretry: 1000\n\n");
    });
}

#[test]
fn other_bodies_and_protocols_are_polled() {
    on_both(async || {
        let hub = Hub::new();
        let addr = served(&hub).await;
        let mut client = testkit::http::h2(addr).await;
        let request = hyper::Request::get("http://mill/").body(Empty::<Bytes>::new()).unwrap();
        let mut answer = client.send_request(request).await.unwrap();
        send(&hub, "event");
        let frame = answer.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(Parser::default().feed(&frame)[0].data, "event");
        let stats = hub.stats();
        assert_eq!((stats.subscribers, stats.direct), (1, 0));
    });
}

#[test]
fn bodies_of_layers_are_passed_by_if_the_hub_may() {
    on_both(async || {
        for allowed in [false, true] {
            for layer in [Layer::Passes, Layer::Changes, Layer::Keeps, Layer::Waits] {
                let hub = Hub::builder().past_layers(allowed).build();
                let addr = layered(&hub, layer).await;
                let mut readers = Vec::new();
                for _ in 0..5 {
                    readers.push(Reader::connect(addr).await);
                }
                let direct = if allowed && [Layer::Passes, Layer::Waits].contains(&layer) { readers.len() } else { 0 };
                // Each is a frame of its own, so the second is news while a layer waits after the first.
                sleep(Duration::from_millis(20)).await;
                let long = ["a", "b"].map(|letter| letter.repeat(20_000));
                long.iter().for_each(|data| send(&hub, data));
                for reader in &mut readers {
                    assert_eq!(reader.until(&long[1]).await.len(), 2);
                }
                for n in 0..30 {
                    send(&hub, n);
                    if n == 10 {
                        for reader in &mut readers {
                            let seen = reader.until("10").await;
                            assert_eq!(seen.len(), 11, "{seen:?}");
                        }
                        until(&hub, |stats| stats.direct == direct).await;
                    }
                }
                for reader in &mut readers {
                    let seen: Vec<_> = reader.until("29").await.into_iter().map(|seen| seen.data).collect();
                    assert_eq!(seen, (11..30).map(|n| n.to_string()).collect::<Vec<_>>());
                }
                sleep(Duration::from_millis(20)).await;
                until(&hub, |stats| stats.direct == direct).await;
                hub.close();
                for reader in readers {
                    reader.end().await;
                }
                assert_eq!((hub.stats().direct, hub.stats().subscribers), (0, 0));
            }
        }
    });
}

/// Serves the hub inside bodies that are made by `wrap`.
async fn wrapped<B>(hub: &Hub, wrap: fn(Response<EventBody>) -> Response<B>) -> std::net::SocketAddr
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let hub = hub.clone();
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let answer = wrap(hub.subscribe(&request));
        async { Ok::<_, Infallible>(answer) }
    });
    tokio::spawn(millstream::server::serve(listener, service).into_future());
    addr
}

/// A layer that adds bytes of its own, and ends the stream with their source.
struct Merged {
    body: EventBody,
    other: tokio::sync::mpsc::Receiver<&'static str>,
    polls: Arc<AtomicUsize>,
}

impl Body for Merged {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        match self.other.poll_recv(cx) {
            Poll::Ready(own) => Poll::Ready(own.map(|own| Ok(Frame::data(own.into())))),
            Poll::Pending => Pin::new(&mut self.body).poll_frame(cx),
        }
    }
}

#[test]
fn a_layer_that_adds_bytes_or_ends_the_stream_is_heard() {
    on_both(async || {
        let hub = Hub::builder().past_layers(true).build();
        let (own, other) = tokio::sync::mpsc::channel(10);
        let polls = Arc::new(AtomicUsize::new(0));
        let (parts, served) = (std::sync::Mutex::new(Some((other, Arc::clone(&polls)))), hub.clone());
        let parts = Arc::new(parts);
        let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let (other, polls) = parts.lock().unwrap().take().expect("one request");
            let answer = served.subscribe(&request).map(|body| Merged { body, other, polls });
            async { Ok::<_, Infallible>(answer) }
        });
        tokio::spawn(millstream::server::serve(listener, service).into_future());
        let mut reader = Reader::connect(addr).await;
        send(&hub, "first");
        reader.until("first").await;
        until(&hub, |stats| stats.direct == 1).await;
        let before = polls.load(Ordering::Relaxed);
        for n in 0..20 {
            send(&hub, n);
            reader.until(&n.to_string()).await;
        }
        assert_eq!(polls.load(Ordering::Relaxed), before, "the task sleeps while the hub writes");
        own.send("data: own\n\n").await.unwrap();
        reader.until("own").await;
        for n in 20..40 {
            send(&hub, n);
            if n % 10 == 5 {
                own.send("data: own\n\n").await.unwrap();
            }
        }
        let seen: Vec<_> = reader.until("39").await.into_iter().map(|seen| seen.data).collect();
        let numbers: Vec<_> = seen.iter().filter(|data| *data != "own").cloned().collect();
        assert_eq!(numbers, (20..40).map(|n| n.to_string()).collect::<Vec<_>>());
        let own_seen = seen.len() - numbers.len();
        if own_seen < 2 {
            reader.until("own").await;
        }
        drop(own);
        let (parser, _) = reader.end().await;
        assert_eq!(parser.retry, None, "the layer has ended the stream");
    });
}

/// Polls the body in another task.
fn pumped(answer: Response<EventBody>) -> Response<impl Body<Data = Bytes, Error = Infallible> + Send> {
    answer.map(|mut body| {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(frame) = body.frame().await {
                if sender.send(frame).await.is_err() {
                    break;
                }
            }
        });
        StreamBody::new(futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx)))
    })
}

fn encoded(mut answer: Response<EventBody>) -> Response<impl Body<Data = Bytes, Error = Infallible> + Send> {
    answer.headers_mut().insert("content-encoding", "identity".parse().unwrap());
    answer.map(BodyExt::boxed_unsync)
}

/// Counts the readers to which the hub writes itself, after some events and before it ends them.
async fn direct(hub: &Hub, addr: std::net::SocketAddr) -> usize {
    let mut readers = Vec::new();
    for _ in 0..3 {
        readers.push(Reader::connect(addr).await);
    }
    let mut direct = 0;
    for n in 0..20 {
        send(hub, n);
        for reader in &mut readers {
            let seen = reader.until(&n.to_string()).await;
            assert_eq!(seen.len(), 1, "{seen:?}");
        }
        sleep(Duration::from_millis(1)).await;
        direct = hub.stats().direct;
    }
    hub.close();
    for reader in readers {
        reader.end().await;
    }
    assert_eq!((hub.stats().direct, hub.stats().subscribers), (0, 0));
    direct
}

#[test]
fn bodies_that_are_encoded_or_polled_elsewhere_are_not_passed_by() {
    on_both(async || {
        let hub = || Hub::builder().past_layers(true).build();
        let boxed = hub();
        let addr = wrapped(&boxed, |answer| answer.map(BodyExt::boxed_unsync)).await;
        assert_eq!(direct(&boxed, addr).await, 3);
        let encoded_hub = hub();
        let addr = wrapped(&encoded_hub, encoded).await;
        assert_eq!(direct(&encoded_hub, addr).await, 0);
        let pumped_hub = hub();
        let addr = wrapped(&pumped_hub, pumped).await;
        assert_eq!(direct(&pumped_hub, addr).await, 0);
        // A layer that replaces the body frees the place.
        let replaced = hub();
        let addr = wrapped(&replaced, |answer| {
            answer.map(|_| StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>()))
        })
        .await;
        let reader = Reader::connect(addr).await;
        assert_eq!(replaced.stats().subscribers, 0);
        drop(reader);
    });
}
