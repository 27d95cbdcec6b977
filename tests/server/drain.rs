//! Graceful shutdown: the server finishes started work, and ends at the deadline at the latest.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use millstream::body::GracefulClose;
use millstream::metrics::Snapshot;
use millstream::net::TcpListener;
use millstream::runtime::Cores;
use millstream::server::{DrainSignal, Drained, Limits, RequestBody, serve_cores};
#[cfg(feature = "sse")]
use millstream::sse::{Event, Hub};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::over::{Io, OF_OURS, Over};
use testkit::alone::ran_in_child;
use testkit::http::{Answer, Raw, boxed, h2, on_both, request, watched, whole};
use testkit::serving::serve;
use testkit::{HANGS, portable};

/// Time over which many endless responses are told to end.
const SPREAD: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Scene {
    arrived: AtomicUsize,
    go_on: Notify,
}

fn text(text: impl Into<Bytes>) -> Answer {
    Response::new(boxed(Full::new(text.into())))
}

/// Sends an event, and a last one when the server drains.
fn events() -> Answer {
    let (tell, told) = watch::channel(false);
    let frames = stream::unfold((told, 0), |(mut told, n)| async move {
        match n {
            0 => Some((Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"data: first\n\n"))), (told, 1))),
            1 => {
                told.wait_for(|&told| told).await.expect("the sender lives");
                Some((Ok(Frame::data(Bytes::from_static(b"data: last\n\n"))), (told, 2)))
            }
            _ => None,
        }
    });
    let mut answer = Response::new(boxed(StreamBody::new(Box::pin(frames))));
    answer.extensions_mut().insert(GracefulClose::new(move || tell.send_modify(|told| *told = true)));
    answer
}

fn stuck() -> Answer {
    Response::new(boxed(StreamBody::new(stream::pending::<io::Result<Frame<Bytes>>>())))
}

async fn answer(scene: Arc<Scene>, request: Request<RequestBody>) -> Result<Answer, Infallible> {
    scene.arrived.fetch_add(1, Ordering::SeqCst);
    Ok(match request.uri().path() {
        "/events" => events(),
        "/wait" => {
            scene.go_on.notified().await;
            text("waited")
        }
        "/stuck" => stuck(),
        _ => text("hello"),
    })
}

struct Server {
    addr: SocketAddr,
    scene: Arc<Scene>,
    signal: oneshot::Sender<()>,
    ended: JoinHandle<io::Result<Drained>>,
}

impl Server {
    async fn start(deadline: Duration) -> Self {
        let scene = Arc::<Scene>::default();
        let shared = Arc::clone(&scene);
        Self::start_with(deadline, scene, move |request| answer(Arc::clone(&shared), request)).await
    }

