//! Listeners that are not of this crate: tokio's, and one that a user implements.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::http::Extensions;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use millstream::metrics::Snapshot;
use millstream::net::{Accept, CountedIo, Handle, PeerAddr};
use millstream::server::{Connection, DrainSignal, Limits, RequestBody};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::limits::slow::{Endless, until};
use testkit::http::{Answer, Raw, boxed, h1_over, h2_over, on_both, request, whole};
use testkit::serving::serve;
use testkit::{HANGS, noise};

/// A limit, and how long a test waits for it to take effect.
const LIMIT: Duration = Duration::from_secs(5);
/// Connections inside the process.
#[derive(Debug)]
pub(crate) struct Channel(tokio::sync::Mutex<mpsc::Receiver<DuplexStream>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(&'static str);

impl Accept for Channel {
    type Stream = CountedIo<DuplexStream>;
    type Addr = Name;

    async fn accept(&self) -> io::Result<(Self::Stream, Name)> {
        let stream = self.0.lock().await.recv().await.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((CountedIo::new(stream), Name("inside")))
    }
}

impl PeerAddr for Name {
    fn ip(&self) -> Option<IpAddr> {
        Some([192, 0, 2, 1].into())
    }

    fn identify(&self, _: &Handle, extensions: &mut Extensions) {
        extensions.insert(self.clone());
    }
}

/// The client side of a [`Channel`].
#[derive(Clone)]
pub(crate) struct Dial(mpsc::Sender<DuplexStream>);

impl Dial {
    pub(crate) fn channel() -> (Channel, Self) {
        let (sender, receiver) = mpsc::channel(16);
        (Channel(receiver.into()), Self(sender))
    }

    pub(crate) async fn connect(&self) -> DuplexStream {
        let (ours, theirs) = duplex(16 << 10);
        self.0.send(theirs).await.unwrap();
        ours
    }
}

async fn hello(request: Request<RequestBody>) -> Result<Answer, Infallible> {
    let body = match request.uri().path() {
        "/length" => {
            let body = request.into_body().collect().await.expect("a whole body").to_bytes();
            // A response that is not ready at once.
            tokio::time::sleep(Duration::from_millis(20)).await;
            boxed(Full::new(Bytes::from(body.len().to_string())))
        }
        "/long" => boxed(Full::new(Bytes::from(noise(1 << 20)))),
        _ => boxed(Full::new(Bytes::from("hello"))),
    };
    Ok(Response::new(body))
}

async fn answers<S: AsyncRead + AsyncWrite + Unpin + Send + 'static, F: Future<Output = S>>(
    connect: impl Fn() -> F,
) -> Vec<(StatusCode, Bytes)> {
    let mut answers = Vec::new();
    let paths = ["/", "/long", "/length", "/"];
    let mut one = h1_over(connect().await).await;
    for path in paths {
        one.ready().await.unwrap();
        let answer = one.send_request(request(path)).await.unwrap();
        answers.push((answer.status(), whole(answer).await.unwrap()));
    }
    let mut two = h2_over(connect().await).await;
    for path in paths {
        let answer = two.send_request(request(path)).await.unwrap();
        answers.push((answer.status(), whole(answer).await.unwrap()));
    }
    answers
}

#[test]
fn every_listener_gives_the_same_answers() {
    on_both(|| async {
        let service = || tower::service_fn(hello);
        let ours = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = ours.local_addr().unwrap();
        tokio::spawn(serve(ours, service()).into_future());
        let expected = answers(|| async move { TcpStream::connect(addr).await.unwrap() }).await;
        assert!(expected.iter().all(|(status, body)| *status == 200 && !body.is_empty()));

        let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = tcp.local_addr().unwrap();
        tokio::spawn(serve(tcp, service()).into_future());
        let before = Snapshot::now();
        assert!(answers(|| async move { TcpStream::connect(addr).await.unwrap() }).await == expected);
        assert!(Snapshot::now().since(&before).accepted >= 2);

        let dir = tempfile::tempdir().unwrap();
        let path = &dir.path().join("socket");
        tokio::spawn(serve(tokio::net::UnixListener::bind(path).unwrap(), service()).into_future());
        assert!(answers(|| async move { UnixStream::connect(path).await.unwrap() }).await == expected);

        let (channel, dial) = Dial::channel();
        tokio::spawn(serve(channel, service()).into_future());
        assert!(answers(|| dial.connect()).await == expected);
    });
}

#[test]
fn limits_apply_to_any_stream() {
    on_both(|| async {
        let (channel, dial) = Dial::channel();
        let limits = Limits::default().head_time(LIMIT).keep_alive(LIMIT).write_stall(LIMIT).per_address(4);
        let bodies = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&bodies);
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            std::future::ready(Ok::<Answer, Infallible>(Response::new(match request.uri().path() {
                "/endless" => boxed(Endless::new(&counted)),
                _ => boxed(Full::new(Bytes::from("hello"))),
            })))
        });
        tokio::spawn(serve(channel, service).limits(limits).into_future());
        let mut stalled = Raw::over(dial.connect().await);
        stalled.ask("/endless").await;
        until(&bodies, 1).await;
        let mut late = Raw::over(dial.connect().await);
        late.send("GET / HTTP/1.1\r\nHos").await;
        let mut idle = Raw::over(dial.connect().await);
        assert_eq!(idle.get("/").await.0, 200);
        let mut fourth = Raw::over(dial.connect().await);
        assert_eq!(fourth.get("/").await.0, 200);
        let mut fifth = Raw::over(dial.connect().await);
        assert_eq!(fifth.get("/").await.0, 503, "the address has four connections");

        let late = timeout(HANGS, late.drain()).await.expect("the late client is still connected");
        assert!(late.starts_with(b"HTTP/1.1 408 "), "{late:?}");
        assert_eq!(timeout(HANGS, idle.drain()).await.expect("the idle client is still connected"), b"");
        timeout(HANGS, until(&bodies, 0)).await.expect("the stalled client is still connected");
    });
}

