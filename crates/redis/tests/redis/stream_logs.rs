//! Logs of streams in Redis by themselves: lost events, claims, times to live, pages.

use std::time::Duration;

use bytes::Bytes;
use millstream_redis::{RedisError, RedisStreams};
use millstream_resumable::{StreamEnd, StreamLog, StreamLogError};
use testkit::HANGS;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

use crate::server::Server;
use crate::streams::{NAME, event, events, open};

/// For how long a log is kept.
const KEEP: Duration = Duration::from_secs(60);

/// Key of the log, and key of its events.
fn keys() -> [String; 2] {
    let key = format!("millstream:streams:{NAME}");
    [key.clone(), format!("{key}:events")]
}

fn is_gone<T>(answer: Result<T, StreamLogError>) -> bool {
    matches!(answer, Err(StreamLogError::Gone))
}

/// Waits until no instance has the claim.
async fn claim(log: &dyn StreamLog) -> Result<u64, StreamLogError> {
    let since = Instant::now();
    loop {
        if let Some(token) = log.claim(KEEP).await? {
            return Ok(token);
        }
        assert!(since.elapsed() < HANGS);
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_lost_events_begins_again_with_another_prefix() {
    let Some(server) = Server::start(&[]) else { return };
    let [key, events] = keys();
    let three = [0, 1, 2].map(event);
    let lose = |how: u8| match how {
        0 => server.command(&["DEL", &events]),
        1 => server.command(&["XTRIM", &events, "MAXLEN", "2"]),
        // The number is lost, too.
        _ => {
            server.command(&["HSET", &key, "events", "2"]);
            server.command(&["XDEL", &events, "3-0"])
        }
    };
    for how in 0..3 {
        let one = open(&server.url()).await;
        let token = one.claim(KEEP).await.unwrap().unwrap();
        one.append(token, 0, &three, None).await.unwrap();
        lose(how);
        assert!(how == 2 || is_gone(one.read(0).await), "{how}");
        assert!(is_gone(one.append(token, 3, &[event(3)], None).await), "{how}");
        let other = open(&server.url()).await;
        assert_ne!(other.epoch(), one.epoch());
        assert!(is_gone(one.read(0).await) && is_gone(one.claim(KEEP).await));
        let token = other.claim(KEEP).await.unwrap().unwrap();
        other.append(token, 0, &three, None).await.unwrap();
        if how < 2 {
            // The next writer notices it.
            lose(how);
            assert!(is_gone(claim(&*other).await), "{how}");
            assert_ne!(open(&server.url()).await.epoch(), other.epoch());
        }
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_gone_for_a_reader_beyond_its_end() {
    let Some(server) = Server::start(&[]) else { return };
    let [key, events_key] = keys();
    let log = open(&server.url()).await;
    let token = log.claim(KEEP).await.unwrap().unwrap();
    log.append(token, 0, &[0, 1, 2].map(event), None).await.unwrap();
    assert!(log.read(3).await.unwrap().events.is_empty());
    // As after a restart from an older snapshot.
    server.command(&["HSET", &key, "events", "2"]);
    server.command(&["XDEL", &events_key, "3-0"]);
    assert!(is_gone(log.read(3).await), "its next event would get an id that this reader has");
    assert!(log.read(2).await.unwrap().events.is_empty());
    assert_eq!(events(&*log).await, [0, 1].map(event));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_lost_events_after_its_end_is_gone() {
    let Some(server) = Server::start(&[]) else { return };
    let log = open(&server.url()).await;
    let token = log.claim(KEEP).await.unwrap().unwrap();
    log.append(token, 0, &[0, 1].map(event), Some((StreamEnd::Complete, HANGS))).await.unwrap();
    assert_eq!(log.read(2).await.unwrap().end.unwrap().0, StreamEnd::Complete);
    server.command(&["DEL", &keys()[1]]);
    assert!(is_gone(log.read(0).await) && is_gone(log.read(2).await));
    assert!(is_gone(log.claim(KEEP).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_redis_has_lost_is_not_given_again() {
    let Some(server) = Server::start(&[]) else { return };
    let (one, other, third) = (open(&server.url()).await, open(&server.url()).await, open(&server.url()).await);
    let token = one.claim(KEEP).await.unwrap().unwrap();
    let lost = claim(&*other).await.unwrap();
    // As after a restart that lost the latest claim.
    server.command(&["HSET", &keys()[0], "token", &token.to_string(), "until", "0"]);
    let next = claim(&*third).await.unwrap();
    assert!(matches!(other.append(lost, 0, &[event(7)], None).await, Err(StreamLogError::Lost)));
    third.append(next, 0, &[event(0)], None).await.unwrap();
    assert_eq!(events(&*one).await, [event(0)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_renews_the_time_to_live() {
    let Some(server) = Server::start(&[]) else { return };
    let one = open(&server.url()).await;
    let token = one.claim(KEEP).await.unwrap().unwrap();
    one.append(token, 0, &[event(0)], None).await.unwrap();
    for key in keys() {
        server.command(&["PEXPIRE", &key, "20000"]);
    }
    claim(&*open(&server.url()).await).await.unwrap();
    for key in keys() {
        let left: u64 = redis::from_redis_value(server.command(&["PTTL", &key])).unwrap();
        assert!(left > 20_000, "{left}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_bounded_and_complete() {
    let Some(server) = Server::start(&[]) else { return };
    let log = open(&server.url()).await;
    let token = log.claim(KEEP).await.unwrap().unwrap();
    for size in [100, 16 << 10, 300 << 10] {
        let first = events_of(&*log, 0).await.len() as u64;
        let all: Vec<Bytes> = (0..40).map(|n| Bytes::from(vec![b'a' + n; size])).collect();
        log.append(token, first, &all, None).await.unwrap();
        assert!(events_of(&*log, first).await == all, "{size}");
    }
    log.append(token, 120, &[], Some((StreamEnd::Complete, HANGS))).await.unwrap();
    assert_eq!(events_of(&*log, 0).await.len(), 120);
}

/// Reads all pages from `first` on.
async fn events_of(log: &dyn StreamLog, first: u64) -> Vec<Bytes> {
    let mut all = Vec::new();
    loop {
        let page = log.read(first + all.len() as u64).await.unwrap();
        let before: usize = page.events.iter().rev().skip(1).map(Bytes::len).sum();
        assert!(before < 256 << 10, "{before}");
        all.extend(page.events);
        if !page.more {
            return all;
        }
        assert!(page.end.is_none());
    }
}

#[tokio::test]
async fn an_old_redis_is_named_as_the_reason() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let answering = tokio::spawn(async move {
        let (mut link, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = link.read(&mut bytes).await {
            let commands = bytes[..read].iter().filter(|byte| **byte == b'*').count();
            link.write_all(b"-ERR unknown command `HELLO`\r\n".repeat(commands).as_slice()).await.unwrap();
        }
    });
    let error = RedisStreams::builder(url).connect().await.unwrap_err();
    assert!(matches!(error, RedisError::TooOld { .. }) && error.to_string().contains("Redis 6"), "{error:?}");
    answering.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permissions_that_an_error_names_are_enough() {
    let Some(server) = Server::start(&[]) else { return };
    let url = format!("redis://user:pw@{}/", server.addr());
    server.command(&["ACL", "SETUSER", "user", "on", ">pw"]);
    let text = RedisStreams::builder(&url).connect().await.unwrap_err().to_string();
    let (_, rights) = text.split_once("logs of streams need \u{2026} ").unwrap();
    let rights = rights.replace(", ", " ").replace(" and ", " ").replace("PREFIX", "millstream:streams");
    let mut set = vec!["ACL", "SETUSER", "user"];
    set.extend(rights.split(' '));
    server.command(&set);
    let log = open(&url).await;
    let token = log.claim(KEEP).await.unwrap().unwrap();
    log.append(token, 0, &[event(0)], None).await.unwrap();
    log.beat(Some(token), true).await.unwrap();
    log.request_stop().await.unwrap();
    assert_eq!(events(&*log).await, [event(0)]);
    log.grown(1).await;
    let appended = async {
        sleep(Duration::from_millis(50)).await;
        log.append(token, 1, &[event(1)], Some((StreamEnd::Complete, HANGS))).await.unwrap();
    };
    tokio::join!(log.grown(1), appended);
    let subscribed: Vec<String> = redis::from_redis_value(server.command(&["PUBSUB", "CHANNELS"])).unwrap();
    assert_eq!(subscribed, [keys()[1].clone()]);
    server.command(&["DEL", &keys()[1]]);
    assert!(is_gone(log.claim(KEEP).await), "it may remove the keys");
}
