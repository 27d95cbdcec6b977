//! The events of readers, and the end of their streams.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::Request;
use hyper::body::Body;
use millstream::sse::{Event, SendError};
use millstream_resumable::{StreamEnd, StreamError, StreamSender, Streams};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{data, hand, settle, started};
use testkit::parse::Hand;

#[tokio::test(start_paused = true)]
async fn every_reader_gets_all_events_or_those_after_its_id() {
    let streams = Streams::new();
    let (stream, tell) = started(&streams, "a");
    let mut first = hand(&stream, None);
    for n in 0..500 {
        tell.send(n.to_string());
    }
    settle().await;
    let all = first.read();
    assert!(all.iter().map(|seen| seen.data.clone()).eq((0..500).map(|n| n.to_string())));
    for from in [0, 1, 250, 435, 436, 498] {
        assert_eq!(hand(&stream, Some(&all[from].id)).read(), all[from + 1..], "{from}");
    }
    let mut last = hand(&stream, Some(&all[499].id));
    assert!(last.read().is_empty() && !last.ended);
    // Also after the end.
    drop(tell);
    assert_eq!(stream.ended().await, StreamEnd::Complete);
    assert!(first.read().is_empty() && first.ended && last.read().is_empty() && last.ended);
    assert!(first.parser.has_retry());
    for from in [0, 250, 498] {
        let mut reader = hand(&stream, Some(&all[from].id));
        assert_eq!(reader.read(), all[from + 1..], "{from}");
        assert!(reader.ended);
    }
    let mut reader = hand(&stream, None);
    assert_eq!(reader.read(), all);
    assert!(reader.ended);
    assert_eq!(stream.attach_from(Some(&all[499].id)).unwrap_err(), StreamError::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_falls_behind_the_ring_misses_nothing() {
    let streams = Streams::new();
    let (stream, tell) = started(&streams, "a");
    let mut slow = hand(&stream, None);
    let mut seen = Vec::new();
    for n in 0..3000 {
        tell.send(format!("{n} {}", "x".repeat(n % 700)));
        if n % 200 == 0 {
            settle().await;
            seen.extend(slow.frame().unwrap_or_default());
        }
    }
    settle().await;
    seen.extend(slow.read());
    assert_eq!(seen.len(), 3000);
    assert!(seen.iter().enumerate().all(|(n, seen)| seen.data.starts_with(&format!("{n} ")) && seen.name.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn foreign_ids_get_a_gap_and_everything() {
    let streams = Streams::builder().ttl(Duration::from_secs(10)).build();
    let (stream, tell) = started(&streams, "a");
    tell.send("old");
    drop(tell);
    stream.ended().await;
    let old = hand(&stream, None).read()[0].id.clone();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(streams.get("a", "alice").unwrap_err(), StreamError::NotFound);
    let (stream, tell) = started(&streams, "a");
    tell.send("new");
    settle().await;
    let own = hand(&stream, None).read()[0].id.clone();
    let ahead = own.replace("-0", "-1");
    for id in [&*old, &*ahead, "x", "", &own.replace("-0", "-00"), &own.to_uppercase().replace("-0", "-+0")] {
        let seen = hand(&stream, Some(id)).read();
        assert_eq!(
            (seen.len(), seen[0].reason(), seen[0].missed(), &*seen[1].data),
            (2, "expired", None, "new"),
            "{id}"
        );
    }
    drop(tell);
    stream.ended().await;
    assert_eq!(data(&hand(&stream, Some(&old)).read())[1..], ["new"]);
    assert_eq!(stream.attach_from(Some(&own)).unwrap_err(), StreamError::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_events_ends_with_204_and_not_in_a_loop() {
    let streams = Streams::new();
    let (stream, tell) = started(&streams, "a");
    let mut reader = Hand::new(stream.attach(&Request::new(())).into_body());
    drop(tell);
    stream.ended().await;
    assert!(reader.read().is_empty() && reader.ended);
    let answer = streams.attach(&Request::new(()), "a", "alice");
    assert_eq!((answer.status().as_u16(), answer.body().is_end_stream()), (204, true));
}

#[tokio::test(start_paused = true)]
async fn concurrent_starts_start_one_producer() {
    let (streams, starts) = (Streams::new(), Arc::new(AtomicUsize::new(0)));
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let (streams, starts) = (streams.clone(), Arc::clone(&starts));
            tokio::spawn(async move {
                let producer = |sender: StreamSender| {
                    starts.fetch_add(1, Ordering::SeqCst);
                    async move { sender.send(Event::new().data("once")).map(drop) }
                };
                streams.get_or_start("a", "alice", producer).unwrap().ended().await
            })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), StreamEnd::Complete);
    }
    assert_eq!(starts.load(Ordering::SeqCst), 1);
    let mut reader = hand(&streams.get("a", "alice").unwrap(), None);
    assert_eq!(data(&reader.read()), ["once"]);
}

/// Tells when it is dropped.
struct Dropped(Option<oneshot::Sender<()>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.take().unwrap().send(());
    }
}

#[tokio::test(start_paused = true)]
async fn stop_drops_the_producer_and_ends_readers() {
    let streams = Streams::new();
    let (dropped, is_dropped) = oneshot::channel();
    let (part, parted) = oneshot::channel();
    let producer = |sender: StreamSender| async move {
        let _dropped = Dropped(Some(dropped));
        let other = sender.clone();
        // A task that outlives the future.
        tokio::spawn(async move {
            other.cancelled().await;
            part.send(other.send(Event::new())).unwrap();
        });
        sender.send(Event::new().data("a")).unwrap();
        std::future::pending::<Result<(), Infallible>>().await
    };
    let stream = streams.get_or_start("a", "alice", producer).unwrap();
    let mut reader = hand(&stream, None);
    settle().await;
    assert_eq!(data(&reader.read()), ["a"]);
    let woken = reader.woken();
    streams.stop("a", "alice").unwrap();
    timeout(Duration::from_secs(1), is_dropped).await.expect("the producer is dropped").unwrap();
    assert!(matches!(parted.await.unwrap(), Err(SendError::Closed)));
    settle().await;
    assert_eq!(reader.woken(), woken + 1);
    let seen = reader.read();
    assert_eq!((seen[0].name.as_str(), data(&seen)), ("stopped", vec!["{\"reason\":\"stopped\"}"]));
    assert!(reader.ended);
    // The first end counts.
    streams.stop("a", "alice").unwrap();
    assert_eq!((stream.end(), streams.stats().running), (Some(StreamEnd::Stopped), 0));
    assert_eq!(data(&hand(&stream, None).read()), ["a", "{\"reason\":\"stopped\"}"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_may_be_stopped_before_its_producer_runs() {
    let streams = Streams::new();
    let (dropped, is_dropped) = oneshot::channel();
    let dropped = Dropped(Some(dropped));
    let producer = |_| {
        streams.stop("a", "alice").unwrap();
        async move {
            let _dropped = dropped;
            std::future::pending::<Result<(), Infallible>>().await
        }
    };
    let stream = streams.get_or_start("a", "alice", producer).unwrap();
    assert_eq!(stream.end(), Some(StreamEnd::Stopped));
    timeout(Duration::from_secs(1), is_dropped).await.expect("the producer is dropped").unwrap();
}

#[tokio::test(start_paused = true)]
async fn failed_producers_end_with_an_error() {
    let streams = Streams::new();
    let fails = |sender: StreamSender| async move {
        sender.send(Event::new().data("a")).unwrap();
        Err("secret")
    };
    let panics = |sender: StreamSender| async move {
        sender.send(Event::new().data("a")).unwrap();
        panic!("secret");
        #[expect(unreachable_code, reason = "for the type")]
        Ok::<_, Infallible>(())
    };
    let failed = streams.get_or_start("fails", "alice", fails).unwrap();
    let panicked = streams.get_or_start("panics", "alice", panics).unwrap();
    for stream in [failed, panicked] {
        assert_eq!(stream.ended().await, StreamEnd::Failed);
        let seen = hand(&stream, None).read();
        assert_eq!((data(&seen), &*seen[1].name), (vec!["a", "{\"reason\":\"failed\"}"], "error"));
    }
    // A producer that panics before it has a future.
    let panics = |_| -> std::future::Ready<Result<(), Infallible>> { panic!("at once") };
    let caught = std::panic::AssertUnwindSafe(|| drop(streams.get_or_start("at once", "alice", panics)));
    assert!(std::panic::catch_unwind(caught).is_err());
    assert_eq!(streams.get("at once", "alice").unwrap().end(), Some(StreamEnd::Failed));
    assert_eq!(streams.stats().running, 0);
}

#[test]
fn a_runtime_that_ends_ends_its_streams() {
    let (streams, runtimes) = (Streams::new(), [(); 2].map(|()| testkit::http::Flavour::CurrentThread.runtime()));
    let [first, second] = runtimes;
    let stream = first.block_on(async { started(&streams, "a").0 });
    drop(first);
    assert_eq!(stream.end(), Some(StreamEnd::Failed));
    // The next call starts the task that watches over them again.
    second.block_on(async {
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert_eq!(started(&streams, "a").0.end(), Some(StreamEnd::Failed));
        assert_eq!(tasks(), 1);
        let (other, tell) = started(&streams, "b");
        drop(tell);
        other.ended().await;
        settle().await;
        assert_eq!(tasks(), 1);
    });
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_stops_all() {
    let streams = Streams::new();
    let (stream, _tell) = started(&streams, "a");
    let mut reader = hand(&stream, None);
    drop(streams.clone());
    assert_eq!(stream.end(), None);
    drop(streams);
    assert_eq!(stream.end(), Some(StreamEnd::Stopped));
    assert_eq!(reader.read().len(), 1);
    settle().await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}
