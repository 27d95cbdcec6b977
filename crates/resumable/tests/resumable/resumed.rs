//! Clients killed and resumed at random: each gets the bytes of an undisturbed one. Streams without readers are
//! cancelled in time, others never.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Body;
use millstream::net::TcpListener;
use millstream::server::{self, RequestBody};
use millstream::sse::{Event, SendError};
use millstream_resumable::{StreamEnd, StreamError, StreamHandle, StreamSender, Streams};
use proptest::prelude::*;
use testkit::http::{h1, h2, on_both, request};
use testkit::resuming::Client;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::settle;

const GRACE: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_secs(20);

/// An event, and the milliseconds before it.
type Planned = (u64, usize, bool);

/// The acts of a client: it reads for some milliseconds, then loses its connection, in the middle of a frame or not, and
/// stays away for some milliseconds.
type Reads = (u64, bool, u64);

fn event(&(_, len, named): &Planned) -> Event {
    let event = Event::new().data("line\n".repeat(len));
    if named { event.event("named") } else { event }
}

async fn produce(sender: StreamSender, plan: Vec<Planned>) -> Result<(), SendError> {
    for planned in &plan {
        if planned.0 > 0 {
            sleep(Duration::from_millis(planned.0)).await;
        }
        sender.send(event(planned))?;
    }
    Ok(())
}

/// A client that is killed as planned, and then reads to the end.
async fn disturbed(stream: StreamHandle, plan: Vec<Reads>) -> Vec<u8> {
    let mut client = Client::default();
    for (reads, torn, away) in plan {
        let Ok(body) = stream.attach_from(client.last.as_deref()) else { break };
        let until = Instant::now() + Duration::from_millis(reads);
        if client.read(body, Some(until), torn).await {
            break;
        }
        sleep(Duration::from_millis(away)).await;
    }
    if let Ok(body) = stream.attach_from(client.last.as_deref()) {
        client.read(body, None, false).await;
    }
    assert_eq!(stream.attach_from(client.last.as_deref()).err(), Some(StreamError::Ended));
    client.bytes
}

