//! Readers of events move with their connections, and the hub of the next server goes on where they were.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Request;
use millstream::body::MovedBody;
use millstream::net::{Accept, TcpListener, TcpStream};
use millstream::server::{self, Drained, RequestBody};
use millstream::sse::{Event, Hub, HubBuilder, HubHandover};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower::ServiceExt;

use testkit::http::{AnyBody, Raw, boxed, h2, on_both, request};
use testkit::serving::serve;

use super::{DEADLINE, HANGS, PLACES, drained, moves};

/// The hub of a server, its listener, and what the server gives away.
struct Server {
    addr: SocketAddr,
    hub: Hub,
    drain: oneshot::Sender<()>,
    ended: JoinHandle<std::io::Result<Drained>>,
    moved: mpsc::Receiver<(OwnedFd, Option<MovedBody>)>,
    adopt: mpsc::Sender<TcpStream>,
    listener: Arc<TcpListener>,
}

/// Accepts new connections, and adopted ones.
struct Both {
    listener: Arc<TcpListener>,
    adopted: Mutex<mpsc::Receiver<TcpStream>>,
}

impl Accept for Both {
    type Stream = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&self) -> std::io::Result<(TcpStream, SocketAddr)> {
        let mut adopted = self.adopted.lock().await;
        tokio::select! {
            accepted = self.listener.accept() => accepted,
            Some(stream) = adopted.recv() => {
                let peer = stream.peer_addr()?;
                Ok((stream, peer))
            }
        }
    }
}

impl Server {
    /// Starts a server whose responses pass a layer if they are `wrapped`.
    async fn start(hub: HubBuilder, wrapped: bool) -> Self {
        Self::start_behind(wrapped.then_some(|body| body), hub).await
    }

    async fn start_behind(layer: Option<fn(AnyBody) -> AnyBody>, hub: HubBuilder) -> Self {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let addr = listener.local_addr().unwrap();
        let hub = hub.keep_alive(Duration::ZERO).replay(1000).queue(1000).build();
        let (give, moved) = mpsc::channel(PLACES);
        let (adopt, adopted) = mpsc::channel(PLACES);
        let (drain, drains) = oneshot::channel::<()>();
        let events = hub.clone();
        let answer = move |request: Request<RequestBody>| {
            let response = events.subscribe(&request);
            async { Ok::<_, Infallible>(response) }
        };
        let both = Both { listener: Arc::clone(&listener), adopted: Mutex::new(adopted) };
        let take = move |socket, events| give.try_send((socket, events)).expect("the next server");
        let service = tower::service_fn(answer);
        let ended = match layer {
            Some(layer) => {
                let service = service.map_response(move |response| response.map(|body| layer(boxed(body))));
                tokio::spawn(serve(both, service).move_connections(take).drain(drains, DEADLINE))
            }
            None => tokio::spawn(server::serve(both, service).move_connections(take).drain(drains, DEADLINE)),
        };
        Self { addr, hub, drain, ended, moved, adopt, listener }
    }

    /// Drains, and gives everything to the next server.
    async fn give(mut self, to: &Self, mut handover: Option<HubHandover>) -> Drained {
        if let Some(handover) = &mut handover {
            let events = std::iter::from_fn(|| handover.ring_event().unwrap()).collect();
            to.hub.prepend(handover.before(), events).unwrap();
        }
        self.drain.send(()).unwrap();
        let drained = drained(self.ended).await;
        while let Ok((socket, events)) = self.moved.try_recv() {
            let (stream, _) = to.listener.adopt(socket.into()).unwrap();
            if let Some(events) = events {
                let description = self.hub.describe(&events).expect("its reader");
                to.hub.resume(&description).unwrap().go_on(&stream.handle());
            }
            to.adopt.try_send(stream).unwrap();
        }
        handover.into_iter().for_each(HubHandover::finish);
        drained
    }
}

/// A client that reads events over HTTP/1.1 or HTTP/1.0.
struct Client {
    raw: Raw,
    is_chunked: bool,
}

