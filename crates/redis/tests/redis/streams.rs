//! Streams whose logs are in Redis, and which instances share.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream::sse::Event;
use millstream_redis::RedisStreams;
use millstream_resumable::{
    SharedError, SharedStreams, StreamEnd, StreamError, StreamLog, StreamLogError, StreamLogs, StreamSender, Streams,
};
use testkit::shared::{self, Place};
use testkit::{HANGS, child};
use tokio::time::{Instant, sleep, timeout};

use crate::server::{Mode, Relay, Server};

const SECOND: Duration = Duration::from_secs(1);

/// A Redis for streams only.
struct Keys(Server);

async fn logs(url: &str) -> Arc<RedisStreams> {
    logs_with(url, SECOND).await
}

async fn logs_with(url: &str, claim: Duration) -> Arc<RedisStreams> {
    Arc::new(RedisStreams::builder(url).claim(claim).timeout(HANGS).connect().await.unwrap())
}

impl Place for Keys {
    async fn logs(&self) -> Arc<dyn StreamLogs> {
        logs(&self.0.url()).await
    }

    fn left(&self) -> usize {
        self.names().len()
    }

    fn names(&self) -> Vec<String> {
        redis::from_redis_value(self.0.command(&["KEYS", "*"])).unwrap()
    }
}

