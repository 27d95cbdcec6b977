//! Producers: one for each stream, alive as long as the stream is read anywhere, and continued after the death of their
//! process.

use std::convert::Infallible;
use std::future::pending;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::Request;
use millstream::sse::Event;
use millstream_resumable::{SharedStreams, StreamEnd, StreamHandle, StreamSender};
use tokio::sync::{Barrier, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{Lag, Place, Random, count_to, data, instance, options, two, waiting, whole};
use crate::{HANGS, child};

const SECOND: Duration = Duration::from_secs(1);

/// Two instances that open a stream at the same moment start one producer.
pub async fn one_producer(place: &impl Place) {
    let instances = two(place, options()).await;
    for n in 0..40 {
        let (starts, together) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(4)));
        let mut opening = JoinSet::new();
        for number in 0..4 {
            let (streams, starts, together) =
                (instances[number % 2].clone(), Arc::clone(&starts), Arc::clone(&together));
            opening.spawn(async move {
                together.wait().await;
                let producer = move |sender| {
                    starts.fetch_add(1, Ordering::SeqCst);
                    count_to(sender, 5, Duration::ZERO)
                };
                let stream = streams.open(&n.to_string(), "alice", producer).await.unwrap();
                (whole(&stream).await, stream.ended().await)
            });
        }
        let mut all = Vec::new();
        while let Some(read) = opening.join_next().await {
            all.push(read.unwrap());
        }
        assert_eq!(starts.load(Ordering::SeqCst), 1, "{n}");
        assert!(all.iter().all(|read| *read == all[0]), "{all:?}");
        assert_eq!((data(&all[0].0), all[0].1), (vec!["0", "1", "2", "3", "4"], StreamEnd::Complete));
    }
}

/// A producer is cancelled within a second after the grace when the last reader anywhere has left, and not before.
///
/// Instances tell each other of readers several times a second. The grace is far longer, because a machine that stands
/// still for the grace leaves a reader unknown.
pub async fn abandoned_in_time(place: &impl Place, streams: u64) {
    let (grace, lag) = (SECOND * 5, Arc::new(Lag::start()));
    let instances = two(place, options().abandoned(grace)).await;
    let mut tasks = JoinSet::new();
    for seed in 0..streams {
        let (instances, lag) = (instances.clone(), Arc::clone(&lag));
        tasks.spawn(async move {
            let (mut random, key) = (Random(seed), seed.to_string());
            // The time of the first reader begins with its stream.
            let (mut leaves, mut still) = (Instant::now(), lag.total());
            let (stream, mut dropped) = waiting(&instances[random.below(2) as usize], &key).await;
            for _ in 0..random.below(3) {
                sleep(random.millis(900)).await;
                let reader = &instances[random.below(2) as usize];
                still = lag.total();
                let answer = reader.attach(&Request::new(()), &key, "alice").await;
                assert_eq!(answer.status(), 200, "{seed}");
                sleep(random.millis(8000)).await;
                assert!(dropped.try_recv().is_err(), "stream {seed} was cancelled while it was read");
                leaves = Instant::now();
                drop(answer);
            }
            let (left, behind) = (Instant::now(), lag.total());
            let at = timeout(HANGS, dropped).await.expect("it is cancelled").unwrap();
            assert_eq!(stream.ended().await, StreamEnd::Abandoned);
            // The last beat of the reader was before the machine stood still.
            let lived = at.saturating_duration_since(leaves) + (lag.total() - still);
            assert!(lived + Duration::from_millis(20) >= grace, "cancelled after {lived:?}");
            at.saturating_duration_since(left).saturating_sub(lag.total() - behind)
        });
    }
    let mut longest = Duration::ZERO;
    while let Some(took) = tasks.join_next().await {
        longest = longest.max(took.unwrap());
    }
    println!("{streams} streams were cancelled at most {longest:?} after the last reader left; lag {:?}", lag.total());
    assert!(longest <= grace + SECOND, "{longest:?}");
}

/// Starts a stream in a runtime, and ends the runtime when it has sent `events` events.
async fn die(place: &impl Place, key: &'static str, events: u64) {
    let streams = instance(place, options()).await;
    let done = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let producer = async move |sender: StreamSender| {
                count_to(sender, events, Duration::ZERO).await.unwrap();
                pending::<Result<(), Infallible>>().await
            };
            let stream = streams.open(key, "alice", producer).await.unwrap();
            let last = stream.attach_from(None).unwrap();
            let mut reader = crate::events::Reader::new(last);
            reader.data(events as usize).await;
        });
        runtime.shutdown_timeout(HANGS);
    });
    done.await.unwrap();
}

