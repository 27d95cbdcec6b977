//! A server that drains gives its idle connections to another one, and their clients notice nothing.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{Full, StreamBody};
use hyper::body::Frame;
use hyper::{Request, Response, Version};
use millstream::body::GracefulClose;
use millstream::net::{Accept, Handle, TcpListener, TcpStream, UnixListener};
use millstream::server::{Drained, Limits, RequestBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use testkit::http::{Answer, Raw, boxed, h2, on_both, request};
use testkit::serving::serve;
use testkit::skips::tell;

mod hot;
#[cfg(feature = "sse")]
mod readers;

/// Time after which a test hangs.
const HANGS: Duration = Duration::from_secs(60);
/// Most connections that wait for a server.
const PLACES: usize = 1000;
const DEADLINE: Duration = Duration::from_secs(30);

/// Returns whether idle connections move: not without takeover.
fn moves() -> bool {
    let disabled = std::env::var("MILLSTREAM_DISABLE").unwrap_or_default();
    let moves = !disabled.contains("takeover");
    if !moves {
        tell("idle connections that move: takeover is off");
    }
    moves
}

/// Accepts new connections, and those of the server before.
struct Both {
    listener: TcpListener,
    given: Mutex<mpsc::Receiver<OwnedFd>>,
}

impl Accept for Both {
    type Stream = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let given = async {
            match self.given.lock().await.recv().await {
                Some(socket) => socket,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.listener.accept() => accepted,
            socket = given => self.listener.adopt(socket.into()),
        }
    }
}

/// The gate that requests wait for, how many have arrived, and the connections.
#[derive(Default)]
struct Scene {
    arrived: AtomicUsize,
    go_on: Notify,
    handles: std::sync::Mutex<Vec<Handle>>,
    /// Requests that had arrived when the first connection moved.
    before: std::sync::OnceLock<usize>,
}

impl Scene {
    async fn arrived(&self, requests: usize) {
        while self.arrived.load(Ordering::SeqCst) < requests {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until the server has read so many bytes.
    async fn received(&self, bytes: u64) {
        let received = |handle: &Handle| handle.stats().map_or(0, |stats| stats.received);
        while self.handles.lock().unwrap().iter().map(received).sum::<u64>() < bytes {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A server, whose answers have its number. It gives its idle connections to the next one.
struct Server {
    signal: oneshot::Sender<()>,
    ended: JoinHandle<io::Result<Drained>>,
    scene: Arc<Scene>,
}

/// A listening socket, and the servers that have had it one after another.
struct Servers {
    socket: std::net::TcpListener,
    addr: SocketAddr,
    limits: Limits,
    number: usize,
    given: Option<mpsc::Receiver<OwnedFd>>,
}

impl Servers {
    fn new(limits: Limits) -> Self {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        Self { socket, addr, limits, number: 0, given: None }
    }

    /// Starts the next server.
    fn start(&mut self, deadline: Duration) -> Server {
        self.number += 1;
        let listener = TcpListener::from_std(self.socket.try_clone().unwrap()).unwrap();
        let (give, next) = mpsc::channel(PLACES);
        // The first one is given no connection.
        let given = self.given.replace(next).unwrap_or_else(|| mpsc::channel(PLACES).1);
        let (scene, number) = (Arc::<Scene>::default(), self.number);
        let shared = Arc::clone(&scene);
        let service = tower::service_fn(move |request| answer(Arc::clone(&shared), number, request));
        let server = serve(Both { listener, given: Mutex::new(given) }, service).limits(self.limits.clone());
        let moving = Arc::clone(&scene);
        let server = server.move_connections(move |socket, _| {
            moving.before.get_or_init(|| moving.arrived.load(Ordering::SeqCst));
            give.try_send(socket).expect("the next server");
        });
        let seen = Arc::clone(&scene);
        let server = server.on_connection(move |_, connection, _| {
            seen.handles.lock().unwrap().push(connection.handle().clone());
        });
        let (signal, signalled) = oneshot::channel::<()>();
        Server { signal, ended: tokio::spawn(server.drain(signalled, deadline)), scene }
    }
}

impl Server {
    fn drain(self) -> JoinHandle<io::Result<Drained>> {
        self.signal.send(()).unwrap();
        self.ended
    }
}

async fn drained(ended: JoinHandle<io::Result<Drained>>) -> Drained {
    timeout(HANGS, ended).await.expect("it ends").unwrap().unwrap()
}

async fn answer(scene: Arc<Scene>, number: usize, request: Request<RequestBody>) -> Result<Answer, Infallible> {
    scene.arrived.fetch_add(1, Ordering::SeqCst);
    let text = format!("{number} {}", request.uri().path());
    match request.uri().path() {
        "/wait" => scene.go_on.notified().await,
        "/events" => return Ok(events()),
        "/foreign" => return Ok(foreign()),
        _ => {}
    }
    Ok(Response::new(boxed(Full::new(Bytes::from(text)))))
}

/// A response of unknown length, as it comes from a server that speaks HTTP/2.
fn foreign() -> Answer {
    let frames = stream::iter([Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"a")))]);
    let mut answer = Response::new(boxed(StreamBody::new(frames)));
    *answer.version_mut() = Version::HTTP_2;
    answer
}

/// A stream that ends when the server drains.
fn events() -> Answer {
    let (tell, told) = watch::channel(false);
    let frames = stream::unfold((told, 0), |(mut told, n)| async move {
        match n {
            0 => Some((Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"first"))), (told, 1))),
            1 => {
                told.wait_for(|&told| told).await.expect("the sender lives");
                Some((Ok(Frame::data(Bytes::from_static(b"last"))), (told, 2)))
            }
            _ => None,
        }
    });
    let mut answer = Response::new(boxed(StreamBody::new(Box::pin(frames))));
    answer.extensions_mut().insert(GracefulClose::new(move || tell.send_modify(|told| *told = true)));
    answer
}

