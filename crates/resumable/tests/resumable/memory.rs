//! The memory of an idle stream.

use allocation_counter::measure;
use millstream::sse::{Event, SendError};
use millstream_resumable::{StreamSender, Streams};
use testkit::alone;
use testkit::http::{Flavour, watched};

use super::{hand, settle};

const STREAMS: usize = 100_000;
/// Heap of a stream with five short events and no readers, in bytes.
const MOST: i64 = 1024;

/// The names of conversations and sessions.
fn key(n: usize) -> String {
    format!("/conversations/7b1c2e9a-{n:012}/answers/{n}")
}

/// Returns the heap of each of many streams, which have ended or wait.
fn heap(ends: bool) -> i64 {
    let runtime = Flavour::CurrentThread.runtime();
    let streams = Streams::builder().streams(STREAMS).build();
    let counted = measure(|| {
        runtime.block_on(async {
            for n in 0..STREAMS {
                let producer = async move |sender: StreamSender| {
                    for n in 0..5 {
                        sender.send(Event::new().data(format!("token {n}")))?;
                    }
                    if !ends {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, SendError>(())
                };
                drop(streams.get_or_start(&key(n), "session-0123456789abcdef", producer).unwrap());
            }
            // The tasks run in the order of their starts.
            let last = streams.get(&key(STREAMS - 1), "session-0123456789abcdef").unwrap();
            while !format!("{last:?}").contains("events: 5") {
                settle().await;
            }
        });
    });
    assert_eq!(streams.stats().running, if ends { 0 } else { STREAMS });
    let last = streams.get(&key(STREAMS - 1), "session-0123456789abcdef").unwrap();
    assert_eq!(hand(&last, None).read().len(), 5);
    counted.bytes_current / STREAMS as i64
}

#[test]
fn an_idle_stream_costs_less_than_a_kibibyte() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        for ends in [true, false] {
            let heap = heap(ends);
            println!("a stream that {}: {heap} bytes", if ends { "has ended" } else { "waits" });
            assert!((300..=MOST).contains(&heap), "{heap} bytes");
        }
    });
}