impl Client {
    async fn connect(addr: SocketAddr, version: &str, fields: &str) -> Self {
        let mut raw = Raw::connect(addr).await;
        raw.send(format!("GET /events HTTP/{version}\r\nHost: mill\r\n{fields}\r\n")).await;
        assert_eq!(raw.head().await.status, 200);
        Self { raw, is_chunked: version == "1.1" }
    }

    /// Returns the next `len` bytes of the body.
    async fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let piece = async {
                if !self.is_chunked {
                    return self.raw.body(len - bytes.len()).await.expect("an open connection");
                }
                let mut line = Vec::new();
                while !line.ends_with(b"\r\n") {
                    line.extend(self.raw.body(1).await.expect("an open connection"));
                }
                let line = String::from_utf8(line).unwrap();
                let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
                let mut chunk = self.raw.body(size + 2).await.unwrap();
                assert_eq!(chunk.split_off(size), b"\r\n");
                chunk
            };
            bytes.extend(timeout(HANGS, piece).await.expect("more"));
        }
        bytes
    }

    /// Expects an event with this data, and its id.
    async fn expect(&mut self, data: &str, id: &str) {
        let event = format!("data: {data}\nid: {id}\n\n");
        let got = self.bytes(event.len()).await;
        assert_eq!(String::from_utf8(got).unwrap(), event);
    }
}

async fn ask(clients: &mut [Client]) {
    for client in clients {
        client.raw.ask("/events").await;
    }
}

fn send(hub: &Hub, data: &str) -> String {
    hub.send(Event::new().data(data)).unwrap().id().unwrap()
}

#[test]
fn a_reader_moves_at_once_and_its_connection_lives_on() {
    if !moves() {
        return;
    }
    on_both(|| async {
        for (version, wrapped) in [("1.1", false), ("1.0", false), ("1.1", true), ("1.0", true)] {
            let hub = || Hub::builder().past_layers(wrapped);
            let (old, new) = (Server::start(hub(), wrapped).await, Server::start(hub(), wrapped).await);
            assert!(new.hub.expect_predecessor());
            let mut clients = Vec::new();
            for _ in 0..5 {
                clients.push(Client::connect(old.addr, version, "").await);
            }
            // Layers are passed after the first event.
            let id = send(&old.hub, "first");
            for client in &mut clients {
                client.expect("first", &id).await;
            }
            // The next request waits in the socket.
            if version == "1.1" {
                ask(&mut clients).await;
            }
            let old_hub = old.hub.clone();
            let handover = old.hub.hand_over();
            let drained = old.give(&new, handover).await;
            assert_eq!((drained.moved, drained.connections), (5, 5), "{drained:?}");
            assert_eq!(old_hub.stats().subscribers, 0);
            for n in 0..3 {
                let id = send(&new.hub, &n.to_string());
                for client in &mut clients {
                    client.expect(&n.to_string(), &id).await;
                }
            }
            assert_eq!(new.hub.stats().subscribers, 5);
            // The end of the stream, and the next request on the same connection.
            new.hub.close();
            for mut client in clients {
                let rest = if version == "1.1" { &b"0\r\n\r\n"[..] } else { b"" };
                let mut last = Vec::new();
                while !(last.starts_with(b"retry: ") && last.ends_with(b"\n\n")) {
                    last.extend(client.bytes(1).await);
                }
                assert_eq!(client.raw.body(rest.len()).await.unwrap(), rest);
                match version {
                    "1.1" => assert_eq!(client.raw.head().await.status, 503, "the hub is closed"),
                    _ => assert!(client.raw.drain().await.is_empty()),
                }
            }
        }
    });
}

