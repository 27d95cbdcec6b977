//! Readers disconnected at random, on several cores, while threads send: no event lost, repeated or out of order.
//!
//! `MILLSTREAM_HUB_EVENTS` is the number of events, 3000 unless set.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use http_body_util::BodyExt;
use millstream::net::TcpListener;
use millstream::runtime::Cores;
use millstream::server::{Limits, serve_cores};
use millstream::sse::{Event, Hub};
use tokio::runtime::Runtime;

use crate::parse::Parser;
use testkit::HANGS;
use testkit::http::{Flavour, h1, h2, request, watched};

const READERS: u64 = 40;
const SENDERS: u64 = 3;

fn events() -> u64 {
    std::env::var("MILLSTREAM_HUB_EVENTS").ok().and_then(|events| events.parse().ok()).unwrap_or(3000)
}

/// A random number generator with a seed, to repeat a failed test.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Reads all events over as many connections as needed, each sender's in order. Returns their number.
async fn reader(addr: SocketAddr, seed: u64, cuts: Arc<AtomicU64>, all: u64) -> u64 {
    let mut random = Random(seed);
    let mut next = [0; SENDERS as usize];
    // The last id; initially that of an event before the first.
    let mut last = "start".to_owned();
    let mut connections = 0;
    while next.iter().sum::<u64>() < all {
        connections += 1;
        let mut request = request("/");
        request.headers_mut().insert("last-event-id", last.parse().unwrap());
        let mut answer = match seed % 2 {
            0 => h1(addr).await.send_request(request).await.unwrap(),
            _ => h2(addr).await.send_request(request).await.unwrap(),
        };
        assert_eq!(answer.status(), 200);
        let mut parser = Parser::default();
        let frames = 1 + random.below(12);
        for _ in 0..frames {
            let Some(Ok(frame)) = answer.frame().await else { panic!("the server ended a stream") };
            let data = frame.into_data().unwrap();
            // Sometimes disconnects in the middle of an event.
            let read = if random.below(20) == 0 { &data[..data.len() / 2] } else { &data[..] };
            for seen in parser.feed(read) {
                assert_ne!(seen.name, "gap", "{seen:?}");
                last = seen.id;
                if seen.data == "begin" {
                    continue;
                }
                let (sender, n) = seen.data.split_once(' ').unwrap();
                let (sender, n): (usize, u64) = (sender.parse().unwrap(), n.parse().unwrap());
                assert_eq!(n, next[sender], "lost, doubled or out of order, by seed {seed}");
                next[sender] += 1;
            }
            if read.len() < data.len() || next.iter().sum::<u64>() == all {
                break;
            }
        }
        cuts.fetch_add(1, Ordering::Relaxed);
    }
    connections
}

#[test]
fn cut_off_at_random_and_back_nothing_is_lost_and_nothing_comes_twice() {
    watched(|| {
        let all = events() / SENDERS * SENDERS;
        let hub = Hub::builder().replay(all as usize + 1).queue(all as usize + 1).build();
        hub.send(Event::new().id("start").data("begin")).unwrap();
        let cores = Cores::builder().workers(2).pin(false).build().unwrap();
        let listeners = TcpListener::builder().bind_each("127.0.0.1:0", 2).unwrap();
        let addr = listeners.local_addr();
        let service = {
            let hub = hub.clone();
            tower::service_fn(move |request| {
                let answer = hub.subscribe(&request);
                async { Ok::<_, Infallible>(answer) }
            })
        };
        // Forty readers at a time, which may be late on a busy machine.
        let limits = Limits::default().head_time(HANGS).keep_alive(HANGS);
        let serving = serve_cores(&cores, listeners, service).limits(limits).run();
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let hub = hub.clone();
                thread::spawn(move || {
                    for n in 0..all / SENDERS {
                        hub.send(Event::new().data(format!("{sender} {n}"))).unwrap();
                        thread::park_timeout(Duration::from_micros(300));
                    }
                })
            })
            .collect();
        let clients: Runtime = Flavour::TwoWorkers.runtime();
        let cuts = Arc::new(AtomicU64::new(0));
        clients.block_on(async {
            let readers: Vec<_> =
                (0..READERS).map(|n| tokio::spawn(reader(addr, n + 1, Arc::clone(&cuts), all))).collect();
            for reader in readers {
                reader.await.unwrap();
            }
        });
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert!(cuts.load(Ordering::Relaxed) > READERS, "too few readers were disconnected");
        // Until every reader is removed, for each way of disconnecting.
        while hub.stats().subscribers > 0 {
            thread::park_timeout(Duration::from_millis(2));
        }
        let stats = hub.stats();
        assert_eq!((stats.gaps, stats.dropped, stats.refused), (0, 0, 0), "{stats:?}");
        drop(serving);
        drop(cores);
        println!("{} connections, {stats:?}", cuts.load(Ordering::Relaxed));
    });
}
