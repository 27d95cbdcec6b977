//! Streams of several instances, whose source is lost when an instance ends.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millstream::sse::log::LogFuture;
use millstream_resumable::{
    LogPage, LogStatus, SharedStreams, StreamEnd, StreamHandle, StreamLog, StreamLogError, StreamLogs, Streams,
};
use millstream_topics::Topics;
use tokio::time::sleep;

use super::requests::{error, refusal};
use super::*;

type LogResult<T> = Result<T, StreamLogError>;

/// The log of one stream, for instances of which one lives at a time.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<Bytes>>>);

impl StreamLogs for Log {
    fn open<'a>(
        &'a self,
        _name: &'a str,
        _create: Option<Duration>,
    ) -> LogFuture<'a, LogResult<Option<Arc<dyn StreamLog>>>> {
        Box::pin(async { Ok(Some(Arc::new(self.clone()) as Arc<dyn StreamLog>)) })
    }
}

impl StreamLog for Log {
    fn epoch(&self) -> u32 {
        7
    }

    fn claim(&self, _keep: Duration) -> LogFuture<'_, LogResult<Option<u64>>> {
        Box::pin(async { Ok(Some(1)) })
    }

    fn append<'a>(
        &'a self,
        _token: u64,
        _first: u64,
        events: &'a [Bytes],
        _end: Option<(StreamEnd, Duration)>,
    ) -> LogFuture<'a, LogResult<()>> {
        self.0.lock().unwrap().extend_from_slice(events);
        Box::pin(async { Ok(()) })
    }

    fn beat(&self, _token: Option<u64>, _is_read: bool) -> LogFuture<'_, LogResult<LogStatus>> {
        Box::pin(async {
            let mut status = LogStatus::default();
            status.is_claimed = true;
            Ok(status)
        })
    }

    fn read(&self, from: u64) -> LogFuture<'_, LogResult<LogPage>> {
        Box::pin(async move {
            let mut page = LogPage::default();
            page.events = self.0.lock().unwrap()[from as usize..].to_vec();
            Ok(page)
        })
    }

    fn grown(&self, _from: u64) -> LogFuture<'_, ()> {
        Box::pin(pending())
    }

    fn request_stop(&self) -> LogFuture<'_, LogResult<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// Opens the stream at an instance, with an event of this data behind those that the log has.
async fn open(streams: &SharedStreams, data: &'static str) -> StreamHandle {
    let producer = async move |sender: millstream_resumable::StreamSender| {
        sender.send(Event::new().data(data))?;
        pending::<Result<(), millstream::sse::SendError>>().await
    };
    let stream = streams.open("k", "alice", producer).await.unwrap();
    // The clock is paused: it goes on when the log has the event.
    sleep(Duration::from_secs(1)).await;
    stream
}

fn data(text: &str) -> String {
    assert!(!text.contains("topic-end"), "{text}");
    events(text).0.into_iter().map(|got| got.data).collect()
}

#[tokio::test(start_paused = true)]
async fn a_lost_stream_is_replaced_by_the_next_insertion() {
    let log = Log::default();
    let instance = || Streams::builder().build_shared(Arc::new(log.clone()));
    let (topics, [a]) = with(Topics::public(), ["a"]);
    let one = instance();
    let stream = open(&one, "0").await;
    assert!(topics.insert_new("k", stream.clone()).unwrap());
    assert!(!topics.insert_new("k", stream.clone()).unwrap(), "it is not lost");
    let query = "topic=a&topic=k";
    let (mut told, mut late) = (subscribe(&topics, query, None), subscribe(&topics, query, None));
    let first = text(&mut told);
    assert_eq!((data(&first), data(&text(&mut late))), ("0".to_owned(), "0".to_owned()));
    drop(one);
    assert_eq!(stream.ended().await, StreamEnd::Failed);
    assert!(stream.is_lost());
    sleep(Duration::from_secs(1)).await;
    assert_eq!((data(&text(&mut told)), told.is_end_stream()), (String::new(), true), "it reconnects");
    drop(told);
    let (status, text_, retry) = refusal(topics.subscribe(&get(query)));
    assert_eq!((status, text_), (503, error("lost", None)));
    assert!((1..=3).contains(&retry.unwrap()), "{retry:?}");
    assert_eq!((topics.stats().refused, topics.stats().readers), (0, 1), "there are not too many");

    let other = instance();
    assert!(topics.insert_new("k", open(&other, "1").await).unwrap());
    // A reader that has not noticed it does not get the events of the next source from the first one on.
    assert_eq!((data(&text(&mut late)), late.is_end_stream()), (String::new(), true));
    let mut again = subscribe(&topics, query, Some(&last(&first)));
    send(&a, "2");
    assert_eq!(data(&text(&mut again)).chars().filter(|got| *got != '2').collect::<String>(), "1");
}