#[test]
fn readers_that_cannot_move_are_told_to_end() {
    if !moves() {
        return;
    }
    on_both(|| async {
        // The hub is not handed over; a layer is in the way; HTTP/2.
        for case in 0..3 {
            let wrapped = case == 1;
            let old = Server::start(Hub::builder(), wrapped).await;
            let new = Server::start(Hub::builder(), wrapped).await;
            assert!(new.hub.expect_predecessor());
            let handover = if case == 0 { None } else { old.hub.hand_over() };
            let two = match case {
                2 => Some(h2(old.addr).await.send_request(request("/events")).await.unwrap()),
                _ => None,
            };
            let one = match two {
                None => Some(Client::connect(old.addr, "1.1", "").await),
                Some(_) => None,
            };
            let drained = timeout(HANGS, old.give(&new, handover)).await.expect("in time");
            // Connections of HTTP/1 move when they are idle.
            let own = if case == 2 { (0, 1) } else { (1, 0) };
            assert_eq!((drained.moved, drained.notified, drained.aborted), (own.0, own.1, 0), "{case} {drained:?}");
            assert_eq!(new.hub.stats().subscribers, 0, "no reader has moved");
            if let Some(mut client) = one {
                assert!(client.bytes(6).await.starts_with(b"retry"));
            }
            if let Some(two) = two {
                let body = timeout(HANGS, two.into_body().collect()).await.unwrap().unwrap().to_bytes();
                assert!(body.starts_with(b"retry"), "{body:?}");
            }
        }
    });
}

#[test]
fn a_reader_behind_a_layer_that_changes_events_stays() {
    if !moves() {
        return;
    }
    on_both(|| async {
        let upper = |body: AnyBody| {
            boxed(body.map_frame(|frame| frame.map_data(|data| Bytes::from(data.to_ascii_uppercase()))))
        };
        let hub = || Hub::builder().past_layers(true);
        // Before the first event it is not known what the layer does.
        for has_event in [true, false] {
            let (old, new) = (Server::start_behind(Some(upper), hub()).await, Server::start(hub(), true).await);
            assert!(new.hub.expect_predecessor());
            let mut client = Client::connect(old.addr, "1.1", "").await;
            if has_event {
                let event = format!("data: first\nid: {}\n\n", send(&old.hub, "first")).to_ascii_uppercase();
                assert_eq!(client.bytes(event.len()).await, event.as_bytes());
            }
            let handover = old.hub.hand_over();
            let drained = timeout(HANGS, old.give(&new, handover)).await.expect("in time");
            assert_eq!((drained.moved, drained.aborted), (1, 0), "it moves behind the stream: {drained:?}");
            assert_eq!(new.hub.stats().subscribers, 0);
            assert!(client.bytes(6).await.starts_with(b"RETRY"), "the end of the stream");
        }
    });
}

#[test]
fn a_reader_whose_socket_is_full_moves_once_it_has_read() {
    if !moves() {
        return;
    }
    on_both(|| async {
        let (old, new) = (Server::start(Hub::builder(), false).await, Server::start(Hub::builder(), false).await);
        assert!(new.hub.expect_predecessor());
        let raw = Raw::connect_narrow(old.addr).await;
        let mut client = Client { raw, is_chunked: true };
        client.raw.ask("/events").await;
        assert_eq!(client.raw.head().await.status, 200);
        let large = "x".repeat(64 << 10);
        let mut ids = Vec::new();
        for _ in 0..100 {
            ids.push(send(&old.hub, &large));
        }
        // Until the socket is full.
        timeout(HANGS, async {
            while old.hub.stats().direct > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .expect("its task writes");
        let handover = old.hub.hand_over();
        let giving = tokio::spawn(async move {
            let drained = old.give(&new, handover).await;
            (drained, new)
        });
        tokio::time::sleep(Duration::from_millis(600)).await;
        for id in &ids {
            client.expect(&large, id).await;
        }
        let (drained, new) = timeout(HANGS, giving).await.expect("it moves").unwrap();
        assert_eq!((drained.moved, drained.connections), (1, 1), "{drained:?}");
        let id = send(&new.hub, "next");
        client.expect("next", &id).await;
    });
}