fn place() -> Option<Keys> {
    Server::start(&[]).map(Keys)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_clients_get_the_bytes_of_an_undisturbed_one() {
    let Some(place) = place() else { return };
    shared::clients_move(&place, shared::moves_wanted()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_are_cancelled_after_the_last_reader_of_all_instances() {
    let Some(place) = place() else { return };
    shared::abandoned_in_time(&place, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_start_one_producer() {
    let Some(place) = place() else { return };
    shared::one_producer(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_instance_stops_a_stream() {
    let Some(place) = place() else { return };
    shared::stops_reach_the_writer(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_owner_finds_nothing_in_the_log() {
    let Some(place) = place() else { return };
    shared::owners_are_apart(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_process_has_the_events_and_the_end() {
    let Some(place) = place() else { return };
    shared::ends_are_durable(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_is_left_after_the_time_to_live() {
    let Some(place) = place() else { return };
    shared::streams_are_forgotten(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_instance_continues_after_a_death() {
    let Some(place) = place() else { return };
    shared::continued_after_death(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_nobody_continues_fails() {
    let Some(place) = place() else { return };
    shared::orphans_fail(&place).await;
}

/// The Redis of another process.
struct At(String);

impl Place for At {
    async fn logs(&self) -> Arc<dyn StreamLogs> {
        logs(&self.0).await
    }

    fn left(&self) -> usize {
        unreachable!("the parent looks")
    }

    fn names(&self) -> Vec<String> {
        unreachable!("the parent looks")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_leave_whole_streams() {
    if let Some(task) = child::task() {
        let (url, round) = task.split_once('#').unwrap();
        return shared::killed_writer(&At(url.to_owned()), round).await;
    }
    let Some(place) = place() else { return };
    shared::killed_writers(&place, "streams::killed_processes_leave_whole_streams", &place.0.url()).await;
}

pub(crate) const NAME: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

pub(crate) async fn open(url: &str) -> Arc<dyn StreamLog> {
    open_with(url, SECOND).await
}

async fn open_with(url: &str, claim: Duration) -> Arc<dyn StreamLog> {
    logs_with(url, claim).await.open(NAME, Some(HANGS)).await.unwrap().unwrap()
}

pub(crate) fn event(n: u64) -> Bytes {
    Bytes::from(format!("data: {n}\n\n"))
}

pub(crate) async fn events(log: &dyn StreamLog) -> Vec<Bytes> {
    log.read(0).await.unwrap().events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_was_paused_beyond_its_claim_appends_nothing() {
    let Some(server) = Server::start(&[]) else { return };
    let (one, other) = (open_with(&server.url(), HANGS).await, open_with(&server.url(), HANGS).await);
    assert_eq!(one.epoch(), other.epoch());
    let token = one.claim(SECOND * 60).await.unwrap().unwrap();
    assert_eq!(other.claim(SECOND * 60).await.unwrap(), None);
    one.append(token, 0, &[event(0), event(1)], None).await.unwrap();
    // Repeated after an unknown outcome, with more. The claim ends a second after the last append, by the clock of Redis.
    let since = Instant::now();
    open(&server.url()).await.append(token, 0, &[event(0), event(1), event(2)], None).await.unwrap();
    let next = loop {
        if let Some(next) = other.claim(SECOND * 60).await.unwrap() {
            break next;
        }
        assert!(since.elapsed() < HANGS);
        sleep(Duration::from_millis(20)).await;
    };
    assert!(next != token && since.elapsed() > SECOND - Duration::from_millis(5));
    for error in [
        one.append(token, 3, &[event(9)], None).await.unwrap_err(),
        one.append(token, 3, &[], Some((StreamEnd::Complete, SECOND))).await.unwrap_err(),
        one.beat(Some(token), true).await.unwrap_err(),
    ] {
        assert!(matches!(error, StreamLogError::Lost), "{error}");
    }
    other.append(next, 3, &[event(3)], Some((StreamEnd::Failed, HANGS))).await.unwrap();
    other.append(next, 3, &[event(3)], Some((StreamEnd::Failed, HANGS))).await.unwrap();
    assert_eq!(events(&*one).await, [0, 1, 2, 3].map(event));
    assert_eq!(one.read(4).await.unwrap().end.unwrap().0, StreamEnd::Failed);
    sleep(SECOND + SECOND / 5).await;
    assert_eq!(one.claim(SECOND * 60).await.unwrap(), None, "it has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_ends_with_its_log() {
    let Some(server) = Server::start(&[]) else { return };
    let long = SECOND * 3600;
    let (one, other) = (open_with(&server.url(), long).await, open_with(&server.url(), long).await);
    let token = one.claim(long).await.unwrap().unwrap();
    one.append(token, 0, &[event(0)], None).await.unwrap();
    // One without the claim leaves it alone.
    let third = open_with(&server.url(), long).await;
    assert_eq!(third.claim(long).await.unwrap(), None);
    drop(third);
    sleep(SECOND / 10).await;
    assert_eq!(other.claim(long).await.unwrap(), None);
    drop(one);
    let claimed = async {
        loop {
            if let Some(next) = other.claim(long).await.unwrap() {
                return next;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let next = timeout(HANGS, claimed).await.expect("the claim was released");
    other.append(next, 1, &[event(1)], Some((StreamEnd::Complete, HANGS))).await.unwrap();
    assert_eq!(events(&*other).await, [0, 1].map(event));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_the_same_name_is_another_one() {
    let Some(server) = Server::start(&[]) else { return };
    let one = open(&server.url()).await;
    let token = one.claim(SECOND * 60).await.unwrap().unwrap();
    one.append(token, 0, &[event(0)], None).await.unwrap();
    server.command(&["FLUSHALL"]);
    let other = open(&server.url()).await;
    let next = other.claim(SECOND * 60).await.unwrap().unwrap();
    other.append(next, 0, &[event(7)], None).await.unwrap();
    assert!(matches!(one.append(token, 1, &[event(1)], None).await, Err(StreamLogError::Gone)));
    assert!(matches!(one.beat(Some(token), false).await, Err(StreamLogError::Gone)));
    assert!(matches!(one.read(1).await, Err(StreamLogError::Gone)));
    assert!(matches!(one.claim(SECOND * 60).await, Err(StreamLogError::Gone)));
    assert!(matches!(one.request_stop().await, Err(StreamLogError::Gone)));
    assert_eq!(events(&*other).await, [event(7)]);
}

async fn instance(url: &str, patience: Duration) -> SharedStreams {
    let logs = RedisStreams::builder(url).claim(SECOND).connect().await.unwrap();
    Streams::builder().keep_alive(Duration::ZERO).patience(patience).build_shared(Arc::new(logs))
}

async fn numbers(sender: StreamSender) -> Result<(), Infallible> {
    for n in sender.resumed_from().. {
        if sender.send(Event::new().data(n.to_string())).is_err() {
            break;
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_was_cut_off_loses_its_producer_and_not_the_others() {
    let Some(server) = Server::start(&[]) else { return };
    let relay = Relay::start(&server).await;
    let (one, other) = (instance(&relay.url(), HANGS).await, instance(&server.url(), HANGS).await);
    let stream = one.open("a", "alice", numbers).await.unwrap();
    let mut reader = testkit::events::Reader::new(other.get("a", "alice").await.unwrap().attach_from(None).unwrap());
    let read = reader.data(20).await.len();
    assert_eq!(read, 20);
    let mut of_one = testkit::events::Reader::new(stream.attach_from(None).unwrap());
    relay.set(Mode::HoldAnswers);
    // The claim expires, and the other one continues.
    let since = Instant::now();
    let resumed = loop {
        let (told, tell) = tokio::sync::oneshot::channel();
        let producer = |sender: StreamSender| async move {
            told.send(sender.resumed_from()).unwrap();
            numbers(sender).await
        };
        other.open("a", "alice", producer).await.unwrap();
        if let Ok(resumed) = tell.await {
            break resumed;
        }
        assert!(since.elapsed() < HANGS);
        sleep(Duration::from_millis(20)).await;
    };
    relay.set(Mode::Pass);
    // The first one ends without an event, so that its readers return.
    assert_eq!(timeout(HANGS, stream.ended()).await.unwrap(), StreamEnd::Failed);
    assert_eq!(stream.attach_from(None).unwrap_err(), StreamError::Lost);
    let lost = of_one.all().await;
    assert!(lost.iter().enumerate().all(|(n, got)| got.data == n.to_string()), "{lost:?}");
    assert!(lost.len() as u64 <= resumed, "it has published more than the log had");
    let rest = reader.data(resumed as usize + 20).await;
    assert!(rest.iter().enumerate().all(|(n, data)| *data == (n + 20).to_string()), "{rest:?}");
    // It follows now.
    let found = one.get("a", "alice").await.unwrap();
    let mut again = testkit::events::Reader::new(found.attach_from(None).unwrap());
    assert_eq!(again.data(resumed as usize + 20).await[..20], (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
    other.stop("a", "alice").await.unwrap();
    assert_eq!(timeout(HANGS, found.ended()).await.unwrap(), StreamEnd::Stopped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_outage_loses_nothing() {
    let Some(mut server) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let one = instance(&server.url(), HANGS).await;
    let stream = one.open("a", "alice", numbers).await.unwrap();
    let mut reader = testkit::events::Reader::new(stream.attach_from(None).unwrap());
    reader.data(10).await;
    server.kill();
    sleep(SECOND / 2).await;
    server.run();
    let rest = reader.data(200).await;
    assert!(rest.iter().enumerate().all(|(n, data)| *data == (n + 10).to_string()), "{rest:?}");
    assert_eq!(stream.end(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_streams_fail_and_calls_say_so() {
    let Some(mut server) = Server::start(&[]) else { return };
    let (one, other) = (instance(&server.url(), SECOND).await, instance(&server.url(), SECOND).await);
    let stream = one.open("a", "alice", numbers).await.unwrap();
    let followed = other.get("a", "alice").await.unwrap();
    let readers = [&stream, &followed].map(|stream| testkit::events::Reader::new(stream.attach_from(None).unwrap()));
    server.kill();
    for mut reader in readers {
        let all = timeout(HANGS, reader.all()).await.expect("readers are told");
        let (last, before) = all.split_last().unwrap();
        assert_eq!((last.event.as_deref(), &*last.data, &last.id), (Some("error"), "{\"reason\":\"failed\"}", &None));
        assert!(before.iter().all(|got| got.id.is_some()));
    }
    assert_eq!((stream.ended().await, followed.ended().await), (StreamEnd::Failed, StreamEnd::Failed));
    for error in [one.get("a", "alice").await.unwrap_err(), one.open("b", "alice", numbers).await.unwrap_err()] {
        assert!(matches!(error, SharedError::Log(StreamLogError::Unreachable(_))), "{error}");
        assert!(error.source().and_then(Error::source).is_some());
        assert_eq!(testkit::levels::repeated(&error), None);
        let answer = error.response();
        assert_eq!((answer.status().as_u16(), answer.headers().contains_key("retry-after")), (503, true));
    }
    server.run();
    let since = Instant::now();
    while one.open("b", "alice", numbers).await.is_err() {
        assert!(since.elapsed() < HANGS, "it is reachable again");
        sleep(Duration::from_millis(20)).await;
    }
}
