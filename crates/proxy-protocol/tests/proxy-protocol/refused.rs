//! Connections without a valid header: they are closed, counted and reported, and no other waits for them.

use std::fmt::Debug;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use millstream::metrics::Snapshot;
use testkit::http::{Flavour, Raw, on_both, watched};
use testkit::{HANGS, alone, counted_since};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::made::{kinds, wrong};
use super::*;

const HEADER: &str = "PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n";
const GET: &str = "GET / HTTP/1.1\r\nHost: mill\r\n\r\n";

/// Keeps the reasons that are reported.
#[derive(Clone, Default)]
struct Log(Arc<StdMutex<Vec<String>>>);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "millstream" && *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Reasons(&self.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Reasons<'a>(&'a StdMutex<Vec<String>>);

impl Visit for Reasons<'_> {
    fn record_error(&mut self, _: &Field, error: &(dyn std::error::Error + 'static)) {
        self.0.lock().unwrap().push(error.to_string());
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

#[test]
fn an_invalid_header_ends_the_connection_and_is_counted_and_reported() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let log = Log::default();
            let _reporting = tracing::subscriber::set_default(log.clone());
            let addr = start(|listener| listener).await;
            let before = Snapshot::now();
            let mut refused = 0;
            for (bytes, why) in wrong() {
                let mut raw = Raw::connect(addr).await;
                // The server may close before it has all.
                raw.io.write_all(&bytes).await.ok();
                assert_eq!(raw.drain().await, b"", "{bytes:?}");
                refused += 1;
                let counted = counted_since(&before, |counted| counted.proxy_headers_refused >= refused).await;
                assert_eq!(counted.proxy_headers_refused, refused);
                let reports = std::mem::take(&mut *log.0.lock().unwrap());
                assert!(reports.len() == 1 && reports[0].contains(why), "{why}: {reports:?}");
            }
            // Each header, ended early.
            for (header, _) in kinds() {
                let mut raw = Raw::connect(addr).await;
                raw.send(&header[..header.len() - 1]).await;
                raw.io.shutdown().await.unwrap();
                assert_eq!(raw.drain().await, b"");
                refused += 1;
                counted_since(&before, |counted| counted.proxy_headers_refused >= refused).await;
                let reports = std::mem::take(&mut *log.0.lock().unwrap());
                assert_eq!(reports, ["the peer has closed within the PROXY header"]);
            }
            // Peers that only connect, and a good one, are not counted.
            Raw::connect(addr).await.reset();
            let mut raw = Raw::connect(addr).await;
            raw.io.shutdown().await.unwrap();
            assert_eq!(raw.drain().await, b"");
            let mut raw = Raw::connect(addr).await;
            raw.send([HEADER, GET].concat()).await;
            assert_eq!(raw.head().await.status, 200);
            assert_eq!(Snapshot::now().since(&before).proxy_headers_refused, refused);
            assert_eq!(*log.0.lock().unwrap(), [""; 0]);
        });
    });
}

#[test]
fn others_are_refused_where_that_is_set() {
    if alone::ran_in_child() {
        return;
    }
    on_both(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let listener = ProxyListener::new(listener, "192.0.2.7".parse().unwrap()).refuse_others(true);
        tokio::spawn(serve(listener).into_future());
        let before = Snapshot::now();
        for bytes in [GET.to_owned(), [HEADER, GET].concat(), String::new()] {
            let mut raw = Raw::connect(addr).await;
            raw.io.write_all(bytes.as_bytes()).await.ok();
            assert_eq!(raw.drain().await, b"");
        }
        let counted = counted_since(&before, |counted| counted.proxy_headers_refused >= 3).await;
        assert_eq!((counted.proxy_headers_refused, counted.accepted), (3, 3), "{counted}");
    });
}

#[test]
fn a_header_that_trickles_has_a_time_limit_and_delays_no_other_connection() {
    on_both(|| async {
        let addr = start(|listener| listener.header_time(HANGS)).await;
        let mut slow = Raw::connect(addr).await;
        slow.send(&HEADER[..20]).await;
        let silent = TcpStream::connect(addr).await.unwrap();
        for _ in 0..3 {
            let mut raw = Raw::connect(addr).await;
            raw.send([HEADER, GET].concat()).await;
            assert_eq!(raw.head().await.status, 200);
        }
        slow.send([&HEADER[20..], GET].concat()).await;
        let head = slow.head().await;
        let text = slow.body(head.content_length()).await.unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), of_header(CLIENT, "-"));
        drop(silent);

        let addr = start(|listener| listener.header_time(Duration::from_millis(100))).await;
        for begun in ["", &HEADER[..20]] {
            let mut late = Raw::connect(addr).await;
            late.send(begun).await;
            assert_eq!(timeout(HANGS, late.drain()).await.unwrap(), b"");
        }
    });
}

/// Bytes that keep coming do not extend the time.
#[tokio::test(start_paused = true)]
async fn the_time_is_that_of_the_whole_header() {
    let (connect, listener) = Connect::new();
    let listener = ProxyListener::new(listener, local()).header_time(Duration::from_secs(10));
    let server = tokio::spawn(serve(listener).into_future());
    let mut stream = connect.connect(1 << 10);
    let start = tokio::time::Instant::now();
    let mut sent = 0;
    for byte in HEADER.bytes() {
        if stream.write_all(&[byte]).await.is_err() {
            break;
        }
        sent += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!((10..=11).contains(&sent), "{sent} bytes were taken");
    assert_eq!(stream.read(&mut [0; 9]).await.unwrap_or(0), 0);
    assert!(start.elapsed() < Duration::from_secs(12));
    server.abort();
}

#[test]
fn the_connections_that_wait_are_bounded_and_end_with_the_listener() {
    on_both(|| async {
        let (connect, listener) = Connect::new();
        let server = tokio::spawn(serve(ProxyListener::new(listener, local()).header_time(HANGS)).into_future());
        let mut waiting: Vec<_> = (0..4096).map(|_| connect.connect(1 << 10)).collect();
        // One more is closed if its header is not there, and served if it is.
        let mut further = connect.connect(1 << 10);
        assert_eq!(further.read(&mut [0; 9]).await.unwrap(), 0);
        let (good, accepted) = duplex(1 << 10);
        let mut good = Raw::over(good);
        good.send([HEADER, GET].concat()).await;
        connect.accept(accepted);
        assert_eq!(good.head().await.status, 200);
        // The first one has kept its place.
        let mut first = Raw::over(waiting.remove(0));
        first.send([HEADER, GET].concat()).await;
        assert_eq!(first.head().await.status, 200);
        server.abort();
        for stream in &mut waiting {
            assert_eq!(stream.read(&mut [0; 9]).await.unwrap(), 0);
        }
    });
}
