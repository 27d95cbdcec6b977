//! Connections that cannot move: they drain, and their clients lose nothing.

use std::convert::Infallible;
use std::path::Path;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{Request, Response};
use millstream::server::{Drained, RequestBody, serve};
use millstream::sse::{Event, Hub};
use millstream_handoff::Handoff;
use testkit::http::{Raw, on_both};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;

/// Starts process `number`, whose connections cannot move.
async fn start(path: &Path, number: usize) -> (SocketAddr, Hub, JoinHandle<io::Result<(Drained, Option<usize>)>>) {
    let hub = Hub::builder().keep_alive(Duration::ZERO).build();
    let mut handoff = Handoff::open(path).await.unwrap();
    let listener = handoff.tcp("http", "127.0.0.1:0").await.unwrap();
    handoff.hub("events", &hub).unwrap();
    let addr = listener.get_ref().local_addr().unwrap();
    let serving = handoff.ready().await.unwrap();
    let events = hub.clone();
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let response = match request.uri().path() {
            "/events" => events.subscribe(&request).map(Either::Left),
            path => Response::new(Either::Right(Full::new(Bytes::from(format!("{number} {path}"))))),
        };
        async { Ok::<_, Infallible>(response) }
    });
    let ended = tokio::spawn(async move {
        let server = || serve(listener.clone(), service.clone()).takeover(false).move_connections(listener.give());
        until_replaced(&serving, server, || serving.successor()).await
    });
    (addr, hub, ended)
}

/// Begins to read events behind the one with this id.
async fn read(addr: SocketAddr, last: &str) -> Raw {
    let mut reader = Raw::connect(addr).await;
    let id = if last.is_empty() { String::new() } else { format!("Last-Event-ID: {last}\r\n") };
    reader.send(format!("GET /events HTTP/1.1\r\nHost: mill\r\n{id}\r\n")).await;
    assert_eq!(reader.head().await.status, 200);
    reader
}

fn send(hub: &Hub, numbers: std::ops::Range<usize>) {
    numbers.for_each(|n| drop(hub.send(Event::new().data(n.to_string())).unwrap()));
}

/// Returns what follows `name` in the lines of a stream.
fn values<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.strip_prefix(name))
}

#[test]
fn clients_of_connections_that_drain_come_back_and_get_every_event_once() {
    on_both(|| async {
        let place = Place::new();
        let (addr, hub, ended) = start(&place.path(), 1).await;
        let mut client = Raw::connect(addr).await;
        assert_eq!(asked(&mut client, "/a").await, 1);
        let mut reader = read(addr, "").await;
        send(&hub, 0..5);
        let (_, next, _ended) = start(&place.path(), 2).await;
        // The first process still sends, for the readers of both.
        send(&hub, 5..10);
        let (drained, given) = timeout(HANGS, ended).await.expect("it ends").unwrap().unwrap();
        assert_eq!((drained.connections, drained.moved, drained.aborted), (2, 0, 0), "{drained:?}");
        assert_eq!(given, Some(0));
        let rest = client.drain().await;
        assert!(rest.is_empty(), "its connection has ended between two requests: {}", rest.escape_ascii());
        assert_eq!(asked(&mut Raw::connect(addr).await, "/b").await, 2);
        let first = String::from_utf8(reader.drain().await).unwrap();
        assert!(first.ends_with("0\r\n\r\n"), "the stream has ended in order: {first}");
        send(&next, 10..15);
        let mut reader = read(addr, values(&first, "id: ").last().expect("an event")).await;
        let mut second = String::new();
        while !second.contains("data: 14\n") {
            let more = timeout(HANGS, reader.body(1)).await.expect("more events").expect("an open connection");
            second.push(more[0].into());
        }
        let events: Vec<_> = [&first, &second].into_iter().flat_map(|text| values(text, "data: ")).collect();
        let numbers: Vec<_> = (0..15).map(|n| n.to_string()).collect();
        assert_eq!(events, numbers, "{first}{second}");
    });
}