    async fn start_with<R>(
        deadline: Duration,
        scene: Arc<Scene>,
        handler: impl Fn(Request<RequestBody>) -> R + Clone + Send + 'static,
    ) -> Self
    where
        R: Future<Output = Result<Answer, Infallible>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(handler);
        let (signal, signalled) = oneshot::channel::<()>();
        let server = serve(listener, service).limits(Limits::default().drain_spread(SPREAD));
        let ended = tokio::spawn(server.drain(signalled, deadline));
        Self { addr, scene, signal, ended }
    }

    async fn arrived(&self, requests: usize) {
        while self.scene.arrived.load(Ordering::SeqCst) < requests {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn counts(drained: &Drained) -> [usize; 4] {
    [drained.connections, drained.finished, drained.notified, drained.aborted]
}

async fn refused(addr: SocketAddr) {
    // The listener closes asynchronously.
    let refused = async {
        loop {
            match TcpStream::connect(addr).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return,
                _ => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    };
    timeout(HANGS, refused).await.expect("refused");
}

#[test]
fn what_has_begun_is_finished_and_what_is_idle_is_closed() {
    on_both(async || {
        let server = Server::start(HANGS).await;
        let addr = server.addr;
        let mut idle = Raw::connect(addr).await;
        assert_eq!(idle.get("/").await.0, 200);
        let silent = Raw::connect(addr).await;
        let mut waits = Raw::connect(addr).await;
        waits.ask("/wait").await;
        let mut two = h2(addr).await;
        let mut streams = Vec::new();
        for _ in 0..3 {
            streams.push(tokio::spawn(two.send_request(request("/wait"))));
        }
        server.arrived(5).await;
        // A partial head counts as a request, and so does an unread request.
        let mut half = Raw::connect(addr).await;
        half.send("GET / HTTP/1.1\r\nHost").await;
        let mut late = Raw::connect(addr).await;
        assert_eq!(late.get("/").await.0, 200);
        late.ask("/").await;
        server.signal.send(()).unwrap();
        refused(addr).await;
        // The request may have been answered before the signal.
        assert_eq!(late.head().await.status, 200);
        assert_eq!(late.drain().await, b"hello");
        half.send(": mill\r\n\r\n").await;
        assert_eq!(half.head().await.field("connection"), Some("close"));
        assert_eq!(half.drain().await, b"hello");
        for mut closed in [idle, silent] {
            assert!(timeout(HANGS, closed.drain()).await.expect("closed").is_empty());
        }
        assert!(!server.ended.is_finished(), "ended before the last response");
        server.scene.go_on.notify_waiters();
        let head = waits.head().await;
        assert_eq!(head.field("connection"), Some("close"));
        assert_eq!(waits.drain().await, b"waited");
        for stream in streams {
            assert_eq!(whole(stream.await.unwrap().unwrap()).await.unwrap(), "waited");
        }
        let drained = timeout(HANGS, server.ended).await.unwrap().unwrap().unwrap();
        // The count includes connections that checked whether the listener is closed.
        assert!(drained.finished >= 6, "{drained:?}");
        assert_eq!(counts(&drained), [drained.finished, drained.finished, 0, 0], "{drained:?}");
        assert!(drained.duration < HANGS);
    });
}

/// Bytes behind the last request: an empty line, as old clients send behind a body, or a part of a next head.
const BEHIND: [&str; 3] = ["", "\r\n", "GET / HT"];

/// Sends a request with `behind` behind it, and reads the response.
async fn answered(addr: SocketAddr, over: Over, path: &str, behind: &str) -> Raw<Box<dyn Io>> {
    let mut client = Raw::over(over.client(TcpStream::connect(addr).await.unwrap()).await);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: mill\r\n\r\n{behind}")).await;
    let (head, chunks) = (client.head().await, "2\r\nhi\r\n0\r\n\r\n");
    let len = head.field("content-length").map_or(chunks.len(), |len| len.parse().unwrap());
    client.body(len).await.unwrap();
    client
}

#[test]
fn bytes_behind_the_last_request_do_not_hold_a_drain_up() {
    if ran_in_child() {
        return;
    }
    on_both(async || {
        for (takeover, over) in [true, false].into_iter().flat_map(|takeover| OF_OURS.map(|over| (takeover, over))) {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            // The body of `/later` is pending once, so that it is taken over.
            let service = tower::service_fn(async |request: Request<RequestBody>| {
                let later = stream::once(async {
                    tokio::task::yield_now().await;
                    Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"hi")))
                });
                Ok::<_, Infallible>(match request.uri().path() {
                    "/later" => Response::new(boxed(StreamBody::new(later))),
                    _ => text("hello"),
                })
            });
            let (signal, signalled) = oneshot::channel::<()>();
            let server = over.secured(serve(listener, service).takeover(takeover));
            let ended = tokio::spawn(server.drain(signalled, HANGS));
            let before = Snapshot::now();
            let mut clients = Vec::new();
            for path in ["/", "/later"] {
                for behind in BEHIND {
                    clients.push((path, behind, answered(addr, over, path, behind).await));
                }
            }
            // Those of `/`, and that of `/later` with a part of a head, which hyper has seen.
            let hibernates = takeover && !std::env::var("MILLSTREAM_DISABLE").is_ok_and(|off| off.contains("takeover"));
            while hibernates && Snapshot::now().since(&before).connections_hibernated < 4 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let all = clients.len();
            signal.send(()).unwrap();
            for (path, behind, mut client) in clients {
                let end = timeout(HANGS * 2, client.io.read(&mut [0; 8])).await.expect("an end");
                assert_eq!(end.ok(), Some(0), "takeover {takeover}, {over:?}: {behind:?} behind {path}");
            }
            let drained = timeout(HANGS, ended).await.unwrap().unwrap().unwrap();
            assert_eq!(counts(&drained), [all, all, 0, 0], "{drained:?}");
        }
    });
}

