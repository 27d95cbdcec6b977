//! The age of connections: requests finish, idle connections are closed, endless responses end, and other requests are reset.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use millstream::metrics::Snapshot;
use millstream::net::TcpListener;
use millstream::server::{Limits, RequestBody, until_drain};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::text;
use crate::over::{Io, OF_OURS, Over};
use testkit::HANGS;
use testkit::http::{Answer, Raw, boxed, h2_over, on_both, request, whole};
use testkit::serving::serve;

/// Far longer than the clients need to get what they get before.
const AGE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Scene {
    arrived: AtomicUsize,
    go_on: Notify,
}

/// An endless stream of events, which ends when it is told to.
fn events() -> Answer {
    let first = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"data: first\n\n")))]);
    let frames = futures_util::StreamExt::chain(first, stream::pending());
    let answer = Response::builder().header("content-type", "text/event-stream");
    until_drain(answer.body(boxed(StreamBody::new(frames))).unwrap()).map(boxed)
}

/// Sends back what comes through a tunnel.
fn tunnel(request: Request<RequestBody>) -> Answer {
    tokio::spawn(async move {
        let (mut reads, mut writes) = tokio::io::split(TokioIo::new(hyper::upgrade::on(request).await.unwrap()));
        // The tunnel ends with its client.
        let _ = tokio::io::copy(&mut reads, &mut writes).await;
    });
    Response::new(boxed(Empty::<Bytes>::new()))
}

struct Server {
    addr: std::net::SocketAddr,
    over: Over,
    scene: Arc<Scene>,
}

impl Server {
    async fn start(over: Over, grace: Duration) -> Self {
        let (listener, scene) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::<Scene>::default());
        let (addr, shared) = (listener.local_addr().unwrap(), Arc::clone(&scene));
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let scene = Arc::clone(&shared);
            async move {
                scene.arrived.fetch_add(1, Ordering::SeqCst);
                if request.method() == Method::CONNECT {
                    return Ok(tunnel(request));
                }
                Ok::<_, Infallible>(match request.uri().path() {
                    "/events" => events(),
                    "/wait" => {
                        scene.go_on.notified().await;
                        text("waited")
                    }
                    _ => text("hello"),
                })
            }
        });
        let server = over.secured(serve(listener, service).limits(Limits::default().age(AGE..=AGE + AGE / 5, grace)));
        tokio::spawn(server.into_future());
        Self { addr, over, scene }
    }

    async fn connect(&self) -> Box<dyn Io> {
        self.over.client(TcpStream::connect(self.addr).await.unwrap()).await
    }

    async fn arrived(&self, requests: usize) {
        while self.scene.arrived.load(Ordering::SeqCst) < requests {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Waits until so many connections have reached their age; the watchdog limits the time.
async fn aged(before: &Snapshot, connections: u64) {
    while Snapshot::now().since(before).connections_aged < connections {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn connections_of_http1_end_after_their_response_and_idle_ones_are_closed() {
    if testkit::alone::ran_in_child() {
        return;
    }
    on_both(async || {
        for over in OF_OURS {
            let server = Server::start(over, Duration::MAX).await;
            let (before, begun) = (Snapshot::now(), Instant::now());
            let [mut idle, mut silent, mut waits, mut events] = [
                Raw::over(server.connect().await),
                Raw::over(server.connect().await),
                Raw::over(server.connect().await),
                Raw::over(server.connect().await),
            ];
            assert_eq!(idle.get("/").await.0, 200);
            waits.ask("/wait").await;
            events.ask("/events").await;
            assert_eq!(events.head().await.status, 200);
            server.arrived(3).await;
            // A browser comes back: the response is complete.
            let text = timeout(HANGS, events.drain()).await.expect("an end");
            assert!(text.ends_with(b"data: first\n\n\r\n0\r\n\r\n"), "{over:?}");
            assert!(timeout(HANGS, idle.drain()).await.expect("closed").is_empty());
            // The bytes of a handshake begin a head, which has its own limit.
            if over == Over::Ours {
                assert!(timeout(HANGS, silent.drain()).await.expect("closed").is_empty());
            }
            assert!(begun.elapsed() >= AGE, "{over:?}: {:?}", begun.elapsed());
            aged(&before, 4).await;
            server.scene.go_on.notify_waiters();
            assert_eq!(waits.head().await.field("connection"), Some("close"));
            assert_eq!(waits.drain().await, b"waited");
            assert_eq!(Snapshot::now().since(&before).connections_aged, 4);
        }
    });
}

#[test]
fn a_connection_of_http2_gets_goaway_and_finishes_its_requests() {
    if testkit::alone::ran_in_child() {
        return;
    }
    on_both(async || {
        for over in OF_OURS {
            let server = Server::start(over, Duration::MAX).await;
            let before = Snapshot::now();
            let (mut busy, mut idle) = (h2_over(server.connect().await).await, h2_over(server.connect().await).await);
            assert_eq!(whole(idle.send_request(request("/")).await.unwrap()).await.unwrap(), "hello");
            let waits = tokio::spawn(busy.send_request(request("/wait")));
            let mut events = busy.send_request(request("/events")).await.unwrap().into_body();
            assert_eq!(events.frame().await.unwrap().unwrap().into_data().unwrap(), "data: first\n\n");
            let end = timeout(HANGS, events.collect()).await.expect("an end");
            assert_eq!(end.expect("no reset").to_bytes(), "");
            aged(&before, 2).await;
            for client in [&mut busy, &mut idle] {
                // After GOAWAY a client takes no further request.
                timeout(HANGS, async {
                    while client.send_request(request("/")).await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                })
                .await
                .expect("GOAWAY");
            }
            server.scene.go_on.notify_waiters();
            assert_eq!(whole(waits.await.unwrap().unwrap()).await.unwrap(), "waited");
            assert_eq!(Snapshot::now().since(&before).connections_aged, 2);
        }
    });
}

#[test]
fn a_quiet_tunnel_over_http2_has_until_the_end_of_the_grace() {
    if testkit::alone::ran_in_child() {
        return;
    }
    on_both(async || {
        for over in OF_OURS {
            let server = Server::start(over, Duration::MAX).await;
            let before = Snapshot::now();
            let mut client = h2_over(server.connect().await).await;
            let connect = Request::connect("mill:80").body(request("/").into_body()).unwrap();
            let answer = client.send_request(connect).await.unwrap();
            let mut tunnel = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
            let mut echo = async || {
                tunnel.write_all(b"a").await.unwrap();
                timeout(HANGS, tunnel.read_u8()).await.expect("an echo").unwrap()
            };
            assert_eq!(echo().await, b'a');
            aged(&before, 1).await;
            // A dozen checks.
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!(echo().await, b'a', "{over:?}");
        }
    });
}

#[test]
fn requests_that_take_longer_than_the_grace_are_reset() {
    on_both(async || {
        for over in OF_OURS {
            let server = Server::start(over, AGE).await;
            let begun = Instant::now();
            let mut one = Raw::over(server.connect().await);
            one.ask("/wait").await;
            let mut two = h2_over(server.connect().await).await;
            let answer = tokio::spawn(two.send_request(request("/wait")));
            assert!(timeout(HANGS, one.try_head()).await.expect("an end").is_err(), "{over:?}");
            assert!(timeout(HANGS, answer).await.expect("an end").unwrap().is_err(), "{over:?}");
            assert!(begun.elapsed() >= 2 * AGE);
        }
    });
}
