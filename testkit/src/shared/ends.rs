//! Ends, owners, and what is left.

use std::convert::Infallible;
use std::time::Duration;

use hyper::{Method, Request};
use millstream::sse::Event;
use millstream_resumable::{Owner, SharedError, SharedStreams, StreamEnd, StreamError, StreamSender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{Lag, Place, count_to, data, instance, options, two, until, waiting, whole};
use crate::HANGS;

fn never(_: StreamSender) -> std::future::Ready<Result<(), Infallible>> {
    panic!("it must not be called")
}

fn after(last: &str) -> Request<()> {
    Request::builder().header("last-event-id", last).body(()).unwrap()
}

async fn is_unknown(streams: &SharedStreams, key: &str, owner: impl Into<Owner>) -> bool {
    let error = streams.get(key, owner).await.err();
    matches!(error, Some(SharedError::Stream(StreamError::NotFound)))
}

/// The end of a stream and its events are in the log: a process that starts later has them.
pub async fn ends_are_durable(place: &impl Place) {
    let ttl = HANGS * 10;
    let one = instance(place, options().ttl(ttl)).await;
    let complete = one.open("complete", "alice", |sender| count_to(sender, 1000, Duration::ZERO)).await.unwrap();
    let failed = one.open("failed", "alice", |sender: StreamSender| async move {
        sender.send(Event::new().data("0")).unwrap();
        Err("no answer")
    });
    let (failed, (stopped, dropped)) = (failed.await.unwrap(), waiting(&one, "stopped").await);
    one.stop("stopped", "alice").await.unwrap();
    dropped.await.unwrap();
    let empty = one.open("empty", "alice", |_| async { Ok::<_, Infallible>(()) }).await.unwrap();
    let large = one.open("large", "alice", |sender: StreamSender| async move {
        while sender.send(Event::new().data("x".repeat(1 << 20))).is_ok() {}
        Ok::<_, Infallible>(())
    });
    let all = [
        ("complete", complete, StreamEnd::Complete),
        ("failed", failed, StreamEnd::Failed),
        ("stopped", stopped, StreamEnd::Stopped),
        ("large", large.await.unwrap(), StreamEnd::TooLarge),
    ];
    for (_, stream, end) in &all {
        assert_eq!(timeout(HANGS, stream.ended()).await.expect("it ends"), *end);
    }
    assert_eq!(empty.ended().await, StreamEnd::Complete);
    let later = instance(place, options().ttl(ttl)).await;
    for (key, stream, end) in all {
        let found = later.get(key, "alice").await.unwrap();
        assert_eq!(found.end(), Some(end), "{key}");
        let events = whole(&found).await;
        assert!(events == whole(&stream).await, "{key}");
        let last = events.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap();
        assert_eq!(later.attach(&after(last), key, "alice").await.status(), 204, "{key}");
        let again = later.open(key, "alice", never).await.unwrap();
        assert_eq!(again.end(), Some(end));
    }
    assert_eq!(later.attach(&Request::new(()), "empty", "alice").await.status(), 204);
}

/// A stop at any instance cancels the producer within a second.
pub async fn stops_reach_the_writer(place: &impl Place) {
    let lag = Lag::start();
    let [one, other] = two(place, options()).await;
    for by_handle in [false, true] {
        let key = format!("stopped {by_handle}");
        let (stream, dropped) = waiting(&one, &key).await;
        let same = other.get(&key, "alice").await.unwrap();
        let reader = tokio::spawn(async move { whole(&same).await });
        // The first beat has not to tell of it.
        sleep(Duration::from_millis(400)).await;
        let (since, behind) = (Instant::now(), lag.total());
        if by_handle {
            other.get(&key, "alice").await.unwrap().stop();
        } else {
            other.stop(&key, "alice").await.unwrap();
        }
        let at = timeout(HANGS, dropped).await.expect("the producer is cancelled").unwrap();
        let took = at.saturating_duration_since(since);
        assert!(took <= Duration::from_secs(1) + (lag.total() - behind), "{took:?}");
        assert_eq!(timeout(HANGS, stream.ended()).await.unwrap(), StreamEnd::Stopped);
        let same = other.get(&key, "alice").await.unwrap();
        assert_eq!(timeout(HANGS, same.ended()).await.unwrap(), StreamEnd::Stopped);
        assert_eq!(data(&reader.await.unwrap()), ["waits", "{\"reason\":\"stopped\"}"]);
    }
}

/// Another owner finds nothing, at any instance, and the log does not have the names.
pub async fn owners_are_apart(place: &impl Place) {
    let [one, other] = two(place, options()).await;
    let key = "conversation-key";
    let (stream, _dropped) = waiting(&one, key).await;
    for owner in [Owner::from("mallory"), "alic".into(), "alicea".into(), Owner::anyone()] {
        for streams in [&one, &other] {
            assert!(is_unknown(streams, key, &owner).await, "{owner:?}");
            assert_eq!(streams.attach(&Request::new(()), key, &owner).await.status(), 404);
            assert!(streams.stop(key, &owner).await.is_err());
        }
    }
    let own = other.open(key, "mallory", |sender| count_to(sender, 1, Duration::ZERO)).await.unwrap();
    assert_eq!(data(&whole(&own).await), ["0"]);
    assert_eq!(stream.end(), None);
    let head = Request::builder().method(Method::HEAD).body(()).unwrap();
    assert_eq!(other.attach(&head, key, "alice").await.status(), 200);
    let names = place.names();
    assert!(!names.is_empty());
    assert!(names.iter().all(|name| !name.contains("alice") && !name.contains(key)), "{names:?}");
    let hex: Vec<String> =
        ["alice", "conversation"].iter().map(|text| text.bytes().map(|b| format!("{b:02x}")).collect()).collect();
    assert!(names.iter().all(|name| hex.iter().all(|hex| !name.contains(hex))), "{names:?}");
}

/// After the time to live nothing is left, also of streams that no process has ended.
pub async fn streams_are_forgotten(place: &impl Place) {
    let ttl = Duration::from_secs(5);
    let [one, other] = two(place, options().ttl(ttl).max_age(HANGS * 10)).await;
    assert_eq!(place.left(), 0);
    let (end, ended) = watch::channel(());
    let mut readers = JoinSet::new();
    for n in 0..20 {
        let (key, mut ended) = (n.to_string(), ended.clone());
        let producer = |sender| async move {
            ended.changed().await.unwrap();
            count_to(sender, 20, Duration::ZERO).await
        };
        one.open(&key, "alice", producer).await.unwrap();
        let same = other.get(&key, "alice").await.unwrap();
        readers.spawn(async move { assert_eq!(data(&whole(&same).await).len(), 20) });
    }
    // The time to live begins with the end of a stream.
    assert!(place.left() >= 20);
    end.send(()).unwrap();
    while let Some(read) = readers.join_next().await {
        read.unwrap();
    }
    // Of a process that ends without an end of its stream.
    let logs = place.logs().await;
    let died = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let streams = options().ttl(ttl).max_age(ttl).build_shared(logs);
        runtime.block_on(async { drop(waiting(&streams, "died").await) });
        runtime.shutdown_background();
    });
    died.join().unwrap();
    until("the log is empty", || place.left() == 0).await;
    until("the instances are empty", || [&one, &other].iter().all(|s| s.stats().streams == 0)).await;
    for key in ["0", "19", "died"] {
        assert!(is_unknown(&one, key, "alice").await && is_unknown(&other, key, "alice").await);
    }
    // The key can be used again, and ids of the earlier stream are foreign.
    let again = other.open("0", "alice", |sender| count_to(sender, 2, Duration::ZERO)).await.unwrap();
    assert_eq!(data(&whole(&again).await), ["0", "1"]);
}