#[test]
fn peers_are_identified() {
    on_both(|| async {
        let (channel, dial) = Dial::channel();
        let service = tower::service_fn(async |request: Request<RequestBody>| {
            let peer = request.extensions().get::<Connection>().and_then(Connection::peer);
            let text = format!("{:?} {:?}", request.extensions().get::<Name>(), peer);
            Ok::<Answer, Infallible>(Response::new(boxed(Full::new(Bytes::from(text)))))
        });
        tokio::spawn(serve(channel, service).into_future());
        let mut client = Raw::over(dial.connect().await);
        for _ in 0..2 {
            let (_, text) = client.get("/").await;
            assert_eq!(String::from_utf8(text).unwrap(), "Some(Name(\"inside\")) Some(192.0.2.1)");
        }
    });
}

#[test]
fn a_hook_adds_to_the_extensions_of_its_connection_only() {
    on_both(|| async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(async |request: Request<RequestBody>| {
            let peer: SocketAddr = *request.extensions().get().expect("inserted by the hook");
            Ok::<Answer, Infallible>(Response::new(boxed(Full::new(Bytes::from(peer.to_string())))))
        });
        let server = serve(listener, service).on_connection(|extensions, _, addr| {
            extensions.insert(*addr);
        });
        tokio::spawn(server.into_future());
        for _ in 0..2 {
            let stream = TcpStream::connect(addr).await.unwrap();
            let local = stream.local_addr().unwrap().to_string();
            let mut client = Raw::over(stream);
            for _ in 0..2 {
                assert_eq!(client.get("/").await.1, local.as_bytes());
            }
        }
    });
}

#[test]
fn a_hook_that_panics_ends_its_connection_only() {
    on_both(|| async {
        let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(async |_: Request<RequestBody>| {
            Ok::<Answer, Infallible>(Response::new(boxed(Empty::<Bytes>::new())))
        });
        let calls = AtomicUsize::new(0);
        let server = serve(listener, service).on_connection(move |_, _, _| {
            assert_ne!(calls.fetch_add(1, Ordering::Relaxed), 0, "the hook of a test panics");
        });
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let served = tokio::spawn(server.limits(Limits::default().connections(1)).drain(stopped, HANGS));
        assert_eq!(Raw::connect(addr).await.drain().await, b"");
        let mut client = Raw::connect(addr).await;
        assert_eq!(client.get("/").await.0, 200, "the place of the first one is free");
        drop((client, stop));
        let drained = served.await.unwrap().unwrap();
        assert_eq!(drained.aborted, 0, "{drained:?}");
    });
}

