//! `Streams`: streams with a key, which outlive their readers.

mod disk;
mod memory;
mod owners;
mod readers;
mod resumed;
mod served;
mod times;

use std::convert::Infallible;

use millstream::sse::Event;
use millstream_resumable::{StreamHandle, StreamSender, Streams};
use testkit::parse::{Hand, Seen};
use tokio::sync::mpsc;

/// The input of a producer, which ends when this is dropped.
struct Tell(mpsc::Sender<String>);

impl Tell {
    fn send(&self, data: impl Into<String>) {
        self.0.try_send(data.into()).unwrap();
    }
}

/// A stream whose producer sends the events of the test.
fn started(streams: &Streams, key: &str) -> (StreamHandle, Tell) {
    let (tell, mut told) = mpsc::channel::<String>(1000);
    let producer = |sender: StreamSender| async move {
        while let Some(data) = told.recv().await {
            sender.send(Event::new().data(data)).unwrap();
        }
        Ok::<_, Infallible>(())
    };
    (streams.get_or_start(key, "alice", producer).unwrap(), Tell(tell))
}

fn hand(stream: &StreamHandle, last: Option<&str>) -> Hand {
    Hand::new(stream.attach_from(last).unwrap())
}

/// Lets all tasks run that can.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn data(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(|seen| &*seen.data).collect()
}
