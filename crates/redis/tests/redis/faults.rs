//! Failures of Redis while streams are open: no event is delivered twice, and no loss is silent.

use std::time::Duration;

use millstream::sse::{Event, EventBody, Hub};
use millstream_redis::Redis;

use crate::server::{Mode, Relay, Server};
use testkit::events::{Got, Reader};
use testkit::http::{Flavour, watched};

/// Long enough for a pending frame to arrive.
const QUIET: Duration = Duration::from_millis(300);
/// Time for a reply of Redis: long enough for one that is not held back, on a busy machine too.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Keeps every confirmed write over a kill.
const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

fn run<R: Future<Output = ()>>(options: &'static [&'static str], test: impl FnOnce(Server) -> R + Send + 'static) {
    watched(move || {
        let Some(server) = Server::start(options) else { return };
        Flavour::TwoWorkers.runtime().block_on(test(server));
    });
}

async fn log(url: &str) -> Redis {
    Redis::builder(url).key("test").timeout(TIMEOUT).connect().await.unwrap()
}

async fn hub(url: &str) -> Hub {
    // The tests read the readers one after the other, so the queues must be large.
    Hub::builder().queue(10_000).log(log(url).await).build()
}

fn reader(hub: &Hub, last: Option<&str>) -> Reader<EventBody> {
    Reader::new(hub.subscribe_from(last).unwrap())
}

fn send(hub: &Hub, data: impl ToString) {
    hub.send(Event::new().data(data.to_string())).unwrap();
}

fn numbers(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|n| n.to_string()).collect()
}

