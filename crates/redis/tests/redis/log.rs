//! A Redis log: one order for all hubs, readers that move between hubs, and an unreachable Redis. Each test starts its
//! own redis-server.

use std::time::Duration;

use millstream::sse::{Event, EventBody, Hub, SendError};
use millstream_redis::{Redis, RedisError};

use crate::server::{Mode, Relay, Server};
use testkit::events::Reader;
use testkit::http::{Flavour, watched};

/// Long enough for a pending frame to arrive.
const QUIET: Duration = Duration::from_millis(300);

fn run<R: Future<Output = ()>>(test: impl FnOnce(Server) -> R + Send + 'static, options: &'static [&'static str]) {
    watched(move || {
        let Some(server) = Server::start(options) else { return };
        Flavour::TwoWorkers.runtime().block_on(test(server));
    });
}

async fn log(url: &str) -> Redis {
    Redis::builder(url).key("test").connect().await.unwrap()
}

async fn hub(url: &str) -> Hub {
    Hub::builder().log(log(url).await).build()
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

#[test]
fn two_hubs_have_one_order() {
    run(
        async |server| {
            let hubs = [hub(&server.url()).await, hub(&server.url()).await];
            let mut readers = hubs.each_ref().map(|hub| reader(hub, None));
            let senders = hubs.clone().into_iter().enumerate().map(|(of, hub)| {
                tokio::spawn(async move {
                    for n in 0..500 {
                        send(&hub, format!("{of} {n}"));
                        if n % 50 == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                })
            });
            for sender in senders.collect::<Vec<_>>() {
                sender.await.unwrap();
            }
            let mut orders = Vec::new();
            for reader in &mut readers {
                let mut order = Vec::new();
                for _ in 0..1000 {
                    let got = reader.next().await;
                    order.push((got.id.unwrap(), got.data));
                }
                assert_eq!(reader.rest(QUIET).await, []);
                orders.push(order);
            }
            assert!(orders[0] == orders[1], "two orders");
            for of in ["0 ", "1 "] {
                let of_one = orders[0].iter().filter_map(|(_, data)| data.strip_prefix(of)?.parse::<usize>().ok());
                assert!(of_one.eq(0..500), "the order of a sender is kept");
            }
        },
        &[],
    );
}

#[test]
fn parts_of_an_event_arrive() {
    run(
        async |server| {
            let (a, b) = (hub(&server.url()).await, hub(&server.url()).await);
            let mut bodies = [a.subscribe_from(None).unwrap(), b.subscribe_from(None).unwrap()];
            let event = Event::new().event("token").data("a\nb").retry(Duration::from_secs(2)).comment("c");
            assert_eq!(a.send(event).unwrap().id(), None);
            assert!(matches!(a.send(Event::new().id("mine")), Err(SendError::IdNotOurs)));
            for body in &mut bodies {
                let frame = http_body_util::BodyExt::frame(body).await.unwrap().unwrap().into_data().unwrap();
                let text = String::from_utf8(frame.to_vec()).unwrap();
                let (rest, id) = text.rsplit_once("id: ").unwrap();
                assert_eq!(rest, ": c\nevent: token\ndata: a\ndata: b\nretry: 2000\n");
                assert!(id.trim_end().split('-').all(|number| number.parse::<u64>().is_ok()), "{id}");
            }
        },
        &[],
    );
}

#[test]
fn a_reader_moves_between_hubs() {
    run(
        async |server| {
            let hubs = [hub(&server.url()).await, hub(&server.url()).await];
            let sender = hubs[0].clone();
            tokio::spawn(async move {
                for n in 0..2000 {
                    send(&sender, n);
                    tokio::time::sleep(Duration::from_micros(200)).await;
                }
            });
            let (mut last, mut all) = (Some("0-0".to_owned()), Vec::new());
            for turn in 0..40 {
                let mut reader = reader(&hubs[turn % 2], last.as_deref());
                all.extend(reader.data(50).await);
                last = reader.last;
            }
            assert_eq!(all, numbers(0, 2000));
        },
        &[],
    );
}

/// The reader has received events that the new hub has not.
#[test]
fn a_reader_may_be_ahead_of_a_hub() {
    run(
        async |server| {
            let relay = Relay::start(&server).await;
            let (fast, slow) = (hub(&server.url()).await, hub(&relay.url()).await);
            let mut before = reader(&slow, None);
            send(&fast, 0);
            before.data(1).await;
            let mut moved = reader(&fast, Some("0-0"));
            relay.set(Mode::HoldAnswers);
            for n in 1..10 {
                send(&fast, n);
            }
            assert_eq!(moved.data(8).await, numbers(0, 8));
            // The log answers the query late, together with the events.
            let mut moved = reader(&slow, moved.last.as_deref());
            let early = moved.rest(QUIET).await.len();
            relay.set(Mode::Pass);
            assert_eq!(moved.data(2 - early).await, numbers(8 + early, 10));
            assert_eq!(before.data(9).await, numbers(1, 10));
            send(&slow, 10);
            assert_eq!(moved.data(1).await, ["10"]);
        },
        &[],
    );
}

#[test]
fn what_is_no_id_is_told_as_a_gap() {
    run(
        async |server| {
            let first = hub(&server.url()).await;
            let mut all = reader(&first, None);
            (0..300).for_each(|n| send(&first, n));
            let mut ids = Vec::new();
            for _ in 0..300 {
                ids.push(all.next().await.id.unwrap());
            }
            let late = hub(&server.url()).await;
            for bad in ["7", "a-b", "1-01", &format!("{}-9", ids[3])] {
                let gap = reader(&late, Some(bad)).next().await;
                assert!(gap.is_gap() && gap.data.contains("expired"), "{bad}: {gap:?}");
            }
            // A well-formed id that is not in the log: the reader gets all entries.
            let mut unknown = reader(&late, Some("5-5"));
            assert!(unknown.next().await.is_gap());
            assert_eq!(unknown.data(300).await, numbers(0, 300));
            assert_eq!(reader(&late, Some("0-0")).data(300).await, numbers(0, 300), "more than one page");
            for behind in [0, 126, 127, 128, 129, 298] {
                let mut reader = reader(&late, Some(&ids[behind]));
                assert_eq!(reader.data(299 - behind).await, numbers(behind + 1, 300), "behind {behind}");
            }
            let mut end = reader(&late, Some(&ids[299]));
            send(&late, 300);
            assert_eq!(end.data(1).await, ["300"]);
        },
        &[],
    );
}

#[test]
fn what_was_trimmed_is_told_as_a_gap() {
    run(
        async |server| {
            let log = Redis::builder(server.url()).key("test").max_len(150).connect().await.unwrap();
            let first = Hub::builder().log(log).build();
            let mut all = reader(&first, None);
            let mut ids = Vec::new();
            for n in 0..1000 {
                // One at a time, so that this hub has each event before it is trimmed.
                send(&first, n);
                ids.push(all.next().await.id);
            }
            let late = hub(&server.url()).await;
            for last in [ids[0].as_deref(), Some("0-0")] {
                let mut reader = reader(&late, last);
                let gap = reader.next().await;
                assert!(gap.is_gap() && gap.data.contains("expired"), "{gap:?}");
                let kept = reader.until("999").await;
                assert!((150..400).contains(&kept.len()), "{} were kept", kept.len());
                let data: Vec<_> = kept.into_iter().map(|got| got.data).collect();
                assert_eq!(data, numbers(1000 - data.len(), 1000));
            }
        },
        &[],
    );
}

/// More events arrive at once than the log keeps, so no hub reads all of them.
#[test]
fn what_was_trimmed_before_it_was_read_is_told_as_a_gap() {
    run(
        async |server| {
            let log = Redis::builder(server.url()).key("test").max_len(20).connect().await.unwrap();
            let hub = Hub::builder().log(log.clone()).build();
            let mut reader = reader(&hub, None);
            (0..1000).for_each(|n| send(&hub, n));
            log.flush().await;
            send(&hub, 1000);
            let all = reader.until("1000").await;
            let (mut next, mut missed) = (0, 0);
            for got in &all {
                match got.data.parse::<u64>() {
                    Ok(n) if missed == 0 => assert_eq!(n, next, "silent loss"),
                    Ok(n) => {
                        assert!(
                            missed == u64::MAX || n - next == missed,
                            "{missed} reported, but {next} to {n} are missing"
                        );
                        missed = 0;
                    }
                    Err(_) => {
                        assert!(got.is_gap() && missed == 0, "{got:?} before {next}");
                        let number: String = got.data.chars().filter(char::is_ascii_digit).collect();
                        missed = number.parse().unwrap_or(u64::MAX);
                        continue;
                    }
                }
                next = got.data.parse::<u64>().unwrap() + 1;
            }
            assert_eq!(next, 1001);
            assert!(all.len() < 900, "nothing was trimmed: {}", all.len());
        },
        &[],
    );
}

#[test]
fn sends_wait_while_redis_does_nothing_and_arrive_once() {
    run(
        async |server| {
            let log = Redis::builder(server.url()).key("test").queue(10).connect().await.unwrap();
            let hub = Hub::builder().log(log.clone()).build();
            let mut reader = reader(&hub, None);
            send(&hub, 0);
            reader.data(1).await;
            log.flush().await;
            server.freeze();
            (1..11).for_each(|n| send(&hub, n));
            assert!(matches!(hub.send(Event::new().data("11")), Err(SendError::Full)));
            assert_eq!(log.state().queued, 10);
            // Part of the appends was sent and timed out, and waits in a buffer of Redis.
            while log.state().connected {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let state = log.state();
            assert!(state.error.is_some() && state.queued == 10, "{state:?}");
            server.wake();
            assert_eq!(reader.data(10).await, numbers(1, 11));
            log.flush().await;
            assert_eq!(reader.rest(QUIET).await, []);
            while !log.state().connected {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let state = log.state();
            assert_eq!((state.queued, state.queued_bytes, state.appended, state.doubles), (0, 0, 11, 0), "{state:?}");
            assert!(state.reconnects > 0, "{state:?}");
            send(&hub, 11);
            assert_eq!(reader.data(1).await, ["11"]);
            let entries = server.command(&["XLEN", "test"]);
            assert_eq!(entries, redis::Value::Int(12), "no entry is doubled");
        },
        &[],
    );
}

#[test]
fn other_programs_may_append() {
    run(
        async |server| {
            let (a, b) = (hub(&server.url()).await, hub(&server.url()).await);
            let mut readers = [reader(&a, None), reader(&b, None)];
            server.command(&["XADD", "test", "*", "data", "hello", "event", "greeting"]);
            server.command(&["XADD", "test", "*", "data", "x", "event", "two\nlines"]);
            server.command(&["XADD", "test", "*", "data", "bye"]);
            for reader in &mut readers {
                let hello = reader.next().await;
                assert_eq!((hello.event.as_deref(), &*hello.data), (Some("greeting"), "hello"));
                let gap = reader.next().await;
                assert!(gap.is_gap() && gap.data.contains("\"missed\":1"), "{gap:?}");
                assert_eq!(reader.data(1).await, ["bye"]);
            }
        },
        &[],
    );
}

#[test]
fn a_stream_that_is_not_used_goes_away() {
    run(
        async |server| {
            let log = Redis::builder(server.url()).key("test").expire_after(Duration::from_secs(100)).connect().await;
            let log = log.unwrap();
            let hub = Hub::builder().log(log.clone()).build();
            let expiry = || match server.command(&["PTTL", "test"]) {
                redis::Value::Int(ms) => ms,
                other => panic!("{other:?}"),
            };
            send(&hub, 0);
            log.flush().await;
            assert!((1..=100_000).contains(&expiry()), "{} ms", expiry());
            server.command(&["PEXPIRE", "test", "50000"]);
            send(&hub, 1);
            log.flush().await;
            assert!(expiry() > 50_000, "{} ms", expiry());
        },
        &[],
    );
}

#[test]
fn the_largest_settings_are_never_reached() {
    run(
        async |server| {
            let log = Redis::builder(server.url()).key("test").max_len(usize::MAX).expire_after(Duration::MAX);
            let log = log.queue(usize::MAX).queue_bytes(usize::MAX).timeout(Duration::MAX).connect().await.unwrap();
            let hub = Hub::builder().log(log.clone()).build();
            let mut reader = reader(&hub, None);
            send(&hub, 0);
            assert_eq!(reader.data(1).await, ["0"]);
            tokio::time::timeout(testkit::HANGS, log.flush()).await.expect("the event is appended");
            assert_eq!((log.state().appended, log.state().error), (1, None));
            assert_eq!(server.command(&["XLEN", "test"]), redis::Value::Int(1));
        },
        &[],
    );
}

#[test]
fn a_redis_that_is_not_there_is_named() {
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let closed = testkit::Reserved::new();
            let url = format!("redis://user:secret@{}/", closed.addr);
            let builder = Redis::builder(&url);
            assert!(!format!("{builder:?}").contains("secret"));
            let error = builder.connect().await.unwrap_err();
            assert!(matches!(error, RedisError::Unreachable { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(&closed.addr.to_string()) && text.contains("redis-server"), "{text}");
            assert!(!text.contains("secret") && !format!("{error:?}").contains("secret"));

            for url in
                ["", "localhost", "http://user:secret@localhost/", "redis://:secret@host:x/", "rediss://:secret@h"]
            {
                let error = Redis::builder(url).connect().await.unwrap_err();
                assert!(matches!(error, RedisError::Url { .. }), "{url}: {error:?}");
                let text = format!("{error} {error:?}");
                assert!(text.contains("redis://") && !text.contains("secret"), "{url}: {text}");
            }
        });
    });
}

#[test]
fn a_redis_that_refuses_is_told_apart() {
    run(
        async |server| {
            let at = server.addr().to_string();
            let error = async |user: &str, key: &str| {
                let url = format!("redis://{user}@{at}/");
                Redis::builder(url).key(key).connect().await.map(drop).unwrap_err()
            };
            for wrong in ["", ":wrong-one", "nobody:wrong-one"] {
                let error = error(wrong, "test").await;
                assert!(matches!(error, RedisError::Credentials { .. }), "{wrong}: {error:?}");
                let text = format!("{error} {error:?}");
                assert!(text.contains(&at) && !text.contains("wrong-one"), "{text}");
            }
            let admin = redis::Client::open(format!("redis://:right@{at}/")).unwrap();
            let mut admin = admin.get_connection().unwrap();
            let rights = "+@connection +info +xadd +xrange +xrevrange +xread +multi +exec +pexpire";
            for (user, rights) in
                [("weak", format!("{rights} -client|kill")), ("enough", format!("{rights} +client|id +client|kill"))]
            {
                let mut set = redis::cmd("ACL");
                set.arg("SETUSER").arg(user).arg("on").arg(">pw").arg("~*").arg(rights.split(' ').collect::<Vec<_>>());
                set.exec(&mut admin).unwrap();
            }
            let weak = error("weak:pw", "test").await;
            assert!(matches!(weak, RedisError::Forbidden { .. }) && weak.to_string().contains("client|kill"), "{weak}");

            redis::cmd("SET").arg("text").arg("1").exec(&mut admin).unwrap();
            let occupied = error(":right", "text").await;
            assert!(matches!(occupied, RedisError::Occupied { .. }) && occupied.to_string().contains("\"text\""));

            let url = format!("redis://enough:pw@{at}/");
            let log = Redis::builder(url).key("test").connect().await.unwrap();
            let hub = Hub::builder().log(log.clone()).build();
            let mut reader = reader(&hub, None);
            send(&hub, 0);
            assert_eq!(reader.data(1).await, ["0"]);
            assert!(!format!("{hub:?} {log:?}").contains("pw"));
        },
        &["--requirepass", "right"],
    );
}

#[test]
fn a_socket_in_the_file_system_does_as_well() {
    run(
        async |server| {
            let path = server.dir().join("socket");
            let hub = hub(&format!("unix://{}", path.display())).await;
            let mut reader = reader(&hub, None);
            send(&hub, 0);
            assert_eq!(reader.data(1).await, ["0"]);
        },
        &["--unixsocket", "socket"],
    );
}
