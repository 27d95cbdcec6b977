//! Queued bytes of the whole process have a budget. Beyond it a server takes on less work; it recovers without help.
//! The budget is per process, so the test runs in its own.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2::handshake;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::metrics::Snapshot;
use millstream::net::TcpListener;
use millstream::server::{Connection, Limits, RequestBody};
use socket2::SockRef;
use tokio::sync::watch;
use tokio::time::timeout;

use testkit::http::{Answer, Head, Raw, boxed, h2, on_both, request, whole};
use testkit::serving::serve;
use testkit::{HANGS, alone};

const BUDGET: usize = 4 << 20;
/// Maximum number of queued bytes of a stream.
const HIGH: usize = 180 << 10;

async fn answer(request: Request<RequestBody>) -> Result<Answer, io::Error> {
    Ok(match request.uri().path() {
        // More than the socket and the queue hold.
        "/much" => {
            let frames =
                stream::iter((0..2000).map(|_| Ok::<_, io::Error>(Frame::data(Bytes::from_static(&[7; 2000])))));
            Response::new(boxed(StreamBody::new(frames)))
        }
        _ => Response::new(boxed(Full::new(Bytes::from_static(b"hello")))),
    })
}

async fn ask(addr: SocketAddr) -> Head {
    let mut client = Raw::connect(addr).await;
    client.ask("/").await;
    client.head().await
}

/// Adds clients that do not read until a response satisfies `wanted`.
async fn fill(addr: SocketAddr, clients: &mut Vec<Raw>, wanted: impl Fn(&Head) -> bool) {
    for _ in 0..40 {
        let head = ask(addr).await;
        if wanted(&head) {
            return;
        }
        let mut client = Raw::connect_narrow(addr).await;
        client.ask("/much").await;
        clients.push(client);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no such response with {} clients", clients.len());
}

#[test]
fn at_ninety_percent_connections_are_closed_and_at_ninety_five_requests_are_shed() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let listener = TcpListener::builder().high_mark(HIGH).bind("127.0.0.1:0").await.unwrap();
        SockRef::from(&listener).set_send_buffer_size(8 << 10).unwrap();
        let addr = listener.local_addr().unwrap();
        // The write stall must not end a client here.
        let limits = Limits::default().budget(BUDGET).write_stall(Duration::from_secs(600));
        tokio::spawn(serve(listener, tower::service_fn(answer)).limits(limits).into_future());
        let before = Snapshot::now();
        let mut kept = Raw::connect(addr).await;
        assert_eq!(kept.get("/").await.0, 200);
        let mut two = h2(addr).await;
        let mut clients = Vec::new();
        // Each client holds less than the step from 90 % to 95 %.
        fill(addr, &mut clients, |head| head.status == 503 || head.field("connection") == Some("close")).await;
        let waits = clients.len();
        println!("{waits} clients of {HIGH} bytes each");
        assert!((18..=26).contains(&waits), "{waits} clients");
        let head = ask(addr).await;
        assert_eq!((head.status, head.field("connection")), (200, Some("close")), "90 %");
        fill(addr, &mut clients, |head| head.status == 503).await;
        let head = ask(addr).await;
        assert_eq!(head.field("connection"), Some("close"), "95 %");
        assert!(matches!(head.field("retry-after"), Some("1" | "2" | "3")));
        kept.ask("/").await;
        assert_eq!(kept.head().await.status, 503);
        assert!(kept.drain().await.is_empty(), "closed");
        let shed = two.send_request(request("/")).await.unwrap();
        assert_eq!(shed.status(), 503);
        // After GOAWAY, the client's connection takes no more requests.
        while two.ready().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(clients);
        // The server recovers once the queues are gone.
        while ask(addr).await.field("connection").is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut again = Raw::connect(addr).await;
        assert_eq!((again.get("/").await.0, again.get("/").await.0), (200, 200));
        let counted = Snapshot::now().since(&before);
        assert!(counted.closed_under_pressure >= 1 && counted.requests_shed >= 3, "{counted}");
    });
}

