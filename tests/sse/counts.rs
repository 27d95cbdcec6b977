//! Many event streams on one connection need few calls, and a burst of events wakes each waiting reader once. Counters
//! belong to the process, so the test of calls runs in its own process.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::metrics::Snapshot;
use millstream::sse::{Event, Hub};
use tokio::sync::watch;

use crate::parse::Hand;
use testkit::alone;
use testkit::counted::Counted;
use testkit::http::{Answer, Flavour, boxed, h2, request, start, watched};

const STREAMS: usize = 20;
const EVENTS: usize = 500;
const EVENT: usize = 300;

/// Returns event `n` of stream `id`.
fn event(id: usize, n: usize) -> Bytes {
    let mut text = format!("id: {n}\ndata: stream {id}, ");
    while text.len() < EVENT - 2 {
        text.push(char::from(b'a' + ((id + n + text.len()) % 26) as u8));
    }
    text.push_str("\n\n");
    text.into()
}

/// Serves one connection over tokio's stream.
async fn start_stock<H>(handler: H, calls: Arc<AtomicU64>) -> SocketAddr
where
    H: Fn(Request<()>) -> Ready<Answer> + Send + Sync + 'static,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = handler(request.map(drop));
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let io = TokioIo::new(Counted(stream, calls));
        let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
    });
    addr
}

/// Runs one connection with all streams ticking. Returns the counters; `stock` serves over tokio's stream and counts
/// its calls.
async fn tick(stock: Option<Arc<AtomicU64>>) -> Snapshot {
    let (ticks, ticking) = watch::channel(0);
    let handler = move |request: Request<()>| {
        let id: usize = request.uri().path()[1..].parse().unwrap();
        let frames = stream::unfold((ticking.clone(), 0), move |(mut ticking, n)| async move {
            if n == EVENTS {
                return None;
            }
            ticking.wait_for(|&tick| tick > n).await.unwrap();
            Some((Ok::<_, io::Error>(Frame::data(event(id, n))), (ticking, n + 1)))
        });
        ready(Response::new(boxed(StreamBody::new(Box::pin(frames)))))
    };
    let addr = match stock {
        Some(calls) => start_stock(handler, calls).await,
        None => start(move |request| handler(request.map(drop))).await,
    };
    let mut client = h2(addr).await;
    let mut answers = Vec::new();
    for id in 0..STREAMS {
        answers.push(client.send_request(request(&format!("/{id}"))).await.unwrap());
    }
    let before = Snapshot::now();
    let received = Arc::new(tokio::sync::Semaphore::new(0));
    let mut readers = Vec::new();
    for (id, mut answer) in answers.into_iter().enumerate() {
        let received = Arc::clone(&received);
        readers.push(tokio::spawn(async move {
            let mut got = Vec::new();
            let mut n = 0;
            while let Some(frame) = answer.body_mut().frame().await {
                got.extend_from_slice(&frame.unwrap().into_data().unwrap());
                while got.len() >= EVENT {
                    assert!(got[..EVENT] == event(id, n), "event {n} of stream {id}");
                    got.drain(..EVENT);
                    received.add_permits(1);
                    n += 1;
                }
            }
            assert_eq!((n, got.len()), (EVENTS, 0), "stream {id}");
        }));
    }
    for tick in 1..=EVENTS {
        ticks.send(tick).unwrap();
        // The next tick follows only after every stream has received this one, so no two ticks can share a call.
        received.acquire_many(STREAMS as u32).await.unwrap().forget();
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    for reader in readers {
        reader.await.unwrap();
    }
    Snapshot::now().since(&before)
}

#[test]
fn ten_thousand_events_of_twenty_streams_take_a_thousand_calls() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        for flavour in Flavour::BOTH {
            let counted = flavour.runtime().block_on(tick(None));
            let stock = Arc::new(AtomicU64::new(0));
            flavour.runtime().block_on(tick(Some(Arc::clone(&stock))));
            let stock = stock.load(Ordering::Relaxed);
            println!("{flavour:?}, {} events: {} calls, stock {stock}", STREAMS * EVENTS, counted.writes);
            assert!(counted.writes * 5 <= stock, "stock took {stock}: {counted}");
            assert!(counted.writes <= 2 * EVENTS as u64, "{counted}");
            assert!(counted.bytes_written >= (STREAMS * EVENTS * EVENT) as u64, "{counted}");
        }
    });
}

#[test]
fn a_burst_wakes_each_waiting_reader_once_and_is_one_frame() {
    const READERS: usize = 20;
    const BURSTS: usize = 300;
    const BURST: usize = 50;
    watched(|| {
        for flavour in Flavour::BOTH {
            flavour.runtime().block_on(async {
                // Without ticks, which would wake readers as well.
                let hub = Hub::builder().keep_alive(Duration::ZERO).queue(BURSTS * BURST).build();
                let mut readers: Vec<_> = (0..READERS).map(|_| Hand::new(hub.subscribe_from(None).unwrap())).collect();
                let mut busy = Hand::new(hub.subscribe_from(None).unwrap());
                for burst in 1..=BURSTS {
                    readers.iter_mut().for_each(|reader| assert!(reader.read().is_empty()));
                    for n in 0..BURST {
                        hub.send(Event::new().data(n.to_string())).unwrap();
                    }
                    while readers.iter().any(|reader| reader.woken() < burst) {
                        tokio::task::yield_now().await;
                    }
                    for reader in &mut readers {
                        assert_eq!((reader.data().len(), reader.frames, reader.woken()), (BURST, burst, burst));
                    }
                }
                assert_eq!((busy.woken(), busy.read().len()), (0, BURSTS * BURST), "{flavour:?}");
            });
        }
    });
}
