//! Readers that are far behind: completeness, memory, and hostile replies of Redis.
//!
//! The default is 40 readers, 300 events of 50 KB behind. `MILLSTREAM_REPLAY=200x10000 cargo test --release -p
//! millstream-redis --test redis replay -- --nocapture` has 200 readers 10 000 events behind, for which Redis uses 500 MB. The
//! test prints its measurements.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use millstream::metrics::Snapshot;
use millstream::sse::{Event, EventBody, Hub};
use millstream_redis::{Redis, RedisError};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::fake::{FakeRedis, Say};
use crate::server::{Mode, Relay, Server};
use testkit::alone;
use testkit::events::Reader;
use testkit::http::{Flavour, watched};
use testkit::report::report;

/// Timeout that only a hang reaches.
const LONG: Duration = Duration::from_secs(60);
const EVENT: usize = 50_000;
/// Maximum number of bytes in the pages of all readers together, besides one event per reader.
const PAGES: usize = 32 << 20;

fn scale() -> (usize, usize) {
    let Ok(scale) = std::env::var("MILLSTREAM_REPLAY") else { return (40, 300) };
    let parsed =
        scale.split_once('x').and_then(|(readers, events)| Some((readers.parse().ok()?, events.parse().ok()?)));
    parsed.expect("MILLSTREAM_REPLAY=READERSxEVENTS")
}

/// Appends entries of these sizes, numbered from 0.
fn fill(server: &Server, sizes: impl Iterator<Item = usize>) {
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    for (n, size) in sizes.enumerate() {
        let mut add = redis::cmd("XADD");
        add.arg("test").arg("*").arg("data").arg(format!("{n} {}", "x".repeat(size)));
        add.exec(&mut connection).unwrap();
    }
}

async fn log(url: &str) -> Redis {
    Redis::builder(url).key("test").connect().await.unwrap()
}

fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
}

fn queued() -> usize {
    Snapshot::now().queued_bytes as usize
}

/// Returns the number of the next event, or `None` for a gap. Replayed events are not merged.
async fn number(body: &mut EventBody) -> Option<usize> {
    loop {
        let frame = timeout(LONG, body.frame()).await.expect("a frame in time").expect("the stream continues").unwrap();
        let frame = frame.into_data().unwrap();
        if frame.starts_with(b":") {
            continue;
        }
        let text = std::str::from_utf8(&frame[..frame.len().min(40)]).unwrap();
        return text.strip_prefix("data: ")?.split(' ').next()?.parse().ok();
    }
}