#[test]
fn a_thousand_event_streams_send_their_last_event_and_end() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    on_both(async || {
        let server = Server::start(HANGS).await;
        let mut clients = Vec::new();
        for _ in 0..990 {
            let mut client = Raw::connect(server.addr).await;
            client.ask("/events").await;
            clients.push(client);
        }
        let mut two = h2(server.addr).await;
        let mut streams = Vec::new();
        for _ in 0..10 {
            streams.push(two.send_request(request("/events")).await.unwrap());
        }
        server.arrived(1000).await;
        server.signal.send(()).unwrap();
        for mut client in clients {
            assert_eq!(client.head().await.status, 200);
            let got = String::from_utf8(client.drain().await).unwrap();
            assert_eq!(got, "D\r\ndata: first\n\n\r\nC\r\ndata: last\n\n\r\n0\r\n\r\n");
        }
        for answer in streams {
            assert_eq!(whole(answer).await.unwrap(), "data: first\n\ndata: last\n\n");
        }
        let drained = timeout(HANGS, server.ended).await.unwrap().unwrap().unwrap();
        assert_eq!(counts(&drained), [991, 0, 991, 0], "{drained:?}");
        println!("drained within {:?}", drained.duration);
        assert!(drained.duration < HANGS && drained.duration > SPREAD * 9 / 10, "{drained:?}");
    });
}

#[cfg(feature = "sse")]
#[test]
fn the_streams_of_a_hub_end_with_when_to_come_back() {
    on_both(async || {
        let hub = Hub::builder().retry(Duration::from_millis(1234)).build();
        let served = hub.clone();
        let server = Server::start_with(HANGS, Arc::default(), move |request| {
            let answer = served.subscribe(&request).map(boxed);
            async { Ok(answer) }
        })
        .await;
        let mut clients = Vec::new();
        for _ in 0..300 {
            let mut client = Raw::connect(server.addr).await;
            client.ask("/").await;
            assert_eq!(client.head().await.status, 200);
            clients.push(client);
        }
        let mut streams = Vec::new();
        for _ in 0..3 {
            let mut two = h2(server.addr).await;
            for _ in 0..20 {
                streams.push(two.send_request(request("/")).await.unwrap());
            }
        }
        assert_eq!(hub.stats().subscribers, 360);
        hub.send(Event::new().id("a").data("first")).unwrap();
        // A continuous flow of events delays no shutdown.
        let sender = hub.clone();
        let sending = tokio::spawn(async move {
            while sender.stats().subscribers > 0 {
                sender.send(Event::new().data("more")).unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        server.signal.send(()).unwrap();
        let ends = |text: &str, behind: &str| {
            assert!(text.contains("data: first\nid: a\n\n"), "{text}");
            assert!(text.ends_with(&format!("retry: 1234\n\n{behind}")), "{text}");
            assert_eq!(text.matches("retry:").count(), 1, "{text}");
        };
        let read = async {
            for mut client in clients {
                ends(&String::from_utf8(client.drain().await).unwrap(), "\r\n0\r\n\r\n");
            }
            for stream in streams {
                ends(std::str::from_utf8(&whole(stream).await.unwrap()).unwrap(), "");
            }
        };
        timeout(HANGS, read).await.expect("all end");
        let drained = timeout(HANGS, server.ended).await.unwrap().unwrap().unwrap();
        assert_eq!(counts(&drained), [303, 0, 303, 0], "{drained:?}");
        assert_eq!(hub.stats().subscribers, 0);
        assert!(drained.duration < HANGS);
        sending.await.unwrap();
    });
}

#[test]
fn what_does_not_end_is_ended_at_the_deadline() {
    let may_end = portable("a reset may show as an end");
    on_both(move || async move {
        let server = Server::start(Duration::from_millis(500)).await;
        let mut stuck = Raw::connect(server.addr).await;
        stuck.ask("/stuck").await;
        let mut two = h2(server.addr).await;
        let stream = two.send_request(request("/stuck")).await.unwrap();
        let mut waits = Raw::connect(server.addr).await;
        waits.ask("/wait").await;
        server.arrived(3).await;
        let since = Instant::now();
        server.signal.send(()).unwrap();
        let drained = timeout(HANGS, server.ended).await.unwrap().unwrap().unwrap();
        assert!(since.elapsed() >= Duration::from_millis(500), "not before");
        assert_eq!(counts(&drained), [3, 0, 0, 3], "{drained:?}");
        assert!(stuck.try_head().await.is_ok());
        let end = stuck.io.read(&mut [0; 8]).await;
        assert!(end.is_err() || may_end && end.unwrap() == 0, "an orderly end instead of a reset");
        assert!(stream.into_body().collect().await.is_err());
        assert!(waits.try_head().await.is_err());
    });
}

fn switching() -> Answer {
    let mut answer = text("");
    *answer.status_mut() = hyper::StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(header::UPGRADE, "mirror".parse().unwrap());
    answer.headers_mut().insert(header::CONNECTION, "upgrade".parse().unwrap());
    answer
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: mill\r\nUpgrade: mirror\r\nConnection: upgrade\r\n\r\n";

#[test]
fn an_upgraded_connection_is_ended_at_the_deadline_too() {
    let may_end = portable("a reset may show as an end");
    on_both(move || async move {
        for holder_reads in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let service = tower::service_fn(move |mut request: Request<RequestBody>| {
                let upgraded = hyper::upgrade::on(&mut request);
                tokio::spawn(async move {
                    let mut io = TokioIo::new(upgraded.await.unwrap());
                    io.write_all(b"hello").await.unwrap();
                    if holder_reads {
                        let _ = io.read_to_end(&mut Vec::new()).await;
                    } else {
                        // A handler that never reads the stream.
                        std::future::pending::<()>().await;
                    }
                });
                std::future::ready(Ok::<_, Infallible>(switching()))
            });
            let (signal, signalled) = oneshot::channel::<()>();
            let ended = tokio::spawn(serve(listener, service).drain(signalled, Duration::from_millis(300)));
            let mut client = Raw::connect(addr).await;
            client.send(UPGRADE).await;
            assert_eq!(client.head().await.status, 101);
            assert_eq!(client.body(5).await.unwrap(), b"hello");
            signal.send(()).unwrap();
            let drained = timeout(HANGS, ended).await.unwrap().unwrap().unwrap();
            assert_eq!(counts(&drained), [1, 0, 0, 1], "{drained:?}");
            let end = client.io.read(&mut [0; 8]).await;
            assert!(end.is_err() || may_end && end.unwrap() == 0);
        }
    });
}

#[test]
fn an_upgraded_connection_that_listens_ends_long_before_the_deadline() {
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        // The peers of each connection and of its upgraded request.
        let peers = Arc::new(std::sync::Mutex::new(Vec::new()));
        let service = tower::service_fn(async |mut request: Request<RequestBody>| {
            let drain = request.extensions().get::<DrainSignal>().expect("a drain signal").clone();
            let upgraded = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut io = TokioIo::new(upgraded.await.unwrap());
                assert!(!drain.is_draining());
                // Dropping the future early has no effect. The drain starts after the greeting.
                assert!(timeout(Duration::from_millis(1), drain.draining()).await.is_err());
                io.write_all(b"hello").await.unwrap();
                drain.draining().await;
                // A later call resolves as well.
                drain.clone().draining().await;
                assert!(drain.is_draining());
                io.write_all(b"goodbye").await.unwrap();
            });
            Ok::<_, Infallible>(switching())
        });
        let (signal, signalled) = oneshot::channel::<()>();
        let shared = Arc::clone(&peers);
        let server = serve(listener, service)
            .on_connection(move |_, accepted, _| shared.lock().unwrap().extend(accepted.drain_signal().cloned()))
            .drain(signalled, HANGS * 100);
        let ended = tokio::spawn(server);
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = Raw::connect(addr).await;
            client.send(UPGRADE).await;
            assert_eq!(client.head().await.status, 101);
            assert_eq!(client.body(5).await.unwrap(), b"hello");
            clients.push(client);
        }
        signal.send(()).unwrap();
        for mut client in clients {
            assert_eq!(client.drain().await, b"goodbye");
        }
        let drained = timeout(HANGS, ended).await.expect("before the deadline").unwrap().unwrap();
        assert_eq!((drained.connections, drained.aborted), (3, 0), "{drained:?}");
        let peers = std::mem::take(&mut *peers.lock().unwrap());
        assert_eq!(peers.len(), 3);
        for drain in peers {
            assert!(drain.is_draining());
            drain.draining().await;
        }
    });
}

