//! Readers move between two instances of a service over HTTP while events arrive; none loses or doubles an event.
//!
//! The default is 100 readers and 5 moves. `MILLSTREAM_RESUME=1000x20 cargo test --release -p millstream-redis --test
//! redis resume -- --nocapture` runs 1000 readers and 20 moves. The test prints its counts.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::{Request, StatusCode, client::conn::http1};
use hyper_util::rt::TokioIo;
use millstream::sse::{Event, Hub, LagPolicy};
use millstream_redis::Redis;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::server::Server;
use testkit::events::Reader;
use testkit::http::{Flavour, boxed, start};

/// Small, so that a reader that pauses needs the log.
const RING: usize = 100;

fn scale() -> (usize, usize) {
    let Ok(scale) = std::env::var("MILLSTREAM_RESUME") else { return (100, 5) };
    let parsed = scale.split_once('x').and_then(|(readers, moves)| Some((readers.parse().ok()?, moves.parse().ok()?)));
    parsed.expect("MILLSTREAM_RESUME=READERSxMOVES")
}

async fn instance(url: &str) -> (Hub, SocketAddr) {
    let log = Redis::builder(url).key("test").max_len(100_000).connect().await.unwrap();
    let hub = Hub::builder().log(log).replay(RING).queue(RING).lag_policy(LagPolicy::Disconnect).build();
    let served = hub.clone();
    let addr = start(move |request| {
        let answer = served.subscribe(&request).map(boxed);
        async { answer }
    });
    (hub, addr.await)
}

/// Opens a stream after the event `last`; returns it and the task of its connection.
async fn connect(to: SocketAddr, last: &str) -> (Reader<Incoming>, tokio::task::JoinHandle<()>) {
    let io = TokioIo::new(TcpStream::connect(to).await.unwrap());
    let (mut sender, connection) = http1::handshake(io).await.unwrap();
    let driver = tokio::spawn(async { drop(connection.await) });
    let request = Request::get("/").header("host", "mill").header("last-event-id", last);
    let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    (Reader::new(answer.into_body()), driver)
}

#[derive(Debug, Default)]
struct Count {
    events: usize,
    lost: usize,
    doubled: usize,
    out_of_order: usize,
    gaps: usize,
    connections: usize,
}

impl Count {
    fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.out_of_order += other.out_of_order;
        self.gaps += other.gaps;
        self.connections += other.connections;
    }
}

/// Reads from the first event on, with `moves` moves between the instances.
async fn read(number: usize, addrs: [SocketAddr; 2], moves: usize) -> Count {
    let mut random = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut up_to = |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % n
    };
    let (mut count, mut last, mut next, mut had) = (Count::default(), "0-0".to_owned(), 0, HashSet::new());
    for turn in 0..=moves {
        let mut wanted = 5 + up_to(30) as usize;
        while wanted > 0 {
            let (mut reader, driver) = connect(addrs[(number + turn) % 2], &last).await;
            count.connections += 1;
            // The hub ends the stream of a slow reader, which then reconnects.
            while wanted > 0
                && let Some(got) = timeout(Duration::from_secs(60), reader.try_next()).await.expect("an event in time")
            {
                wanted -= 1;
                if got.is_gap() {
                    count.gaps += 1;
                    continue;
                }
                let n: usize = got.data.parse().unwrap();
                count.events += 1;
                match n {
                    n if !had.insert(n) => count.doubled += 1,
                    n if n < next => count.out_of_order += 1,
                    n => {
                        count.lost += n - next;
                        next = n + 1;
                    }
                }
            }
            last = reader.last.take().unwrap_or(last);
            driver.abort();
        }
        // Some readers return at once, others after the ring has dropped their position.
        if up_to(3) == 0 {
            sleep(Duration::from_millis(up_to(1200))).await;
        }
    }
    count
}

#[test]
fn no_reader_loses_or_doubles_events() {
    let (readers, moves) = scale();
    let Some(server) = Server::start(&[]) else { return };
    let limit = Duration::from_secs(60 + (readers * moves / 20) as u64);
    Flavour::TwoWorkers.runtime().block_on(async move {
        let (a, b) = (instance(&server.url()).await, instance(&server.url()).await);
        let sent = Arc::new(AtomicUsize::new(0));
        let sending = tokio::spawn({
            let (hubs, sent) = ([a.0, b.0], Arc::clone(&sent));
            let pause = Duration::from_millis(if readers > 200 { 20 } else { 5 });
            async move {
                // The hubs alternate, so that the log has two writers; the numbers follow the order of the log.
                let mut body = Reader::new(hubs[0].subscribe_from(None).unwrap());
                for n in 0.. {
                    hubs[n % 2].send(Event::new().data(n.to_string())).unwrap();
                    body.next().await;
                    sent.store(n + 1, Ordering::Relaxed);
                    sleep(pause).await;
                }
            }
        });
        let began = Instant::now();
        let mut reading = JoinSet::new();
        (0..readers).for_each(|number| drop(reading.spawn(read(number, [a.1, b.1], moves))));
        let mut all = Count::default();
        let counting = async {
            while let Some(count) = reading.join_next().await {
                all.add(&count.unwrap());
            }
        };
        timeout(limit, counting).await.expect("all readers finish");
        sending.abort();
        println!(
            "{readers} readers moved {moves} times in {:.1} s: {} events sent, {} received by {} connections; \
             lost {}, doubled {}, out of order {}, gaps {}",
            began.elapsed().as_secs_f64(),
            sent.load(Ordering::Relaxed),
            all.events,
            all.connections,
            all.lost,
            all.doubled,
            all.out_of_order,
            all.gaps,
        );
        assert_eq!((all.lost, all.doubled, all.out_of_order, all.gaps), (0, 0, 0, 0));
        assert!(all.connections > readers * moves && all.events >= readers * (moves + 1) * 5);
    });
}