#[test]
fn readers_that_are_far_behind_get_everything_and_hold_little() {
    if alone::ran_in_child() {
        return;
    }
    let (readers, events) = scale();
    let Some(server) = Server::start(&[]) else { return };
    fill(&server, std::iter::repeat_n(EVENT, events));
    Flavour::TwoWorkers.runtime().block_on(async move {
        let log = log(&server.url()).await;
        let hub = Hub::builder().log(log.clone()).build();
        let (queued_before, before, began) = (queued(), resident(), Instant::now());
        let barrier = Arc::new(Barrier::new(readers + 1));
        let mut reading = JoinSet::new();
        for _ in 0..readers {
            let (mut body, barrier) = (hub.subscribe_from(Some("0-0")).unwrap(), Arc::clone(&barrier));
            reading.spawn(async move {
                // Reads the first part, then the rest when all readers are in the middle of a page.
                let mut missed = false;
                for part in [0..events / 10, events / 10..events] {
                    for n in part {
                        missed = missed || number(&mut body).await != Some(n);
                    }
                    barrier.wait().await;
                    barrier.wait().await;
                }
                missed
            });
        }
        timeout(LONG + LONG * readers as u32 / 40, barrier.wait()).await.expect("all readers in time");
        let (held, stalled) = (queued() - queued_before, resident().saturating_sub(before));
        // The connections of the live reader, of this query, and of pages.
        let clients: String = redis::from_redis_value(server.command(&["CLIENT", "LIST"])).unwrap();
        // One or two closed connections may still be listed.
        assert!(clients.lines().count() <= 8, "{clients}");
        barrier.wait().await;
        let mut most = 0;
        let sampling = async {
            loop {
                most = most.max(resident().saturating_sub(before));
                sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            _ = barrier.wait() => {}
            () = sampling => {}
        }
        barrier.wait().await;
        let gaps = reading.join_all().await.into_iter().filter(|&missed| missed).count();
        let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        println!(
            "{readers} readers, {events} events of {EVENT} B each in {:.1} s: gaps {gaps}; while all stall {:.1} MiB \
             of pages and {:.1} MiB resident, then {:.1} MiB resident at most; {:?}",
            began.elapsed().as_secs_f64(),
            mib(held),
            mib(stalled),
            mib(most),
            log.state(),
        );
        assert_eq!((gaps, log.state().reconnects, hub.stats().gaps), (0, 0, 0));
        assert!(held > readers * EVENT / 4 && held <= PAGES + readers * (EVENT + 1000), "{held}");
        // Besides the pages: bytes in transit, the ring of the hub, and memory that the allocator keeps.
        let bound = PAGES + readers * EVENT + (128 << 20);
        assert!(stalled.max(most) <= bound, "{stalled} or {most} of {bound}");
        assert!(queued() <= queued_before, "delivered bytes are freed");
    });
}

/// Small events make pages of many entries, into which large events do not fit.
#[test]
fn events_of_all_sizes_come_by_replay_and_live() {
    watched(|| {
        let Some(server) = Server::start(&[]) else { return };
        let sizes = [[100; 300].as_slice(), &[3 << 20; 3], &[100; 200], &[300_000; 5], &[8 << 20], &[100; 50]].concat();
        fill(&server, sizes.iter().copied());
        Flavour::TwoWorkers.runtime().block_on(async move {
            let log = log(&server.url()).await;
            let hub = Hub::builder().queue(10_000).replay_bytes(256 << 20).log(log.clone()).build();
            let mut replayed = hub.subscribe_from(Some("0-0")).unwrap();
            for n in 0..sizes.len() {
                assert_eq!(number(&mut replayed).await, Some(n));
            }
            let mut live = Reader::new(hub.subscribe_from(None).unwrap());
            let sender = hub.clone();
            let sent = sizes.clone();
            let sending = tokio::spawn(async move {
                for (n, size) in sent.into_iter().enumerate() {
                    let event = Event::new().data(format!("{n} {}", "y".repeat(size)));
                    while let Err(e) = sender.send(event.clone()) {
                        assert!(matches!(e, millstream::sse::SendError::Full), "{e}");
                        sleep(Duration::from_millis(5)).await;
                    }
                }
            });
            for (n, size) in sizes.iter().enumerate() {
                let got = live.next().await;
                assert!(got.data.starts_with(&format!("{n} ")) && got.data.len() > *size, "{n}: {}", got.data.len());
            }
            sending.await.unwrap();
            let state = log.state();
            assert_eq!((state.gaps, state.doubles, state.reconnects), (0, 0, 0), "{state:?}");
            let too_long = hub.send(Event::new().data("x".repeat(16 << 20))).unwrap_err();
            assert!(report(&too_long).contains("16 MiB"), "{too_long}");
        });
    });
}

/// A reader that reconnects while Redis restarts receives no false gap.
#[test]
fn a_redis_that_is_back_in_time_is_waited_for() {
    watched(|| {
        let Some(mut server) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
        fill(&server, std::iter::repeat_n(10, 300));
        Flavour::TwoWorkers.runtime().block_on(async move {
            let log = Redis::builder(server.url()).key("test").timeout(LONG).connect().await.unwrap();
            let hub = Hub::builder().log(log.clone()).build();
            let mut early = hub.subscribe_from(Some("0-0")).unwrap();
            assert_eq!(number(&mut early).await, Some(0));
            server.kill();
            while log.state().connected {
                sleep(Duration::from_millis(5)).await;
            }
            let mut bodies: Vec<_> = (0..10).map(|_| hub.subscribe_from(Some("0-0")).unwrap()).collect();
            for body in &mut bodies {
                assert!(timeout(Duration::from_millis(30), number(body)).await.is_err(), "reported too early");
            }
            tokio::task::block_in_place(|| server.run());
            for body in &mut bodies {
                for n in 0..300 {
                    assert_eq!(number(body).await, Some(n));
                }
            }
            for n in 1..300 {
                assert_eq!(number(&mut early).await, Some(n));
            }
        });
    });
}

#[test]
fn readers_that_are_not_polled_keep_nobody_waiting() {
    watched(|| {
        let Some(server) = Server::start(&[]) else { return };
        fill(&server, std::iter::repeat_n(10, 300));
        Flavour::TwoWorkers.runtime().block_on(async move {
            let relay = Relay::start(&server).await;
            let hub = Hub::builder().log(log(&relay.url()).await).build();
            assert_eq!(number(&mut hub.subscribe_from(Some("0-0")).unwrap()).await, Some(0));
            relay.set(Mode::HoldAnswers);
            // As many as have requests at a time, and as many that wait for their turn.
            let mut bodies: Vec<_> = (0..8).map(|_| hub.subscribe_from(Some("0-0")).unwrap()).collect();
            for body in &mut bodies {
                assert!(timeout(Duration::from_millis(50), number(body)).await.is_err(), "nothing is answered");
            }
            relay.set(Mode::Pass);
            assert_eq!(number(&mut hub.subscribe_from(Some("0-0")).unwrap()).await, Some(0));
            for body in &mut bodies {
                assert_eq!(number(body).await, Some(0));
            }
        });
    });
}

#[test]
fn connections_that_were_cut_while_they_were_idle_are_made_anew() {
    watched(|| {
        let Some(server) = Server::start(&[]) else { return };
        fill(&server, std::iter::repeat_n(10, 300));
        Flavour::TwoWorkers.runtime().block_on(async move {
            let log = log(&server.url()).await;
            let hub = Hub::builder().log(log).build();
            for _ in 0..3 {
                let mut bodies: Vec<_> = (0..10).map(|_| hub.subscribe_from(Some("0-0")).unwrap()).collect();
                for n in 0..300 {
                    for body in &mut bodies {
                        assert_eq!(number(body).await, Some(n));
                    }
                }
                server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
            }
        });
    });
}

/// Answers commands named `name` with `say`, and others as usual.
fn only(name: &'static str, say: Say) -> impl Fn(&[String]) -> Option<Say> + Clone + Send + 'static {
    move |command| (command[0] == name).then(|| say.clone())
}

/// An entry whose text has a declared length of 10 GB.
const ENDLESS: &[u8] = b"*1\r\n*2\r\n$3\r\n5-0\r\n*2\r\n$4\r\ndata\r\n$10000000000\r\n";
/// More than the kernel holds of a reply on both sides: the maxima of `tcp_rmem` and `tcp_wmem` are 36 MiB together.
const SOCKETS: usize = 48 << 20;
const REPLY_MAX: usize = 64 << 20;

#[test]
fn a_reply_that_is_too_long_is_refused() {
    for by in ["XREVRANGE", "INFO", "XRANGE"] {
        watched(move || {
            Flavour::TwoWorkers.runtime().block_on(async move {
                let fake = FakeRedis::start(only(by, Say::Flood(ENDLESS, 300 << 20))).await;
                let connected = Redis::builder(fake.url()).key("test").connect().await;
                if by == "XRANGE" {
                    // Only a live reader receives this reply.
                    let log = connected.unwrap();
                    let hub = Hub::builder().log(log.clone()).build();
                    let refused = async {
                        loop {
                            if let Some(error) = log.state().error {
                                return error;
                            }
                            sleep(Duration::from_millis(5)).await;
                        }
                    };
                    let error = timeout(LONG, refused).await.expect("the reply is refused");
                    assert!(error.contains("refused") && error.contains("16 MiB"), "{error}");
                    drop(hub);
                } else {
                    let error = connected.unwrap_err();
                    assert!(report(&error).contains("was refused: no event"), "{by}: {error}");
                }
                let most = if by == "INFO" { 1 << 20 } else { REPLY_MAX };
                assert!(fake.flooded() <= most + SOCKETS, "{by}: {} bytes were taken", fake.flooded());
            });
        });
    }
}

#[test]
fn a_node_of_a_cluster_is_named() {
    let moved = ["-MOVED 866 10.0.0.9:6379\r\n", "-ASK 866 10.0.0.9:6379\r\n", "-CLUSTERDOWN Hash slot not served\r\n"];
    for answer in moved {
        watched(move || {
            Flavour::CurrentThread.runtime().block_on(async move {
                let fake = FakeRedis::start(only("XREVRANGE", Say::This(answer.as_bytes()))).await;
                let error = Redis::builder(fake.url()).key("test").connect().await.unwrap_err();
                assert!(matches!(error, RedisError::Cluster { .. }), "{error:?}");
                let text = error.to_string();
                assert!(text.contains("Redis Cluster is not supported") && text.contains(&fake.url()[8..20]), "{text}");

                // The slot moves later.
                let fake = FakeRedis::start(only("XRANGE", Say::This(answer.as_bytes()))).await;
                let log = log(&fake.url()).await;
                let _hub = Hub::builder().log(log.clone()).build();
                while log.state().error.is_none() {
                    sleep(Duration::from_millis(5)).await;
                }
                let error = log.state().error.unwrap();
                assert!(error.contains("Redis Cluster is not supported"), "{error}");
            });
        });
    }
}

#[test]
fn what_tls_needs_is_named() {
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let error = Redis::builder("rediss://user:secret@127.0.0.1/").connect().await.unwrap_err();
            let text = error.to_string();
            assert!(text.contains("tokio-rustls-comp") && text.contains("rediss://"), "{text}");
            assert!(!text.contains("secret"), "{text}");
        });
    });
}