#[test]
fn an_upgrade_that_is_answered_while_the_server_drains_is_one() {
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, scene) = (listener.local_addr().unwrap(), Arc::<Scene>::default());
        let shared = Arc::clone(&scene);
        let service = tower::service_fn(move |mut request: Request<RequestBody>| {
            let (upgraded, scene) = (hyper::upgrade::on(&mut request), Arc::clone(&shared));
            async move {
                scene.arrived.fetch_add(1, Ordering::SeqCst);
                scene.go_on.notified().await;
                tokio::spawn(async move { TokioIo::new(upgraded.await.unwrap()).write_all(b"hello").await });
                Ok::<_, Infallible>(switching())
            }
        });
        let (signal, signalled) = oneshot::channel::<()>();
        let ended = tokio::spawn(serve(listener, service).drain(signalled, HANGS));
        let mut client = Raw::connect(addr).await;
        client.send(UPGRADE).await;
        while scene.arrived.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        signal.send(()).unwrap();
        refused(addr).await;
        scene.go_on.notify_waiters();
        let head = client.head().await;
        assert_eq!(head.status, 101);
        let connection = head.field("connection").unwrap_or_default();
        assert!(connection.split(", ").any(|option| option == "upgrade"), "{connection}");
        assert_eq!(client.drain().await, b"hello");
        let drained = timeout(HANGS, ended).await.unwrap().unwrap().unwrap();
        assert_eq!(counts(&drained)[3], 0, "{drained:?}");
    });
}

