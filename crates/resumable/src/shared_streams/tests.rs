//! Unit tests of `shared_streams`, with a log in memory whose answers can be held back.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Mutex, RwLock};

use bytes::Bytes;
use tokio::sync::{RwLock as AsyncRwLock, oneshot};
use tokio::time::{sleep, timeout};

use super::*;
use crate::lock::lock;
use crate::{LogPage, LogStatus, StreamLogError, Streams};
use millstream::sse::Event;
use millstream::sse::log::LogFuture;

const SECOND: Duration = Duration::from_secs(1);

/// One log.
#[derive(Debug, Default)]
struct Memory {
    events: Mutex<Vec<Bytes>>,
    token: RwLock<u64>,
    /// Locked by a test to hold back the answers to appends and beats.
    held: AsyncRwLock<()>,
    /// Locked by a test to hold back pages.
    pages: AsyncRwLock<()>,
    read: Mutex<Option<tokio::time::Instant>>,
    unreachable: RwLock<bool>,
    unreadable: RwLock<bool>,
    is_unclaimed: RwLock<bool>,
    stops: RwLock<bool>,
    end: Mutex<Option<StreamEnd>>,
}

#[derive(Clone, Debug, Default)]
struct Logs(Arc<Memory>);

impl Logs {
    fn check(&self, token: u64) -> Result<(), StreamLogError> {
        if *self.0.unreachable.read().unwrap() {
            return Err(StreamLogError::Unreachable("a test".into()));
        }
        if *self.0.token.read().unwrap() == token { Ok(()) } else { Err(StreamLogError::Lost) }
    }

    /// Takes the claim away.
    fn claim_elsewhere(&self) {
        *self.0.token.write().unwrap() += 1;
    }
}

impl StreamLogs for Logs {
    fn open<'a>(
        &'a self,
        _name: &'a str,
        _create: Option<Duration>,
    ) -> LogFuture<'a, Result<Option<Arc<dyn StreamLog>>, StreamLogError>> {
        Box::pin(async { Ok(Some(Arc::new(self.clone()) as Arc<dyn StreamLog>)) })
    }
}

impl StreamLog for Logs {
    fn epoch(&self) -> u32 {
        7
    }

    fn claim(&self, _keep: Duration) -> LogFuture<'_, Result<Option<u64>, StreamLogError>> {
        let mut token = self.0.token.write().unwrap();
        let claimed = (*token == 0).then(|| {
            *token += 1;
            *token
        });
        Box::pin(async move { Ok(claimed) })
    }

    fn append<'a>(
        &'a self,
        token: u64,
        first: u64,
        events: &'a [Bytes],
        end: Option<(StreamEnd, Duration)>,
    ) -> LogFuture<'a, Result<(), StreamLogError>> {
        Box::pin(async move {
            self.check(token)?;
            {
                let mut all = lock(&self.0.events);
                let known = all.len() - first as usize;
                all.extend_from_slice(&events[known..]);
                *lock(&self.0.end) = end.map(|(end, _)| end);
            }
            let _held = self.0.held.read().await;
            Ok(())
        })
    }

    fn beat(&self, token: Option<u64>, is_read: bool) -> LogFuture<'_, Result<LogStatus, StreamLogError>> {
        Box::pin(async move {
            if let Some(token) = token {
                self.check(token)?;
            }
            let _held = self.0.held.read().await;
            let mut read = lock(&self.0.read);
            if is_read {
                *read = Some(tokio::time::Instant::now());
            }
            let (is_claimed, stops) = (!*self.0.is_unclaimed.read().unwrap(), *self.0.stops.read().unwrap());
            Ok(LogStatus { is_claimed, stops, unread: read.map(|read| read.elapsed()) })
        })
    }

    fn read(&self, from: u64) -> LogFuture<'_, Result<LogPage, StreamLogError>> {
        Box::pin(async move {
            let _held = self.0.pages.read().await;
            if *self.0.unreadable.read().unwrap() {
                return Err(StreamLogError::Unreachable("a test".into()));
            }
            let events = lock(&self.0.events)[from as usize..].to_vec();
            Ok(LogPage { events, more: false, end: None })
        })
    }

    fn grown(&self, _from: u64) -> LogFuture<'_, ()> {
        Box::pin(sleep(SECOND / 100))
    }

    fn request_stop(&self) -> LogFuture<'_, Result<(), StreamLogError>> {
        *self.0.stops.write().unwrap() = true;
        Box::pin(async { Ok(()) })
    }
}

fn instance(logs: &Logs) -> SharedStreams {
    Streams::builder().abandoned(SECOND * 30).patience(SECOND * 5).build_shared(Arc::new(logs.clone()))
}

