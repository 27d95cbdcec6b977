//! How HTTP/1 connections end: in order, with their last response delivered, and with nothing left behind.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use millstream::net::{StreamStats, TcpListener};
use millstream::server::{Connection, Drained, Limits, RequestBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::listeners::Dial;
use crate::over::{ALL, Io, Over};
use testkit::http::{Answer, BoxError, Flavour, Raw, boxed, narrow, on_both, watched};
use testkit::serving::serve;
use testkit::{HANGS, noise};

/// Timeout that only a hang reaches.
const LONG: Duration = Duration::from_secs(60);
const LENGTH: usize = 1 << 20;
const MIDDLING: usize = 64 << 10;
/// A body that is too large, and does not fit into the buffers of a connection.
const TOO_LARGE: usize = 8 << 20;
/// Clients of each kind that leave.
const CLIENTS: usize = 5;

const H2C: &str = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n";
const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n";

#[derive(Default)]
struct Scene {
    /// Tasks that wait for their client to leave, or for an upgrade.
    waiting: AtomicUsize,
    /// Upgrades that the service got.
    upgraded: AtomicUsize,
    go_on: Notify,
}

/// A task that waits, until it is dropped.
struct Waits(Arc<Scene>);

impl Waits {
    fn begin(scene: &Arc<Scene>) -> Self {
        scene.waiting.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(scene))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn answer(scene: Arc<Scene>, mut request: Request<RequestBody>) -> Result<Answer, BoxError> {
    let connection = request.extensions().get::<Connection>().unwrap().clone();
    let waits = Waits::begin(&scene);
    tokio::spawn(async move {
        connection.gone().await;
        drop(waits);
    });
    let hello = Response::new(boxed(Full::new(Bytes::from("hello"))));
    Ok(match request.uri().path() {
        "/length" => {
            let body = request.into_body().collect().await?.to_bytes();
            Response::new(boxed(Full::new(Bytes::from(body.len().to_string()))))
        }
        // Waits for an upgrade that it has refused.
        "/refused" => {
            let (waits, upgraded) = (Waits::begin(&scene), hyper::upgrade::on(&mut request));
            tokio::spawn(async move {
                let _waits = waits;
                if upgraded.await.is_ok() {
                    scene.upgraded.fetch_add(1, Ordering::SeqCst);
                }
            });
            hello
        }
        "/echo" => {
            let upgraded = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut io = TokioIo::new(upgraded.await.expect("an upgrade"));
                scene.upgraded.fetch_add(1, Ordering::SeqCst);
                let mut word = [0; 5];
                // The client may reset the connection.
                while io.read_exact(&mut word).await.is_ok() && io.write_all(&word).await.is_ok() {}
            });
            let head = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
            head.header(header::UPGRADE, "echo").header(header::CONNECTION, "upgrade").body(boxed(Full::default()))?
        }
        // Fits into the socket of the server, and not into that of a client.
        "/middling" => Response::new(boxed(Full::new(Bytes::from(noise(MIDDLING))))),
        "/long" => Response::new(boxed(Full::new(Bytes::from(noise(LENGTH))))),
        // Pending now and then, so that it is taken over.
        "/pieces" => {
            let pieces = noise(LENGTH).chunks(LENGTH / 8).map(Bytes::copy_from_slice).collect::<Vec<_>>();
            let frames = stream::iter(pieces).then(async |piece| {
                tokio::time::sleep(Duration::from_millis(2)).await;
                Ok::<_, Infallible>(Frame::data(piece))
            });
            Response::new(boxed(StreamBody::new(frames)))
        }
        "/held" => {
            let frame = async move {
                scene.go_on.notified().await;
                Ok::<_, Infallible>(Frame::data(Bytes::from("held")))
            };
            Response::new(boxed(StreamBody::new(stream::once(frame))))
        }
        _ => hello,
    })
}

struct Server {
    addr: SocketAddr,
    over: Over,
    scene: Arc<Scene>,
    signal: oneshot::Sender<()>,
    ended: JoinHandle<io::Result<Drained>>,
}