/// Always has another connection, up to [`FLOOD`]. Counts them.
struct Flood(Arc<AtomicUsize>);

const FLOOD: usize = 5000;

impl Accept for Flood {
    type Stream = CountedIo<DuplexStream>;
    type Addr = Name;

    async fn accept(&self) -> io::Result<(Self::Stream, Name)> {
        if self.0.fetch_add(1, Ordering::Relaxed) >= FLOOD {
            std::future::pending::<()>().await;
        }
        Ok((CountedIo::new(duplex(64).0), Name("inside")))
    }
}

#[test]
fn a_listener_that_is_always_ready_does_not_hold_up_the_drain() {
    on_both(|| async {
        let (accepted, at_signal) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (count, seen) = (Arc::clone(&accepted), Arc::clone(&at_signal));
        let signal = async move {
            while count.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            seen.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        serve(Flood(accepted), tower::service_fn(hello)).drain(signal, HANGS).await.unwrap();
        assert!((1..FLOOD).contains(&at_signal.load(Ordering::Relaxed)), "{at_signal:?}");
    });
}

#[test]
fn a_runtime_without_timers_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.block_on(async {
            let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let service = tower::service_fn(async |_: Request<RequestBody>| {
                Ok::<Answer, Infallible>(Response::new(boxed(Empty::<Bytes>::new())))
            });
            // Without the panic the server accepts, and no limit holds.
            tokio::select! {
                biased;
                served = serve(listener, service).into_future() => drop(served),
                () = tokio::task::yield_now() => {}
            }
        });
    }));
    assert!(served.is_err());
}

#[test]
fn handles_count_and_reset() {
    on_both(|| async {
        let (channel, dial) = Dial::channel();
        let (bodies, handles) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<Handle>>>::default());
        let (counted, shared) = (Arc::clone(&bodies), Arc::clone(&handles));
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            std::future::ready(Ok::<Answer, Infallible>(Response::new(match request.uri().path() {
                "/endless" => boxed(Endless::new(&counted)),
                _ => boxed(Empty::<Bytes>::new()),
            })))
        });
        let hook = move |_: &mut Extensions, accepted: &Connection, _: &Name| {
            shared.lock().unwrap().push(accepted.handle().clone());
        };
        tokio::spawn(serve(channel, service).on_connection(hook).into_future());
        let mut client = dial.connect().await;
        client.write_all(b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n").await.unwrap();
        let mut head = vec![0; 4096];
        let len = client.read(&mut head).await.unwrap();
        let handle = handles.lock().unwrap()[0].clone();
        // The client may read the bytes before they are counted.
        while handle.stats().expect("an open stream").writes == 0 {
            tokio::task::yield_now().await;
        }
        let stats = handle.stats().expect("an open stream");
        assert_eq!((stats.received, stats.sent as usize, stats.writes), (30, len, 1));
        assert!(!stats.blocked);

        client.write_all(b"GET /endless HTTP/1.1\r\nHost: mill\r\n\r\n").await.unwrap();
        until(&bodies, 1).await;
        while !handle.stats().expect("an open stream").blocked {
            tokio::task::yield_now().await;
        }
        handle.reset();
        until(&bodies, 0).await;
        while handle.stats().is_some() {
            tokio::task::yield_now().await;
        }
        client.read_to_end(&mut head).await.unwrap();
    });
}

#[test]
fn a_response_ends_when_its_peer_leaves() {
    on_both(|| async {
        let (channel, dial) = Dial::channel();
        let (dropped, gone) = oneshot::channel::<()>();
        let dropped = Arc::new(Mutex::new(Some(dropped)));
        let service = tower::service_fn(move |_: Request<RequestBody>| {
            let dropped = dropped.lock().unwrap().take();
            async move {
                let _dropped = dropped;
                std::future::pending::<Result<Answer, Infallible>>().await
            }
        });
        tokio::spawn(serve(channel, service).into_future());
        let mut client = Raw::over(dial.connect().await);
        client.ask("/").await;
        drop(client);
        assert!(timeout(HANGS, gone).await.expect("the service still runs").is_err());
    });
}