/// After the death of the instance that writes, another one continues behind its last event.
pub async fn continued_after_death(place: &impl Place) {
    let [other, third] = two(place, options()).await;
    die(place, "continued", 10).await;
    let reader = other.get("continued", "alice").await.unwrap();
    assert_eq!(reader.end(), None);
    let reading = tokio::spawn(async move { whole(&reader).await });
    let resumed = Arc::new(AtomicUsize::new(0));
    let since = Instant::now();
    while resumed.load(Ordering::SeqCst) == 0 {
        assert!(since.elapsed() < HANGS, "nobody continues");
        let told = Arc::clone(&resumed);
        let producer = move |sender: StreamSender| {
            told.store(sender.resumed_from() as usize, Ordering::SeqCst);
            count_to(sender, 20, Duration::ZERO)
        };
        third.open("continued", "alice", producer).await.unwrap();
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(resumed.load(Ordering::SeqCst), 10);
    let expected: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    assert_eq!(data(&reading.await.unwrap()), expected);
    assert_eq!(data(&whole(&third.get("continued", "alice").await.unwrap()).await), expected);
}

/// A stream that no instance continues ends as failed, at all instances.
pub async fn orphans_fail(place: &impl Place) {
    let [other, third] = two(place, options().patience(SECOND)).await;
    die(place, "orphan", 3).await;
    let reader = other.get("orphan", "alice").await.unwrap();
    let events = whole(&reader).await;
    assert_eq!(data(&events), ["0", "1", "2", "{\"reason\":\"failed\"}"]);
    assert_eq!(reader.end(), Some(StreamEnd::Failed));
    let same = third.get("orphan", "alice").await.unwrap();
    assert_eq!((whole(&same).await, same.end()), (events, Some(StreamEnd::Failed)));
}

/// The process that [`killed_writers`] kills: it writes until then.
pub async fn killed_writer(place: &impl Place, round: &str) {
    let streams = instance(place, options()).await;
    for n in 0..4 {
        let producer = async |sender: StreamSender| {
            for n in sender.resumed_from().. {
                sender.send(Event::new().data(numbered(n))).unwrap();
                if n % 7 == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            }
            Ok::<_, Infallible>(())
        };
        drop(streams.open(&format!("{round} {n}"), "alice", producer).await.unwrap());
    }
    pending::<()>().await;
}

fn numbered(n: u64) -> String {
    format!("{n} {}", "x".repeat(n as usize % 3000))
}

/// Kills a process that writes, at random moments. No reader gets an event twice or another one, and the streams
/// continue. `test` is the path of a test that calls [`killed_writer`] with the two parts of its task: the place
/// `what`, a `#`, and the round.
pub async fn killed_writers(place: &impl Place, test: &str, what: &str) {
    let other = instance(place, options().abandoned(HANGS)).await;
    for round in 0..4 {
        let mut command = child::command(test, &format!("{what}#{round}"));
        let mut writer = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let keys: Vec<_> = (0..4).map(|n| format!("{round} {n}")).collect();
        let mut readers = Vec::new();
        for key in &keys {
            let stream = found(&other, key).await;
            readers.push(tokio::spawn(async move { whole(&stream).await }));
        }
        sleep(Random(round).millis(400)).await;
        writer.kill().unwrap();
        writer.wait().unwrap();
        let later = instance(place, options()).await;
        for (key, reading) in keys.iter().zip(readers) {
            let resumed = continued(&other, key).await;
            let read = reading.await.unwrap();
            let expected: Vec<String> = (0..resumed).map(numbered).chain(["the end".to_owned()]).collect();
            assert!(data(&read) == expected, "{key}: {} events, {resumed} in the log", data(&read).len());
            // A later process has the same.
            assert!(whole(&found(&later, key).await).await == read, "{key}");
            println!("{key}: {resumed} events before the kill");
        }
    }
}

async fn found(streams: &SharedStreams, key: &str) -> StreamHandle {
    let since = Instant::now();
    loop {
        match streams.get(key, "alice").await {
            Ok(stream) => return stream,
            Err(e) => assert!(since.elapsed() < HANGS, "{e}"),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Opens a stream until its producer is called. It sends one more event. Returns how many there were before.
async fn continued(streams: &SharedStreams, key: &str) -> u64 {
    let since = Instant::now();
    loop {
        let (told, tell) = oneshot::channel();
        let producer = move |sender: StreamSender| async move {
            told.send(sender.resumed_from()).unwrap();
            sender.send(Event::new().data("the end")).map(drop)
        };
        drop(streams.open(key, "alice", producer).await.unwrap());
        if let Ok(resumed) = tell.await {
            return resumed;
        }
        assert!(since.elapsed() < HANGS, "nobody continues");
        sleep(Duration::from_millis(20)).await;
    }
}