impl Server {
    async fn start(over: Over, takeover: bool, limits: Limits) -> Self {
        println!("over {over:?}, takeover {takeover}");
        let scene = Arc::<Scene>::default();
        let shared = Arc::clone(&scene);
        let service = tower::service_fn(move |request| answer(Arc::clone(&shared), request));
        let (signal, signalled) = oneshot::channel::<()>();
        let (addr, ended);
        if over == Over::Tokio {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            addr = listener.local_addr().unwrap();
            let server = serve(listener, service).takeover(takeover).limits(limits);
            ended = tokio::spawn(server.drain(signalled, LONG));
        } else {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addr = listener.local_addr().unwrap();
            let server = serve(listener, service).takeover(takeover).limits(limits);
            ended = tokio::spawn(over.secured(server).drain(signalled, LONG));
        }
        Self { addr, over, scene, signal, ended }
    }

    async fn connect(&self) -> Raw<Box<dyn Io>> {
        self.connect_by(TcpStream::connect(self.addr).await.unwrap()).await
    }

    async fn connect_by(&self, socket: TcpStream) -> Raw<Box<dyn Io>> {
        Raw::over(self.over.client(socket).await)
    }

    /// Waits until no task waits for a client.
    async fn left(&self, how: &str) {
        let left = async {
            while self.scene.waiting.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let waiting = || self.scene.waiting.load(Ordering::SeqCst);
        assert!(timeout(LONG, left).await.is_ok(), "{} wait, {how}", waiting());
    }
}

/// Runs `test` with each kind of stream, with takeover on and off.
async fn on_all(test: impl AsyncFn(Over, bool)) {
    for over in ALL {
        for takeover in [true, false] {
            test(over, takeover).await;
        }
    }
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: mill\r\n{fields}\r\n")
}

#[test]
fn a_client_that_offers_an_upgrade_can_send_its_body_until_its_answer() {
    on_both(async || {
        on_all(async |over, takeover| {
            let body = vec![b'x'; TOO_LARGE];
            let limited = Server::start(over, takeover, Limits::default().body(2 << 20)).await;
            let ignored = Server::start(over, takeover, Limits::default().streaming_requests(|_| true)).await;
            // Too large for the service, not read by the service, and answered while a task waits for the upgrade.
            let cases =
                [(&limited, "/length", 413, ""), (&ignored, "/", 200, "hello"), (&ignored, "/refused", 200, "hello")];
            for (server, path, status, answer) in cases {
                for fields in ["", H2C, WEBSOCKET] {
                    let mut client = server.connect().await;
                    let fields = format!("{fields}Content-Length: {TOO_LARGE}");
                    client.send(format!("POST {path} HTTP/1.1\r\nHost: mill\r\n{fields}\r\n\r\n")).await;
                    let sent = timeout(LONG, client.io.write_all(&body)).await;
                    sent.expect("the server reads").expect("no reset");
                    client.io.flush().await.expect("no reset");
                    let head = timeout(LONG, client.try_head()).await.expect("an answer").expect("no reset");
                    assert_eq!(head.status, status, "{path}");
                    let mut got = client.buffered();
                    client.io.read_to_end(&mut got).await.expect("an orderly end");
                    assert_eq!(got, answer.as_bytes());
                }
                server.left(path).await;
                assert_eq!(server.scene.upgraded.load(Ordering::SeqCst), 0, "{path}");
            }
        })
        .await;
    });
}

#[test]
fn clients_that_offer_an_upgrade_and_leave_leave_no_task() {
    on_both(async || {
        on_all(async |over, takeover| {
            let server = Server::start(over, takeover, Limits::default()).await;
            for (path, fields) in [("/", ""), ("/", H2C), ("/", WEBSOCKET), ("/refused", H2C), ("/pieces", H2C)] {
                for reads in [true, false] {
                    for _ in 0..CLIENTS {
                        let mut client = server.connect().await;
                        client.send(get(path, fields)).await;
                        if reads {
                            assert_eq!(client.head().await.status, 200);
                        }
                    }
                    server.left(&format!("{path} {fields:?}, reads: {reads}")).await;
                }
            }
            assert_eq!(server.scene.upgraded.load(Ordering::SeqCst), 0);
            for talks in [true, false] {
                for _ in 0..CLIENTS {
                    let mut client = server.connect().await;
                    // On a used connection too.
                    client
                        .send([get("/", H2C), get("/echo", "Connection: Upgrade\r\nUpgrade: echo\r\n")].concat())
                        .await;
                    let head = client.head().await;
                    assert_eq!((head.status, client.body(5).await.unwrap()), (200, b"hello".to_vec()));
                    assert_eq!(client.head().await.status, 101);
                    if talks {
                        client.send("echo!").await;
                        assert_eq!(client.body(5).await.unwrap(), b"echo!");
                    }
                    assert!(server.scene.waiting.load(Ordering::SeqCst) >= 2, "the client is here");
                }
                server.left("upgraded").await;
            }
            assert_eq!(server.scene.upgraded.load(Ordering::SeqCst), 2 * CLIENTS);
            server.signal.send(()).unwrap();
            timeout(LONG, server.ended).await.expect("an end").unwrap().unwrap();
        })
        .await;
    });
}

#[test]
fn what_a_client_sends_behind_its_last_request_costs_it_no_byte_of_the_response() {
    // More than hyper reads at once.
    const MORE: usize = 30 << 10;
    on_both(async || {
        on_all(async |over, takeover| {
            let server = Server::start(over, takeover, Limits::default()).await;
            for path in ["/long", "/pieces"] {
                for fields in ["", H2C] {
                    let mut client = server.connect_by(narrow(server.addr).await).await;
                    let last = get(path, &format!("{fields}Connection: close\r\n"));
                    let more = get("/", "").repeat(MORE / get("/", "").len());
                    client.send([last, more].concat()).await;
                    let head = client.head().await;
                    assert_eq!(head.status, 200);
                    let mut got = client.buffered();
                    let read = timeout(LONG, client.io.read_to_end(&mut got)).await.expect("an end");
                    read.unwrap_or_else(|error| panic!("{path} {fields:?}: {error} after {} bytes", got.len()));
                    assert!(got.len() >= LENGTH, "{path} {fields:?}: {} bytes", got.len());
                }
            }
        })
        .await;
    });
}

#[test]
fn what_a_client_sends_on_behind_its_last_request_costs_it_no_byte_either() {
    // The server closes the connection after one of them, if it does not linger.
    const LATER: usize = 100;
    on_both(async || {
        on_all(async |over, takeover| {
            let server = Server::start(over, takeover, Limits::default()).await;
            let mut client = server.connect_by(narrow(server.addr).await).await;
            // hyper reads all of it, so that no unread byte is left in the socket.
            client.send([&get("/middling", "Connection: close\r\n"), "GET / HTTP/1.1\r\nX: "].concat()).await;
            assert_eq!(client.head().await.status, 200);
            for _ in 0..LATER {
                // The response tells whether the connection was reset.
                let _ = client.io.write_all(b"x").await;
                let _ = client.io.flush().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let mut got = client.buffered();
            timeout(LONG, client.io.read_to_end(&mut got)).await.expect("an end").expect("no reset");
            assert_eq!(got.len(), MIDDLING);
        })
        .await;
    });
}

#[test]
fn requests_behind_a_head_that_has_gone_out_are_answered_by_a_server_that_drains() {
    on_both(async || {
        on_all(async |over, takeover| {
            let server = Server::start(over, takeover, Limits::default()).await;
            let mut idle = server.connect().await;
            assert_eq!(idle.get("/").await.0, 200);
            let mut client = server.connect().await;
            client.send(get("/held", "")).await;
            let head = client.head().await;
            assert_eq!((head.status, head.field("connection")), (200, None));
            client.send(get("/", "").repeat(3)).await;
            let Server { signal, scene, ended, .. } = server;
            signal.send(()).unwrap();
            // The server drains once it has closed the idle connection.
            assert!(timeout(LONG, idle.drain()).await.expect("closed").is_empty());
            scene.go_on.notify_one();
            assert_eq!(client.body(14).await.unwrap(), b"4\r\nheld\r\n0\r\n\r\n");
            let head = timeout(LONG, client.try_head()).await.expect("an answer").expect("a second response");
            assert_eq!((head.status, head.field("connection")), (200, Some("close")));
            let mut rest = client.buffered();
            timeout(LONG, client.io.read_to_end(&mut rest)).await.expect("an end").expect("no reset");
            assert_eq!(rest, b"hello", "one more response, and no other behind its `Connection: close`");
            drop(client);
            let drained = timeout(LONG, ended).await.expect("an end").unwrap().unwrap();
            assert_eq!((drained.connections, drained.aborted), (2, 0), "{drained:?}");
        })
        .await;
    });
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_by_an_error_is_shut_down_at_once() {
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned();
    let cases = [
        (get("/", ""), preface, ""),
        (get("/", H2C), "no request\r\n\r\n".to_owned(), "400"),
        (get("/", H2C), format!("POST / HTTP/1.1\r\nHost: a b\r\nContent-Length: {}\r\n\r\n", 3 << 20), "400"),
    ];
    for takeover in [true, false] {
        for (request, error, status) in &cases {
            let (listener, dial) = Dial::channel();
            let service = tower::service_fn(async |_: Request<RequestBody>| {
                Ok::<_, Infallible>(Response::new(boxed(Full::new(Bytes::from("hello")))))
            });
            tokio::spawn(serve(listener, service).takeover(takeover).into_future());
            let mut client = Raw::over(dial.connect().await);
            client.send(request).await;
            assert_eq!(client.head().await.status, 200);
            assert_eq!(client.body(5).await.unwrap(), b"hello");
            let since = Instant::now();
            client.send(error).await;
            let end = String::from_utf8(client.drain().await).unwrap();
            // The clock moves only while everything waits.
            assert_eq!(since.elapsed(), Duration::ZERO, "{error:?}, takeover {takeover}");
            assert_eq!(end.split(' ').nth(1).unwrap_or_default(), *status);
        }
    }
}

#[test]
fn a_body_that_is_dropped_late_does_not_keep_the_connection_for_unread_bytes() {
    // On one thread the client runs only when the server has ended the connection, or waits.
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            // The body of the first request is dropped during the second one, which is the last.
            const FIRST: &str = "POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 5\r\n\r\nhello";
            const SECOND: &str = "GET / HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n";
            let (tell, mut told) = mpsc::channel(1);
            let closed = move |numbers: &StreamStats| tell.try_send(numbers.received).unwrap();
            let listener = TcpListener::builder().on_close(closed).bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let kept = Arc::<Mutex<Option<RequestBody>>>::default();
            let service = tower::service_fn(move |request: Request<RequestBody>| {
                let is_first = request.method() == Method::POST;
                let last = kept.lock().unwrap().replace(request.into_body()).filter(|_| !is_first);
                drop(last);
                std::future::ready(Ok::<_, Infallible>(Response::new(boxed(Full::new(Bytes::from_static(b"hi"))))))
            });
            tokio::spawn(serve(listener, service).into_future());
            let mut client = Raw::connect(addr).await;
            client.send(FIRST).await;
            client.head().await;
            client.body(2).await.unwrap();
            client.send(SECOND).await;
            client.io.read_to_end(&mut Vec::new()).await.unwrap();
            // A connection that waits for unread bytes receives it.
            let _ = client.io.write_all(b"x").await;
            let received = timeout(HANGS, told.recv()).await.expect("the end of the connection");
            assert_eq!(received, Some((FIRST.len() + SECOND.len()) as u64));
        })
    });
}