async fn check(plan: Vec<Planned>, clients: Vec<Vec<Reads>>) {
    let streams = Streams::builder().abandoned(GRACE).ttl(TTL).keep_alive(Duration::ZERO).build();
    let stream = streams.get_or_start("a", "alice", |sender| produce(sender, plan.clone())).unwrap();
    let undisturbed = tokio::spawn(disturbed(stream.clone(), Vec::new()));
    let clients: Vec<_> = clients.into_iter().map(|plan| tokio::spawn(disturbed(stream.clone(), plan))).collect();
    let expected = undisturbed.await.unwrap();
    assert_eq!(expected.windows(2).filter(|end| end == b"\n\n").count(), plan.len());
    for client in clients {
        assert_eq!(client.await.unwrap(), expected);
    }
    assert_eq!(stream.end(), Some(StreamEnd::Complete));
    drop(stream);
    sleep(TTL + Duration::from_secs(1)).await;
    settle().await;
    assert_eq!((streams.stats().streams, streams.stats().running), (0, 0));
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

/// Reads and pauses in seconds. Returns when the stream has to be abandoned, by its start.
async fn come_and_go(stream: StreamHandle, plan: Vec<(u64, u64)>) -> Instant {
    for (away, reads) in plan {
        sleep(Duration::from_secs(away)).await;
        assert_eq!(stream.end(), None, "cancelled too early");
        let body = stream.attach_from(None).unwrap();
        sleep(Duration::from_secs(reads)).await;
        assert_eq!(stream.end(), None, "cancelled while it is read");
        assert!(!body.is_end_stream());
    }
    Instant::now()
}

async fn check_abandoned(plans: Vec<Vec<(u64, u64)>>) {
    let streams =
        Streams::builder().abandoned(GRACE).ttl(TTL).max_age(Duration::MAX).keep_alive(Duration::ZERO).build();
    let mut tasks = Vec::new();
    for (n, plan) in plans.into_iter().enumerate() {
        let producer = async |_: StreamSender| std::future::pending::<Result<(), Infallible>>().await;
        let stream = streams.get_or_start(&n.to_string(), "alice", producer).unwrap();
        tasks.push(tokio::spawn(async move {
            let left = come_and_go(stream.clone(), plan).await;
            assert_eq!(stream.ended().await, StreamEnd::Abandoned);
            let after = left.elapsed();
            assert!(after >= GRACE && after <= GRACE + Duration::from_secs(1), "{after:?}");
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    sleep(TTL + Duration::from_secs(1)).await;
    settle().await;
    assert_eq!((streams.stats().streams, Handle::current().metrics().num_alive_tasks()), (0, 0));
}

fn paused(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn killed_and_resumed_clients_get_the_bytes_of_an_undisturbed_one(
        plan in prop::collection::vec((prop_oneof![3 => Just(0), 1 => 0..200u64], prop_oneof![0..5usize, 0..400usize], any::<bool>()), 1..400),
        clients in prop::collection::vec(prop::collection::vec((0..500u64, any::<bool>(), 0..300u64), 0..20), 1..8),
    ) {
        paused(check(plan, clients));
    }

    #[test]
    fn abandoned_streams_end_in_time_and_read_ones_do_not(
        plans in prop::collection::vec(prop::collection::vec((0..30u64, 0..100u64), 0..6), 1..20),
    ) {
        paused(check_abandoned(plans));
    }
}

async fn served(streams: &Streams) -> SocketAddr {
    let streams = streams.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let answer = streams.attach(&request, request.uri().path(), "alice");
        async { Ok::<_, Infallible>(answer) }
    });
    tokio::spawn(server::serve(listener, service).into_future());
    addr
}

/// Reads over as many connections as needed. Some are cut in the middle of an event.
async fn over_http(addr: SocketAddr, seed: u64) -> (Vec<u8>, u64) {
    let (mut client, mut random, mut connections) = (Client::default(), seed + 1, 0);
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    loop {
        connections += 1;
        let mut request = request("/a");
        if let Some(last) = &client.last {
            request.headers_mut().insert("last-event-id", last.parse().unwrap());
        }
        let mut answer = match seed % 2 {
            0 => h1(addr).await.send_request(request).await.unwrap(),
            _ => h2(addr).await.send_request(request).await.unwrap(),
        };
        if answer.status() == 204 {
            return (client.bytes, connections);
        }
        assert_eq!(answer.status(), 200);
        client.reconnects();
        for _ in 0..1 + below(12) {
            let Some(frame) = answer.frame().await else { break };
            let data = frame.unwrap().into_data().unwrap();
            if below(10) == 0 {
                client.feed(&data[..data.len() / 2]);
                break;
            }
            client.feed(&data);
        }
    }
}

#[test]
fn over_http_too() {
    on_both(async || {
        let streams = Streams::new();
        let addr = served(&streams).await;
        let producer = async |sender: StreamSender| {
            for n in 0..2000 {
                sender.send(event(&(0, n % 40, n % 7 == 0)))?;
                if n % 16 == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            }
            Ok::<_, SendError>(())
        };
        let stream = streams.get_or_start("/a", "alice", producer).unwrap();
        let undisturbed = disturbed(stream.clone(), Vec::new());
        let clients: Vec<_> = (0..10).map(|seed| tokio::spawn(over_http(addr, seed))).collect();
        let expected = undisturbed.await;
        let mut connections = 0;
        for client in clients {
            let (bytes, needed) = client.await.unwrap();
            assert!(bytes == expected);
            connections += needed;
        }
        assert!(connections > 20, "{connections}");
        while format!("{stream:?}").contains("is_read: true") {
            sleep(Duration::from_millis(2)).await;
        }
    });
}