/// Sends one number every 200 µs from `from` until `to` or the end of the test.
fn send_on(hub: &Hub, from: usize, to: usize) -> tokio::task::JoinHandle<()> {
    let hub = hub.clone();
    tokio::spawn(async move {
        for n in from..to {
            send(&hub, n);
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    })
}

fn len(server: &Server) -> i64 {
    match server.command(&["XLEN", "test"]) {
        redis::Value::Int(len) => len,
        other => panic!("{other:?}"),
    }
}

#[test]
fn killed_again_and_again_with_its_log_on_disk() {
    run(DURABLE, async |mut server| {
        let hubs = [hub(&server.url()).await, hub(&server.url()).await];
        let mut readers = hubs.each_ref().map(|hub| reader(hub, None));
        let sending = send_on(&hubs[0], 0, 3000);
        let other = hubs[1].clone();
        let others = tokio::spawn(async move {
            for n in 0..300 {
                other.send(Event::new().event("other").data(n.to_string())).unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        for _ in 0..3 {
            readers[0].next().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            server.kill();
            tokio::time::sleep(Duration::from_millis(50)).await;
            tokio::task::block_in_place(|| server.run());
        }
        let mut orders = Vec::new();
        for reader in &mut readers {
            let mut order: Vec<Got> = Vec::new();
            let mine = |order: &[Got]| order.iter().filter(|got| got.event.is_none()).count();
            while order.len() < 3300 - if orders.is_empty() { 3 } else { 0 } {
                let got = reader.next().await;
                assert!(!got.is_gap(), "{got:?} after {} events", order.len());
                order.push(got);
            }
            assert!(mine(&order) >= 2997);
            assert_eq!(reader.rest(QUIET).await, []);
            orders.push(order);
        }
        assert!(orders[0][..] == orders[1][3..], "two orders");
        let of = |event: Option<&str>| -> Vec<_> {
            orders[1].iter().filter(|got| got.event.as_deref() == event).map(|got| got.data.clone()).collect()
        };
        assert_eq!(of(None), numbers(0, 3000));
        assert_eq!(of(Some("other")), numbers(0, 300));
        sending.await.unwrap();
        others.await.unwrap();
        assert_eq!(len(&server), 3300, "entries are in the log twice");
    });
}

#[test]
fn killed_without_its_log_on_disk() {
    run(&[], async |mut server| {
        let log = log(&server.url()).await;
        let hub = Hub::builder().log(log.clone()).build();
        let mut live = reader(&hub, None);
        (0..10).for_each(|n| send(&hub, n));
        assert_eq!(live.data(10).await, numbers(0, 10));
        server.kill();
        server.run();
        let gap = live.next().await;
        assert!(gap.is_gap() && gap.data.contains("lost"), "{gap:?}");
        (10..20).for_each(|n| send(&hub, n));
        assert_eq!(live.data(10).await, numbers(10, 20));
        assert_eq!(log.state().gaps, 1, "{:?}", log.state());
        assert_eq!(live.rest(QUIET).await, []);

        // A later reader also receives a gap, from a hub without the old events.
        let before = live.last.clone().unwrap();
        server.kill();
        server.run();
        let fresh = self::hub(&server.url()).await;
        let mut later = reader(&fresh, Some(&before));
        send(&fresh, 20);
        assert!(later.next().await.is_gap());
        assert_eq!(later.data(1).await, ["20"]);
    });
}

#[test]
fn emptied_while_it_runs() {
    for command in [&["FLUSHALL"][..], &["DEL", "test"], &["XTRIM", "test", "MAXLEN", "0"]] {
        run(&[], async move |server| {
            let hub = hub(&server.url()).await;
            let mut live = reader(&hub, None);
            (0..10).for_each(|n| send(&hub, n));
            live.data(10).await;
            server.command(command);
            (10..20).for_each(|n| send(&hub, n));
            let gap = live.next().await;
            assert!(gap.is_gap() && gap.data.contains("lost"), "{command:?}: {gap:?}");
            assert_eq!(live.data(10).await, numbers(10, 20));
            assert_eq!(live.rest(QUIET).await, []);
        });
    }
}

#[test]
fn an_append_whose_outcome_is_unknown_is_there_once() {
    for mode in [Mode::CutAfter, Mode::CutBefore] {
        run(&[], async move |server| {
            let relay = Relay::start(&server).await;
            let log = log(&relay.url()).await;
            let hub = Hub::builder().log(log.clone()).build();
            let other = self::hub(&server.url()).await;
            let mut readers = [reader(&hub, None), reader(&other, None)];
            for turn in 0..10 {
                relay.set(mode);
                (10 * turn..10 * turn + 10).for_each(|n| send(&hub, n));
                relay.becomes(Mode::Pass).await;
                log.flush().await;
                // An entry of another writer, which the search skips.
                send(&other, "x");
                for reader in &mut readers {
                    let mut mine = Vec::new();
                    while mine.len() < 10 {
                        mine.extend(reader.data(1).await.into_iter().filter(|data| data != "x"));
                    }
                    assert_eq!(mine, numbers(10 * turn, 10 * turn + 10), "{mode:?}");
                }
            }
            for reader in &mut readers {
                assert!(reader.rest(QUIET).await.iter().all(|got| got.data == "x"));
            }
            assert_eq!(len(&server), 110, "{mode:?}");
            let state = log.state();
            assert_eq!((state.appended, state.doubles, state.gaps), (100, 0, 0), "{mode:?}: {state:?}");
        });
    }
}

/// An append stays in transit beyond its timeout: it must not take effect after it was sent again.
#[test]
fn an_append_that_comes_late_is_there_once() {
    run(&[], async |server| {
        let relay = Relay::start(&server).await;
        let log = Redis::builder(relay.url()).key("test").timeout(TIMEOUT).connect().await.unwrap();
        let hub = Hub::builder().log(log.clone()).build();
        let mut reader = reader(&hub, None);
        for turn in 0..3 {
            relay.set(Mode::Keep);
            (10 * turn..10 * turn + 10).for_each(|n| send(&hub, n));
            relay.becomes(Mode::Kept).await;
            log.flush().await;
            relay.set(Mode::Pass);
            assert_eq!(reader.data(10).await, numbers(10 * turn, 10 * turn + 10));
        }
        assert_eq!(reader.rest(QUIET).await, []);
        assert_eq!(len(&server), 30, "the late append took effect");
        assert_eq!((log.state().doubles, log.state().gaps), (0, 0));
    });
}

/// The old connection's append stays in a buffer of Redis beyond the timeout: it must not take effect later.
#[test]
fn an_append_that_redis_has_not_read_yet_is_there_once() {
    run(&[], async |server| {
        let log = Redis::builder(server.url()).key("test").timeout(TIMEOUT).connect().await.unwrap();
        let hub = Hub::builder().log(log.clone()).build();
        let mut reader = reader(&hub, None);
        for turn in 0..3 {
            send(&hub, turn * 100);
            log.flush().await;
            server.freeze();
            (1..100).for_each(|n| send(&hub, turn * 100 + n));
            while log.state().connected {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            server.wake();
            log.flush().await;
            assert_eq!(reader.data(100).await, numbers(turn * 100, turn * 100 + 100));
        }
        assert_eq!(len(&server), 300);
        assert_eq!(log.state().doubles, 0);
    });
}

/// Models a failover to a replica without the last entries, or a program that deletes entries.
#[test]
fn entries_that_are_missing_in_between_are_told() {
    run(&[], async |server| {
        let relay = Relay::start(&server).await;
        let (fast, slow) = (hub(&server.url()).await, hub(&relay.url()).await);
        let (mut live, mut late) = (reader(&fast, None), reader(&slow, None));
        send(&fast, 0);
        let first = (live.next().await, late.next().await).0.id.unwrap();
        relay.set(Mode::HoldAnswers);
        // This event answers the read that is already pending.
        send(&fast, 1);
        let mut ids = vec![live.next().await.id.unwrap()];
        for n in 2..10 {
            send(&fast, n);
            ids.push(live.next().await.id.unwrap());
        }
        for lost in [5, 6] {
            server.command(&["XDEL", "test", &ids[lost - 1]]);
        }
        relay.set(Mode::Pass);
        assert_eq!(late.data(4).await, numbers(1, 5));
        let gap = late.next().await;
        assert!(gap.is_gap() && gap.data == r#"{"reason":"lost","missed":2}"#, "{gap:?}");
        assert_eq!(late.data(3).await, numbers(7, 10));

        // The reader needs the missing entries from the log, and the hub has not seen them.
        let fresh = hub(&server.url()).await;
        let mut replayed = reader(&fresh, Some(&first));
        assert_eq!(replayed.data(4).await, numbers(1, 5));
        let gap = replayed.next().await;
        assert!(gap.is_gap() && gap.data.contains("\"missed\":2"), "{gap:?}");
        assert_eq!(replayed.data(3).await, numbers(7, 10));
        // The reader's last event is itself missing.
        let mut gone = reader(&fresh, Some(&ids[4]));
        assert!(gone.next().await.is_gap());
        assert_eq!(gone.data(3).await, numbers(7, 10));
    });
}

#[test]
fn entries_that_are_there_twice_are_delivered_once() {
    run(&[], async |server| {
        let log = log(&server.url()).await;
        let hub = Hub::builder().log(log.clone()).build();
        let mut live = reader(&hub, Some("0-0"));
        let add = |number: &str| {
            server.command(&["XADD", "test", "*", "writer", "00000000000000ab", "number", number, "data", number]);
        };
        ["1", "2", "3", "2", "3", "4", "4", "5"].into_iter().for_each(add);
        assert_eq!(live.data(5).await, numbers(1, 6));
        assert_eq!(live.rest(QUIET).await, []);
        assert_eq!((log.state().doubles, log.state().gaps), (3, 0));
        let fresh = self::hub(&server.url()).await;
        let mut replayed = reader(&fresh, Some("0-0"));
        assert_eq!(replayed.data(5).await, numbers(1, 6));
        assert_eq!(replayed.rest(QUIET).await, []);
    });
}

#[test]
fn streams_stay_open_while_redis_is_away() {
    run(DURABLE, async |mut server| {
        let first = hub(&server.url()).await;
        let mut before = reader(&first, None);
        (0..3).for_each(|n| send(&first, n));
        let oldest = before.next().await.id.unwrap();
        before.data(2).await;

        let log = log(&server.url()).await;
        let hub = Hub::builder().log(log.clone()).keep_alive(Duration::from_millis(100)).build();
        let mut live = reader(&hub, before.last.as_deref());
        // After the first query a hub knows the start of its ring, and waits for further events.
        let waiting = || redis::from_redis_value::<String>(server.command(&["INFO", "clients"])).unwrap();
        while !waiting().contains("blocked_clients:2") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(live.rest(QUIET).await, []);
        server.kill();
        while log.state().connected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The watchdog ends a test without keep-alive.
        let comments = live.comments;
        while live.comments < comments + 2 {
            assert_eq!(live.rest(QUIET).await, []);
        }
        // The log alone has the events that this reader needs.
        let mut back = reader(&hub, Some(&oldest));
        let gap = back.next().await;
        assert!(gap.is_gap() && gap.data.contains("unreachable"), "{gap:?}");
        (3..6).for_each(|n| send(&hub, n));
        assert_eq!(log.state().queued, 3);
        server.run();
        for reader in [&mut live, &mut back, &mut before] {
            assert_eq!(reader.data(3).await, numbers(3, 6));
        }
        log.flush().await;
        while !log.state().connected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(log.state().reconnects > 0 && log.state().error.is_none(), "{:?}", log.state());
        assert_eq!(reader(&hub, Some(&oldest)).data(5).await, numbers(1, 6));
    });
}