#[test]
fn whoever_has_connected_is_served_however_many_there_are() {
    const CLIENTS: usize = 400;
    on_both(async || {
        let listener = TcpListener::builder().backlog(2 * CLIENTS as u32).bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = Raw::connect(addr).await;
            client.ask("/").await;
            clients.push(client);
        }
        let service = tower::service_fn(|request| answer(Arc::default(), request));
        let ended = tokio::spawn(serve(listener, service).drain(std::future::ready(()), HANGS));
        for mut client in clients {
            assert_eq!(client.head().await.status, 200);
            assert_eq!(client.drain().await, b"hello");
        }
        let drained = timeout(HANGS, ended).await.unwrap().unwrap().unwrap();
        assert_eq!(counts(&drained), [CLIENTS, CLIENTS, 0, 0], "{drained:?}");
    });
}

#[test]
fn an_ending_that_panics_keeps_no_other_from_ending() {
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(async |request: Request<RequestBody>| {
            if request.uri().path() == "/good" {
                return Ok::<_, Infallible>(events());
            }
            let mut answer = stuck();
            // Without the panic hook, whose backtrace may take longer than the deadline.
            let panics = || std::panic::resume_unwind(Box::new("panic of the test's close handler"));
            answer.extensions_mut().insert(GracefulClose::new(panics));
            Ok(answer)
        });
        let (signal, signalled) = oneshot::channel::<()>();
        let ended = tokio::spawn(serve(listener, service).drain(signalled, Duration::from_secs(6)));
        let (mut bad, mut good) = (Raw::connect(addr).await, Raw::connect(addr).await);
        for (client, path) in [(&mut bad, "/bad"), (&mut good, "/good")] {
            client.ask(path).await;
            assert_eq!(client.head().await.status, 200);
        }
        signal.send(()).unwrap();
        assert!(good.drain().await.ends_with(b"data: last\n\n\r\n0\r\n\r\n"));
        let drained = timeout(HANGS, ended).await.unwrap().unwrap().unwrap();
        assert_eq!(counts(&drained), [2, 0, 1, 1], "{drained:?}");
    });
}

#[test]
fn a_server_without_connections_has_drained_at_once() {
    if ran_in_child() {
        return;
    }
    on_both(async || {
        let server = Server::start(HANGS).await;
        let mut gone = Raw::connect(server.addr).await;
        assert_eq!(gone.get("/").await.0, 200);
        drop(gone);
        // The server must have seen the disconnect.
        while Snapshot::now().open_connections > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.signal.send(()).unwrap();
        let drained = timeout(HANGS, server.ended).await.unwrap().unwrap().unwrap();
        assert_eq!(counts(&drained), [0; 4], "{drained:?}");
    });
}

#[test]
fn all_cores_drain_and_their_counts_are_one() {
    watched(|| {
        let cores = Cores::new(2).unwrap();
        let listeners = TcpListener::builder().bind_each("127.0.0.1:0", 2).unwrap();
        let (addr, scene) = (listeners.local_addr(), Arc::<Scene>::default());
        let shared = Arc::clone(&scene);
        let service = tower::service_fn(move |request| answer(Arc::clone(&shared), request));
        let (signal, signalled) = oneshot::channel::<()>();
        let limits = Limits::default().connections(20);
        let server = serve_cores(&cores, listeners, service).limits(limits).drain(signalled, HANGS);
        let clients = testkit::http::Flavour::CurrentThread.runtime().block_on(async {
            let mut clients = Vec::new();
            for _ in 0..20 {
                let mut client = Raw::connect(addr).await;
                client.ask("/events").await;
                assert_eq!(client.head().await.status, 200);
                clients.push(client);
            }
            // The limit applies to all cores together.
            for _ in 0..4 {
                let over = async {
                    let mut over = Raw::over(TcpStream::connect(addr).await?);
                    over.io.write_all(b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n").await?;
                    over.try_head().await
                };
                assert_eq!(over.await.unwrap().status, 503, "one over the limit");
            }
            signal.send(()).unwrap();
            for client in &mut clients {
                assert!(client.drain().await.ends_with(b"data: last\n\n\r\n0\r\n\r\n"));
            }
            clients
        });
        let drained = server.wait().unwrap();
        assert_eq!(counts(&drained), [20, 0, 20, 0], "{drained:?}");
        drop(clients);
    });
}
