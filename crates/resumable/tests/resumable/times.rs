//! Times to live, abandoned streams, and the task that watches over all streams.

use std::time::Duration;

use millstream::metrics::Snapshot;
use millstream_resumable::{StreamEnd, StreamError, Streams};
use testkit::alone;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::{data, hand, settle, started};

const TTL: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

fn streams() -> Streams {
    Streams::builder().ttl(TTL).abandoned(GRACE).keep_alive(Duration::ZERO).build()
}

#[tokio::test(start_paused = true)]
async fn events_stay_for_the_time_to_live() {
    let streams = streams();
    let (stream, tell) = started(&streams, "a");
    tell.send("a");
    sleep(SECOND).await;
    drop(tell);
    stream.ended().await;
    drop(stream);
    sleep(TTL - SECOND / 2).await;
    let mut late = hand(&streams.get("a", "alice").unwrap(), None);
    sleep(SECOND).await;
    assert_eq!(streams.get("a", "alice").unwrap_err(), StreamError::NotFound);
    assert_eq!((streams.stats().streams, streams.stats().running), (0, 0));
    // A reader that was in time gets everything.
    assert_eq!(data(&late.read()), ["a"]);
    assert!(late.ended);
    settle().await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_abandoned_after_the_time_without_readers() {
    let streams = streams();
    let start = Instant::now();
    let (stream, _tell) = started(&streams, "a");
    assert_eq!(stream.ended().await, StreamEnd::Abandoned);
    assert!(start.elapsed() >= GRACE && start.elapsed() <= GRACE + SECOND, "{:?}", start.elapsed());
    let mut reader = hand(&stream, None);
    assert_eq!(data(&reader.read()), ["{\"reason\":\"abandoned\"}"]);
    assert!(reader.ended);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_never_abandoned_while_it_is_read() {
    let streams = streams();
    let (stream, tell) = started(&streams, "a");
    sleep(GRACE - SECOND).await;
    let reader = hand(&stream, None);
    assert!(timeout(GRACE * 20, stream.ended()).await.is_err());
    // The time begins again when the last of them leaves.
    let other = hand(&stream, None);
    drop(reader);
    assert!(timeout(GRACE * 3, stream.ended()).await.is_err());
    drop(other);
    sleep(GRACE - SECOND).await;
    drop(hand(&stream, None));
    let left = Instant::now();
    assert_eq!(stream.ended().await, StreamEnd::Abandoned);
    assert!(left.elapsed() >= GRACE && left.elapsed() <= GRACE + SECOND, "{:?}", left.elapsed());
    settle().await;
    assert!(tell.0.is_closed(), "the producer is dropped");
}

#[tokio::test(start_paused = true)]
async fn no_stream_runs_longer_than_it_may() {
    let streams = Streams::builder().max_age(GRACE * 5).abandoned(GRACE).keep_alive(Duration::ZERO).build();
    let start = Instant::now();
    let (stream, _tell) = started(&streams, "a");
    let mut reader = hand(&stream, None);
    assert_eq!(stream.ended().await, StreamEnd::Expired);
    assert!(start.elapsed() >= GRACE * 5 && start.elapsed() <= GRACE * 5 + SECOND, "{:?}", start.elapsed());
    assert_eq!(data(&reader.read()), ["{\"reason\":\"expired\"}"]);
    assert!(reader.ended);
}

#[tokio::test(start_paused = true)]
async fn one_task_watches_over_all_streams() {
    let (streams, metrics) = (streams(), Handle::current().metrics());
    for n in 0..1000 {
        let (stream, tell) = started(&streams, &n.to_string());
        drop(tell);
        assert_eq!(stream.ended().await, StreamEnd::Complete);
    }
    settle().await;
    assert_eq!((streams.stats().streams, streams.stats().running), (1000, 0));
    assert_eq!(metrics.num_alive_tasks(), 1);
    sleep(TTL + SECOND).await;
    settle().await;
    assert_eq!((streams.stats().streams, metrics.num_alive_tasks()), (0, 0));
    // It starts again.
    let (stream, tell) = started(&streams, "again");
    assert_eq!(stream.ended().await, StreamEnd::Abandoned);
    assert!(tell.0.is_closed());
    drop(stream);
    sleep(TTL + SECOND).await;
    settle().await;
    assert_eq!((streams.stats().streams, metrics.num_alive_tasks()), (0, 0));
}

#[test]
fn starts_and_ends_are_counted() {
    if alone::ran_in_child() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let before = Snapshot::now();
        let streams = Streams::builder().ttl(TTL).abandoned(GRACE).max_age(GRACE * 2).build();
        let [(read, _read), (_, completed), (stopped, _stopped), (abandoned, _abandoned)] =
            ["a", "b", "c", "d"].map(|key| started(&streams, key));
        let fails = |_| async { Err("no answer") };
        let failed = streams.get_or_start("e", "alice", fails).unwrap();
        drop(completed);
        stopped.stop();
        let reader = hand(&read, None);
        assert_eq!(Snapshot::now().since(&before).kept_streams, 5);
        assert_eq!(failed.ended().await, StreamEnd::Failed);
        assert_eq!(abandoned.ended().await, StreamEnd::Abandoned);
        assert_eq!(read.ended().await, StreamEnd::Expired);
        drop((reader, read, stopped, abandoned, failed));
        sleep(TTL + SECOND).await;
        let counted = Snapshot::now().since(&before);
        assert_eq!((counted.streams_started, counted.streams_completed, counted.streams_failed), (5, 1, 1));
        assert_eq!((counted.streams_stopped, counted.streams_abandoned, counted.streams_expired), (1, 1, 1));
        assert_eq!((counted.kept_streams, streams.stats().streams), (0, 0));
    });
}

#[tokio::test(start_paused = true)]
async fn a_stream_with_a_short_life_does_not_wait_for_the_others() {
    // The first stream is checked late; the second one is due before.
    let streams = Streams::builder().ttl(GRACE * 10).abandoned(GRACE).build();
    let (first, tell) = started(&streams, "first");
    drop(tell);
    first.ended().await;
    sleep(GRACE * 2).await;
    let start = Instant::now();
    let (second, _tell) = started(&streams, "second");
    assert_eq!(second.ended().await, StreamEnd::Abandoned);
    assert!(start.elapsed() <= GRACE + SECOND, "{:?}", start.elapsed());
}