/// Returns the number of the server that has answered. The connection must stay open.
async fn answered(client: &mut Raw, path: &str) -> usize {
    let head = client.head().await;
    assert_eq!(head.status, 200);
    assert_eq!(head.field("connection"), None, "{path}: the connection would be closed");
    let body = client.body(head.content_length()).await.expect("a whole body");
    let (number, asked) = std::str::from_utf8(&body).unwrap().split_once(' ').expect("a number and a path");
    assert_eq!(asked, path, "the answer to another request");
    number.parse().unwrap()
}

async fn asked(client: &mut Raw, path: &str) -> usize {
    client.ask(path).await;
    timeout(HANGS, answered(client, path)).await.expect("an answer")
}

#[test]
fn clients_that_send_at_any_time_keep_their_connections_through_several_servers() {
    const CLIENTS: usize = 40;
    const SERVERS: usize = 6;
    if !moves() {
        return;
    }
    on_both(|| async {
        let mut servers = Servers::new(Limits::default());
        let mut server = servers.start(DEADLINE);
        let (ends, end) = watch::channel(false);
        let addr = servers.addr;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let end = end.clone();
                tokio::spawn(async move {
                    let mut client = Raw::connect(addr).await;
                    let (mut number, mut requests) = (0, 0);
                    while !*end.borrow() {
                        // Half of the clients send their first request late, or several at once.
                        sleep(Duration::from_micros((n as u64 * 7919 + requests * 104_729) % 30_000)).await;
                        let paths: Vec<_> = (0..1 + n as u64 % 3).map(|i| format!("/{n}/{requests}/{i}")).collect();
                        for path in &paths {
                            client.ask(path).await;
                        }
                        for path in &paths {
                            let by = timeout(HANGS, answered(&mut client, path)).await.expect("an answer");
                            assert!(by >= number, "an earlier server answers");
                            number = by;
                        }
                        requests += 1;
                    }
                    assert_eq!(asked(&mut client, "/last").await, SERVERS);
                    client
                })
            })
            .collect();
        for _ in 1..SERVERS {
            sleep(Duration::from_millis(200)).await;
            let next = servers.start(DEADLINE);
            let report = drained(server.drain()).await;
            assert_eq!((report.moved, report.connections), (CLIENTS, CLIENTS), "{report:?}");
            server = next;
        }
        ends.send(true).unwrap();
        for client in clients {
            client.await.unwrap();
        }
    });
}