async fn open(streams: &SharedStreams) -> (StreamHandle, StreamSender) {
    let (told, tell) = oneshot::channel();
    let producer = |sender| async move {
        told.send(sender).unwrap();
        pending::<Result<(), Infallible>>().await
    };
    (streams.open("a", "alice", producer).await.unwrap(), tell.await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_reader_may_know_more_than_the_instance_that_writes() {
    let logs = Logs::default();
    let (one, other) = (instance(&logs), instance(&logs));
    let (stream, sender) = open(&one).await;
    sleep(SECOND / 10).await;
    let held = logs.0.held.write().await;
    let id = sender.send(Event::new().data("0")).unwrap();
    // The log has it, and the instance that writes has no answer yet.
    sleep(SECOND / 10).await;
    assert_eq!((lock(&logs.0.events).len(), stream.0.next()), (1, 0), "it is not published before the log confirms it");
    let request = Request::builder().header("last-event-id", id.to_string()).body(()).unwrap();
    let mut attaching = std::pin::pin!(one.attach(&request, "a", "alice"));
    assert!(timeout(SECOND, &mut attaching).await.is_err(), "it does not know the id yet");
    drop(held);
    assert_eq!(attaching.await.status(), 200);
    assert_eq!(stream.0.next(), 1);
    assert!(stream.0.seat(Some(&id.to_string()), false).is_ok());
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn readers_elsewhere_keep_a_producer() {
    let logs = Logs::default();
    let (one, other) = (instance(&logs), instance(&logs));
    let (stream, sender) = open(&one).await;
    sleep(SECOND * 29).await;
    let reader = other.get("a", "alice").await.unwrap().attach_from(None).unwrap();
    sleep(SECOND * 300).await;
    assert!(stream.end().is_none() && !sender.is_cancelled());
    drop(reader);
    let left = tokio::time::Instant::now();
    sender.cancelled().await;
    let took = left.elapsed();
    assert!(took >= SECOND * 30 && took <= SECOND * 31, "{took:?}");
    assert_eq!(stream.ended().await, StreamEnd::Abandoned);
}

#[tokio::test(start_paused = true)]
async fn a_lost_claim_cancels_the_producer_and_the_stream_is_found_again() {
    let logs = Logs::default();
    let one = instance(&logs);
    let (stream, sender) = open(&one).await;
    sender.send(Event::new().data("0")).unwrap();
    sleep(SECOND).await;
    assert!(stream.0.log().is_some());
    logs.claim_elsewhere();
    sender.cancelled().await;
    assert_eq!((stream.end(), stream.0.next(), one.stats().running), (Some(StreamEnd::Failed), 1, 0));
    assert!(sender.send(Event::new().data("1")).is_err());
    assert!(stream.0.log().is_none(), "the claim is released although the stream has a handle");
    assert_eq!(stream.attach_from(None).err(), Some(StreamError::Lost));
    let answer = stream.attach(&Request::new(()));
    assert!(answer.status() == 503 && answer.headers().contains_key("retry-after"));
    let found = one.get("a", "alice").await.unwrap();
    assert_eq!((found.end(), found.0.next(), one.stats().streams), (None, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_lost_while_a_reader_waits_is_found_again() {
    let logs = Logs::default();
    let one = instance(&logs);
    let (stream, sender) = open(&one).await;
    let held = logs.0.held.write().await;
    let id = sender.send(Event::new().data("0")).unwrap();
    sleep(SECOND / 10).await;
    sender.send(Event::new().data("1")).unwrap();
    let request = Request::builder().header("last-event-id", id.to_string()).body(()).unwrap();
    let mut attaching = std::pin::pin!(one.attach(&request, "a", "alice"));
    let mut opening = std::pin::pin!(one.open("a", "alice", |_| pending::<Result<(), Infallible>>()));
    assert!(timeout(SECOND, &mut attaching).await.is_err() && timeout(SECOND, &mut opening).await.is_err());
    logs.claim_elsewhere();
    drop(held);
    assert_eq!(attaching.await.status(), 200, "204 would make an EventSource stop");
    assert!(stream.0.is_lost());
    assert_eq!(opening.await.unwrap().end(), None);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_log_fails_after_the_patience_and_not_before() {
    let logs = Logs::default();
    let one = instance(&logs);
    let (stream, sender) = open(&one).await;
    sleep(SECOND).await;
    *logs.0.unreachable.write().unwrap() = true;
    sender.send(Event::new().data("0")).unwrap();
    sleep(SECOND * 4).await;
    assert!(!sender.is_cancelled());
    *logs.0.unreachable.write().unwrap() = false;
    sleep(SECOND * 2).await;
    assert_eq!((stream.end(), stream.0.next()), (None, 1));
    *logs.0.unreachable.write().unwrap() = true;
    let since = tokio::time::Instant::now();
    sender.send(Event::new().data("1")).unwrap();
    assert_eq!(stream.ended().await, StreamEnd::Failed);
    assert!(since.elapsed() >= SECOND * 5 && since.elapsed() <= SECOND * 7, "{:?}", since.elapsed());
    assert_eq!(stream.0.next(), 2, "the event of the end, and not the one that the log does not have");
}

#[tokio::test(start_paused = true)]
async fn streams_of_an_instance_that_ends_are_left_to_the_others() {
    for drops_all in [true, false] {
        let logs = Logs::default();
        let one = instance(&logs);
        let (stream, sender) = open(&one).await;
        sender.send(Event::new().data("0")).unwrap();
        sleep(SECOND / 10).await;
        let kept = (!drops_all).then_some(one);
        if !drops_all {
            // As by a runtime that ends.
            drop(Running::new(&stream.0));
        }
        sleep(SECOND).await;
        assert!(sender.is_cancelled() && stream.0.is_lost());
        assert_eq!((*lock(&logs.0.end), lock(&logs.0.events).len()), (None, 1));
        // The test and the instance have the log, the stream has released it.
        assert_eq!(Arc::strong_count(&logs.0), 1 + usize::from(kept.is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_requested_is_written_after_the_last_handle_is_dropped() {
    let logs = Logs::default();
    let one = instance(&logs);
    let (stream, _sender) = open(&one).await;
    stream.stop();
    drop(one);
    assert_eq!(stream.ended().await, StreamEnd::Stopped);
    assert_eq!(*lock(&logs.0.end), Some(StreamEnd::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_panics_has_failed_at_all_instances() {
    let logs = Logs::default();
    let one = instance(&logs);
    let producer = |_| async { if true { panic!("a test") } else { Ok::<_, Infallible>(()) } };
    let stream = one.open("a", "alice", producer).await.unwrap();
    assert_eq!((stream.ended().await, *lock(&logs.0.end)), (StreamEnd::Failed, Some(StreamEnd::Failed)));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_enters_while_the_log_is_read_is_told_at_once() {
    let logs = Logs::default();
    let (one, other) = (instance(&logs), instance(&logs));
    let _writer = open(&one).await;
    let stream = other.get("a", "alice").await.unwrap();
    sleep(SECOND / 10).await;
    let held = logs.0.pages.write().await;
    stream.0.log().unwrap().1.notify_one();
    sleep(SECOND / 10).await;
    let since = tokio::time::Instant::now();
    let _reader = stream.attach_from(None).unwrap();
    drop(held);
    sleep(SECOND / 10).await;
    assert!(lock(&logs.0.read).unwrap() >= since);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_no_instance_writes_ends_as_stopped_if_that_was_requested() {
    for (stops, end) in [(true, StreamEnd::Stopped), (false, StreamEnd::Failed)] {
        let logs = Logs::default();
        *logs.0.is_unclaimed.write().unwrap() = true;
        let one = instance(&logs);
        let stream = one.get("a", "alice").await.unwrap();
        if stops {
            one.stop("a", "alice").await.unwrap();
        }
        assert_eq!((stream.ended().await, *lock(&logs.0.end)), (end, Some(end)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_released_if_the_log_of_a_followed_stream_cannot_be_read() {
    let logs = Logs::default();
    let one = instance(&logs);
    let followed = one.get("a", "alice").await.unwrap();
    sleep(SECOND).await;
    *logs.0.unreadable.write().unwrap() = true;
    let error = one.open("a", "alice", |_| pending::<Result<(), Infallible>>()).await.err();
    assert!(matches!(error, Some(SharedError::Log(_))) && *logs.0.token.read().unwrap() == 1, "{error:?}");
    *logs.0.unreadable.write().unwrap() = false;
    assert!(followed.0.is_lost(), "nothing else would end it");
    sleep(SECOND).await;
    // The test and the instance have the log, the stream has released it.
    assert_eq!(Arc::strong_count(&logs.0), 2);
    *logs.0.token.write().unwrap() = 0;
    let (stream, _sender) = open(&one).await;
    assert!(!Arc::ptr_eq(&followed.0, &stream.0) && stream.end().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_age_counts_from_the_continuation() {
    let logs = Logs::default();
    let one = Streams::builder().max_age(SECOND * 60).build_shared(Arc::new(logs.clone()));
    let followed = one.get("a", "alice").await.unwrap();
    sleep(SECOND * 50).await;
    let (stream, _sender) = open(&one).await;
    assert!(Arc::ptr_eq(&followed.0, &stream.0));
    let (continued, _reader) = (tokio::time::Instant::now(), stream.attach_from(None).unwrap());
    assert_eq!(stream.ended().await, StreamEnd::Expired);
    assert!(continued.elapsed() >= SECOND * 60 && continued.elapsed() <= SECOND * 61, "{:?}", continued.elapsed());
}

#[test]
fn a_table_that_was_full_when_its_runtime_ended_empties_in_the_next_one() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let one = Streams::builder().streams(1).build_shared(Arc::new(Logs::default()));
    runtime().block_on(one.get("a", "alice")).unwrap();
    runtime().block_on(async {
        let full = one.get("b", "alice").await.err();
        assert!(matches!(full, Some(SharedError::Stream(StreamError::Full))));
        sleep(SECOND * 600).await;
        one.get("b", "alice").await.unwrap();
    });
}
