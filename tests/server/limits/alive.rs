//! HTTP/2 peers that are dead or give no window, and hyper's own options.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::{Request, Response};
use millstream::net::TcpListener;
use millstream::runtime::Cores;
use millstream::server::{Limits, RequestBody, serve_cores};
use tokio::sync::Semaphore;

use super::half::silent;
use super::{hello, start};
use testkit::HANGS;
use testkit::http::{Raw, boxed, frame, on_both, watched};
use testkit::serving::serve;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

struct Frames(Raw);

impl Frames {
    async fn connect(addr: SocketAddr) -> Self {
        let mut client = Raw::connect(addr).await;
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
        Self(client)
    }

    /// Returns type, flags and payload of the next frame, or `None` at the end of the connection, a reset included.
    async fn next(&mut self) -> Option<(u8, u8, Vec<u8>)> {
        frame(&mut self.0.io).await.ok()
    }

    async fn setting(&mut self, id: u16) -> Option<u32> {
        let (kind, flags, payload) = self.next().await.unwrap();
        assert_eq!((kind, flags), (SETTINGS, 0));
        let settings = payload.as_chunks::<6>().0.iter();
        settings
            .map(|&[a, b, c, d, e, f]| (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f])))
            .find_map(|(found, value)| (found == id).then_some(value))
    }
}

#[test]
fn a_body_is_polled_for_one_frame_beyond_the_window() {
    on_both(async || {
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&polls);
        let service = tower::service_fn(move |_: Request<RequestBody>| {
            let counted = Arc::clone(&counted);
            let frames = stream::repeat_with(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[7; 100])))
            });
            async { Ok::<_, Infallible>(Response::new(boxed(StreamBody::new(frames)))) }
        });
        let mut client = Frames::connect(start(Limits::default(), service).await).await;
        // INITIAL_WINDOW_SIZE of 0, `GET /` of `mill` on stream 1, and a ping, which is answered after the head.
        client.0.send(b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0").await;
        client.0.send(b"\0\0\x09\x01\x05\0\0\0\x01\x82\x86\x84\x41\x04mill").await;
        let mut data_after = async |frame: &[u8], kind: u8| {
            client.0.send(frame).await;
            let mut data = 0;
            loop {
                let (found, _, payload) = client.next().await.expect("an open connection");
                data += if found == DATA { payload.len() } else { 0 };
                if found == kind {
                    return data;
                }
            }
        };
        data_after(b"", HEADERS).await;
        assert_eq!(data_after(b"\0\0\x08\x06\0\0\0\0\0mill-now", PING).await, 0);
        assert!(polls.load(Ordering::Relaxed) <= 1, "{polls:?}");
        // A window of 150 bytes.
        assert!(data_after(b"\0\0\x04\x08\0\0\0\0\x01\0\0\0\x96", DATA).await > 0);
        data_after(b"\0\0\x08\x06\0\0\0\0\0mill-now", PING).await;
        assert!((1..=3).contains(&polls.load(Ordering::Relaxed)), "{polls:?}");
    });
}

#[test]
fn a_peer_that_answers_no_ping_is_given_up() {
    on_both(async || {
        let dropped = Arc::new(Semaphore::new(0));
        let service = silent(&dropped);
        let limits = Limits::default().http2_ping_interval(Duration::from_millis(50));
        // Far longer than the peer needs for its answers.
        let limits = limits.http2_ping_timeout(Duration::from_secs(8));
        let mut client = Frames::connect(start(limits, service).await).await;
        // `GET /` of `mill` on stream 1.
        client.0.send(b"\0\0\x09\x01\x05\0\0\0\x01\x82\x86\x84\x41\x04mill").await;
        for _ in 0..5 {
            let payload = loop {
                if let (PING, 0, payload) = client.next().await.expect("a ping after each answer") {
                    break payload;
                }
            };
            client.0.send([b"\0\0\x08\x06\x01\0\0\0\0".as_slice(), &payload].concat()).await;
        }
        assert_eq!(dropped.available_permits(), 0);
        // The connection stays open, but the peer sends nothing more.
        let given_up = tokio::time::timeout(HANGS, dropped.acquire()).await.expect("closed in time");
        given_up.unwrap().forget();
        while client.next().await.is_some() {}
    });
}

#[test]
fn an_interval_of_zero_sends_no_pings() {
    on_both(async || {
        let dropped = Arc::new(Semaphore::new(0));
        let limits = Limits::default().http2_ping_interval(Duration::ZERO);
        let mut client = Frames::connect(start(limits, silent(&dropped)).await).await;
        // `GET /` of `mill` on stream 1.
        client.0.send(b"\0\0\x09\x01\x05\0\0\0\x01\x82\x86\x84\x41\x04mill").await;
        let pinged = async { while client.next().await.expect("an open connection").0 != PING {} };
        assert!(tokio::time::timeout(Duration::from_millis(200), pinged).await.is_err(), "a ping");
    });
}

#[test]
fn options_of_hyper_are_set_after_the_limits() {
    on_both(async || {
        let serve = || async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            (addr, serve(listener, tower::service_fn(hello)).limits(Limits::default().http2_streams(7)))
        };
        let (addr, server) = serve().await;
        tokio::spawn(server.into_future());
        assert_eq!(Frames::connect(addr).await.setting(3).await, Some(7));
        assert_eq!(Frames::connect(addr).await.setting(8).await, None);

        let (addr, server) = serve().await;
        let server = server.http1(|http1| _ = http1.title_case_headers(true));
        let server = server.http2(|http2| _ = http2.enable_connect_protocol().max_concurrent_streams(9));
        tokio::spawn(server.into_future());
        assert_eq!(Frames::connect(addr).await.setting(3).await, Some(9));
        assert_eq!(Frames::connect(addr).await.setting(8).await, Some(1), "extended CONNECT");
        assert!(title_case(addr).await);
    });
    watched(|| {
        let cores = Cores::new(1).unwrap();
        let listeners = TcpListener::builder().bind_each("127.0.0.1:0", 1).unwrap();
        let addr = listeners.local_addr();
        let server = serve_cores(&cores, listeners, tower::service_fn(hello));
        let server = server.http1(|http1| _ = http1.title_case_headers(true));
        let _run = server.http2(|http2| _ = http2.max_concurrent_streams(9)).run();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            assert_eq!(Frames::connect(addr).await.setting(3).await, Some(9));
            assert!(title_case(addr).await);
        });
    });
}

async fn title_case(addr: SocketAddr) -> bool {
    let mut client = Raw::connect(addr).await;
    client.send("GET / HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n").await;
    let answer = Bytes::from(client.drain().await);
    String::from_utf8_lossy(&answer).contains("Content-Length: 5")
}