#[test]
fn an_upgrade_yields_the_stream() {
    on_both(|| async {
        let (channel, dial) = Dial::channel();
        let service = tower::service_fn(async |mut request: Request<RequestBody>| {
            let upgraded = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let parts = upgraded.await.unwrap().downcast::<CountedIo<DuplexStream>>().unwrap();
                let mut io = parts.io;
                io.write_all(&parts.read_buf).await.unwrap();
                let mut word = [0; 4];
                io.read_exact(&mut word).await.unwrap();
                io.write_all(&word).await.unwrap();
                io.shutdown().await.unwrap();
            });
            let mut answer = Response::new(boxed(Empty::<Bytes>::new()));
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            answer.headers_mut().insert("upgrade", "echo".parse().unwrap());
            answer.headers_mut().insert("connection", "upgrade".parse().unwrap());
            Ok::<Answer, Infallible>(answer)
        });
        tokio::spawn(serve(channel, service).into_future());
        let mut client = Raw::over(dial.connect().await);
        client.send("GET / HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").await;
        assert_eq!(client.head().await.status, 101);
        client.send("word").await;
        assert_eq!(client.drain().await, b"word");
    });
}

#[test]
fn a_drain_ends_the_connections_of_any_listener() {
    on_both(|| async {
        let (channel, dial) = Dial::channel();
        let (begin, begun) = oneshot::channel::<()>();
        let service = tower::service_fn(async |request: Request<RequestBody>| {
            if request.uri().path() == "/waits" {
                std::future::pending::<()>().await;
            }
            hello(request).await
        });
        let signals = Arc::<Mutex<Vec<DrainSignal>>>::default();
        let shared = Arc::clone(&signals);
        let server = serve(channel, service)
            .on_connection(move |_, accepted, _| shared.lock().unwrap().extend(accepted.drain_signal().cloned()))
            .drain(begun, LIMIT);
        let server = tokio::spawn(server);
        let (mut idle, mut waits) = (Raw::over(dial.connect().await), Raw::over(dial.connect().await));
        assert_eq!(idle.get("/").await.0, 200);
        waits.ask("/waits").await;
        while signals.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        begin.send(()).unwrap();
        assert_eq!(timeout(HANGS, idle.drain()).await.expect("the idle client is still connected"), b"");
        assert_eq!(timeout(HANGS, waits.drain()).await.expect("the waiting client is still connected"), b"");
        let drained = timeout(HANGS, server).await.expect("the server drains").unwrap().unwrap();
        assert_eq!((drained.connections, drained.aborted), (2, 1));
        assert!(dial.0.is_closed(), "the listener is closed");
    });
}

#[tokio::test]
async fn bytes_pass_a_counted_stream_unchanged() {
    let (ours, mut theirs) = duplex(64);
    let mut ours = CountedIo::new(ours);
    let handle = ours.handle();
    let (sent, answer) = (noise(100_000), noise(50_000));
    let (expected, theirs_answer) = (sent.clone(), answer.clone());
    let peer = tokio::spawn(async move {
        let mut got = vec![0; expected.len()];
        theirs.read_exact(&mut got).await.unwrap();
        assert!(got == expected);
        theirs.write_all(&theirs_answer).await.unwrap();
        drop(theirs);
    });
    ours.write_all(&sent).await.unwrap();
    let mut got = Vec::new();
    // As hyper reads.
    let mut reading = TokioIo::new(&mut ours);
    TokioIo::new(&mut reading).read_to_end(&mut got).await.unwrap();
    assert!(got == answer);
    peer.await.unwrap();
    let stats = handle.stats().unwrap();
    assert_eq!((stats.sent, stats.received), (100_000, 50_000));
    drop(ours);
    assert_eq!((handle.stats(), handle.kernel()), (None, None));
    assert_eq!(handle.send_strategy(), None);
}