#[test]
fn a_request_in_progress_and_a_head_that_has_begun_are_answered_first() {
    if !moves() {
        return;
    }
    on_both(|| async {
        let mut servers = Servers::new(Limits::default());
        let old = servers.start(DEADLINE);
        let mut waits = Raw::connect(servers.addr).await;
        waits.ask("/wait").await;
        let mut begins = Raw::connect(servers.addr).await;
        assert_eq!(asked(&mut begins, "/first").await, 1);
        begins.send("GET /begun HTTP/1.1\r\n").await;
        let mut silent = Raw::connect(servers.addr).await;
        let mut fresh = Raw::connect(servers.addr).await;
        fresh.send("GET /fresh ").await;
        // The start of a connection of HTTP/2, which does not move.
        let mut two = Raw::connect(servers.addr).await;
        two.send("PRI * HTTP/2.0\r\n").await;
        old.scene.arrived(2).await;
        let sent = ["/wait", "/first"].map(|path| format!("GET {path} HTTP/1.1\r\nHost: mill\r\n\r\n").len());
        let begun = "GET /begun HTTP/1.1\r\nGET /fresh PRI * HTTP/2.0\r\n".len();
        old.scene.received((sent.iter().sum::<usize>() + begun) as u64).await;
        let _new = servers.start(DEADLINE);
        let scene = Arc::clone(&old.scene);
        let ended = old.drain();
        // Several checks of the connections.
        sleep(Duration::from_millis(800)).await;
        assert!(!ended.is_finished());
        begins.send("Host: a\r\n\r\n").await;
        assert_eq!(timeout(HANGS, answered(&mut begins, "/begun")).await.expect("an answer"), 1);
        fresh.send("HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(timeout(HANGS, answered(&mut fresh, "/fresh")).await.expect("an answer"), 1);
        two.send(b"\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
        let settings = timeout(HANGS, two.body(4)).await.expect("an answer").expect("a frame");
        assert_eq!(settings[3], 4, "{settings:?}");
        drop(two);
        scene.go_on.notify_one();
        assert_eq!(timeout(HANGS, answered(&mut waits, "/wait")).await.expect("an answer"), 1);
        let report = drained(ended).await;
        assert_eq!((report.moved, report.connections), (4, 5), "{report:?}");
        for client in [&mut waits, &mut begins, &mut fresh, &mut silent] {
            assert_eq!(asked(client, "/next").await, 2);
        }
    });
}

#[test]
fn a_connection_moves_after_a_stream_that_was_told_to_end() {
    if !moves() {
        return;
    }
    on_both(|| async {
        let mut servers = Servers::new(Limits::default());
        let old = servers.start(DEADLINE);
        let mut client = Raw::connect(servers.addr).await;
        client.ask("/events").await;
        let head = client.head().await;
        assert_eq!(head.field("connection"), None);
        old.scene.arrived(1).await;
        let _new = servers.start(DEADLINE);
        let report = drained(old.drain()).await;
        assert_eq!((report.moved, report.connections), (1, 1), "{report:?}");
        let chunks = b"5\r\nfirst\r\n4\r\nlast\r\n0\r\n\r\n";
        assert_eq!(client.body(chunks.len()).await.expect("the whole stream"), chunks);
        assert_eq!(asked(&mut client, "/next").await, 2);
    });
}

#[test]
fn other_connections_drain_as_usual() {
    on_both(|| async {
        let mut servers = Servers::new(Limits::default());
        let old = servers.start(Duration::from_secs(1));
        let mut two = h2(servers.addr).await;
        assert_eq!(two.send_request(request("/two")).await.unwrap().status(), 200);
        let mut waits = Raw::connect(servers.addr).await;
        waits.ask("/wait").await;
        old.scene.arrived(2).await;
        let report = drained(old.drain()).await;
        assert_eq!((report.finished, report.aborted, report.moved), (1, 1, 0), "{report:?}");
        let stayed = report.stayed;
        // Without the takeover no connection moves, and none stays.
        let all = usize::from(moves());
        assert_eq!((stayed.protocol, stayed.response, stayed.ended), (all, all, 0), "{report:?}");
        assert!(two.ready().await.is_err(), "HTTP/2 does not move");
        assert!(waits.try_head().await.is_err(), "the deadline has passed");
    });
}

/// hyper does not give such a connection back, because it may hold bytes that are not known.
#[test]
fn a_connection_that_hyper_keeps_drains_as_usual_and_at_once() {
    on_both(|| async {
        let mut servers = Servers::new(Limits::default());
        let old = servers.start(DEADLINE);
        let mut unread = Raw::connect(servers.addr).await;
        unread.send("POST /first HTTP/1.1\r\nHost: mill\r\nContent-Length: 5\r\n\r\nhello").await;
        assert_eq!(answered(&mut unread, "/first").await, 1);
        let mut foreign = Raw::connect(servers.addr).await;
        foreign.ask("/foreign").await;
        assert_eq!(foreign.head().await.status, 200);
        let chunks = b"1\r\na\r\n0\r\n\r\n";
        assert_eq!(foreign.body(chunks.len()).await.expect("the whole body"), chunks);
        let _new = servers.start(DEADLINE);
        let report = drained(old.drain()).await;
        assert_eq!((report.finished, report.moved, report.aborted), (2, 0, 0), "{report:?}");
        assert!(report.duration < DEADLINE, "{report:?}");
        for client in [&mut unread, &mut foreign] {
            assert!(client.drain().await.is_empty(), "closed");
        }
    });
}

/// The first request of a connection has less time than further ones.
#[test]
fn a_connection_that_was_adopted_has_the_time_of_one_between_two_requests() {
    if !moves() {
        return;
    }
    on_both(|| async {
        // Long enough for the client to send its first request, on a busy machine too.
        let first = Duration::from_secs(3);
        let limits = Limits::default().head_time(first).keep_alive(Duration::from_secs(3600));
        let mut servers = Servers::new(limits);
        let old = servers.start(DEADLINE);
        let mut client = Raw::connect(servers.addr).await;
        assert_eq!(asked(&mut client, "/first").await, 1);
        let _new = servers.start(DEADLINE);
        assert_eq!(drained(old.drain()).await.moved, 1);
        sleep(first + first / 2).await;
        assert_eq!(asked(&mut client, "/next").await, 2);
    });
}

#[test]
fn a_unix_socket_moves() {
    if !moves() {
        return;
    }
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).await.unwrap();
        let adopting = UnixListener::bind(dir.path().join("other")).await.unwrap();
        let (give, mut given) = mpsc::channel(PLACES);
        let hello = || {
            tower::service_fn(async |_: Request<RequestBody>| {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
            })
        };
        let (signal, signalled) = oneshot::channel::<()>();
        let server = serve(listener, hello()).move_connections(move |socket, _| give.try_send(socket).unwrap());
        let ended = tokio::spawn(server.drain(signalled, DEADLINE));
        let mut client = tokio::net::UnixStream::connect(&path).await.unwrap();
        let mut ask = async || {
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"hello") {
                assert_ne!(timeout(HANGS, client.read_buf(&mut answer)).await.unwrap().unwrap(), 0, "{answer:?}");
            }
        };
        ask().await;
        signal.send(()).unwrap();
        assert_eq!(drained(ended).await.moved, 1);
        let (stream, _) = adopting.adopt(given.recv().await.unwrap().into()).unwrap();
        let (accept, accepted) = mpsc::channel(PLACES);
        accept.try_send(stream).unwrap();
        tokio::spawn(serve(One(Mutex::new(accepted)), hello()).into_future());
        ask().await;
    });
}

/// Accepts the streams of a channel.
struct One(Mutex<mpsc::Receiver<millstream::net::UnixStream>>);

impl Accept for One {
    type Stream = millstream::net::UnixStream;
    type Addr = ();

    async fn accept(&self) -> io::Result<(Self::Stream, ())> {
        match self.0.lock().await.recv().await {
            Some(stream) => Ok((stream, ())),
            None => std::future::pending().await,
        }
    }
}