/// Counts calls of a service that end, also those that are dropped.
struct Call(Arc<AtomicUsize>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn connections_over_http2_wait_for_services_that_do_not_read_their_bodies() {
    if alone::ran_in_child() {
        return;
    }
    const LEN: usize = 900 << 10;
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (read, reads) = watch::channel(false);
        let [begun, ended] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let calls = (Arc::clone(&begun), Arc::clone(&ended));
        // A service may keep what it knows of its connections.
        let kept = Arc::<Mutex<Vec<Connection>>>::default();
        let keeps = Arc::clone(&kept);
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let (mut reads, (begun, ended)) = (reads.clone(), calls.clone());
            keeps.lock().unwrap().extend(request.extensions().get().cloned());
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                let _call = Call(ended);
                reads.wait_for(|read| *read).await.expect("the test ends last");
                let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
                Ok::<Answer, io::Error>(Response::new(boxed(Full::from(body.len().to_string()))))
            }
        });
        tokio::spawn(serve(listener, service).limits(Limits::default().budget(BUDGET)).into_future());
        let before = Snapshot::now();
        let paused = || Snapshot::now().since(&before).reads_paused;
        let upload = |len| Request::post("http://mill/").body(Full::new(Bytes::from(vec![7; len]))).unwrap();
        let (mut clients, mut answers) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let io = tokio::net::TcpStream::connect(addr).await.unwrap();
            let socket = SockRef::from(&io).try_clone().unwrap();
            let (mut client, connection) = handshake(TokioExecutor::new(), TokioIo::new(io)).await.unwrap();
            tokio::spawn(connection);
            answers.push((client.send_request(upload(LEN)), LEN));
            clients.push((client, socket));
        }
        // All together exceed half of the budget, and not 90 % of it.
        until(|| paused() == 3).await;
        assert_eq!(begun.load(Ordering::SeqCst), 3);
        for (client, _) in &mut clients {
            answers.push((client.send_request(upload(10)), 10));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(begun.load(Ordering::SeqCst), 3, "no connection is read");
        // A client that leaves is noticed.
        clients[0].1.shutdown(Shutdown::Both).unwrap();
        until(|| ended.load(Ordering::SeqCst) >= 1).await;
        read.send(true).unwrap();
        for (n, (answer, len)) in answers.into_iter().enumerate() {
            match answer.await {
                Ok(answer) => assert_eq!(whole(answer).await.unwrap(), len.to_string()),
                Err(_) => assert_eq!(n % 3, 0, "the client that has left"),
            }
        }
        until(|| Snapshot::now().queued_bytes == before.queued_bytes).await;
        assert!(kept.lock().unwrap().len() >= 3, "the states are kept");
        for (client, _) in &mut clients[1..] {
            let answer = client.send_request(upload(LEN)).await.unwrap();
            assert_eq!(whole(answer).await.unwrap(), LEN.to_string());
        }
    });
}

/// The server sees that a client opens a window only if it reads.
#[test]
fn a_connection_whose_response_waits_for_a_window_is_read() {
    if alone::ran_in_child() {
        return;
    }
    const LEN: usize = 900 << 10;
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (read, reads) = watch::channel(false);
        let (flow, flows) = watch::channel(false);
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let (mut reads, mut flows) = (reads.clone(), flows.clone());
            async move {
                let go_on = async |signal: &mut watch::Receiver<bool>| {
                    signal.wait_for(|goes_on| *goes_on).await.map(drop).expect("the test ends last");
                };
                if request.method() == Method::GET {
                    go_on(&mut flows).await;
                    return Ok::<Answer, io::Error>(Response::new(boxed(Full::from(vec![7; LEN]))));
                }
                go_on(&mut reads).await;
                let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
                Ok(Response::new(boxed(Full::from(body.len().to_string()))))
            }
        });
        tokio::spawn(serve(listener, service).limits(Limits::default().budget(BUDGET)).into_future());
        let before = Snapshot::now();
        let counted = || Snapshot::now().since(&before);
        let (mut clients, mut gets, mut posts) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..3 {
            let io = tokio::net::TcpStream::connect(addr).await.unwrap();
            let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            let (mut client, connection) =
                builder.initial_stream_window_size(64 << 10).handshake(TokioIo::new(io)).await.unwrap();
            tokio::spawn(connection);
            let get = Request::get("http://mill/").body(Full::new(Bytes::new())).unwrap();
            let post = Request::post("http://mill/").body(Full::new(Bytes::from(vec![7; LEN]))).unwrap();
            let [get, post] = [get, post].map(|request| {
                let answer = client.send_request(request);
                tokio::spawn(async { answer.await?.collect().await.map(|body| body.to_bytes()) })
            });
            gets.push(get);
            posts.push(post);
            clients.push(client);
        }
        until(|| counted().reads_paused == 3).await;
        flow.send(true).unwrap();
        for get in gets {
            let body = timeout(HANGS, get).await.expect("a response").unwrap().expect("no reset");
            assert!(body.len() == LEN && body.iter().all(|byte| *byte == 7));
        }
        read.send(true).unwrap();
        for post in posts {
            assert_eq!(post.await.unwrap().expect("no reset"), LEN.to_string());
        }
        assert_eq!(counted().writes_stalled, 0);
    });
}
