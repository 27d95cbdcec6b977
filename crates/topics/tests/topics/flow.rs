//! Which topic is next, what a frame has, and comments.

use std::sync::Arc;
use std::task::Wake;
use std::thread;
use std::time::Duration;

use http_body_util::BodyExt;
use millstream::sse::Hub;
use millstream_topics::Topics;

use super::*;

/// Maximum length of gathered events: a TLS record and a DATA frame hold them.
const GATHERED: usize = (16 << 10) - 9;

#[test]
fn a_topic_with_many_events_does_not_delay_the_others() {
    let flood = Hub::builder().queue(100_000).replay(100_000).build();
    let (topics, [b, c]) = with(Topics::public(), ["b", "c"]);
    topics.insert("a", flood.clone()).unwrap();
    let mut body = subscribe(&topics, "topic=a&topic=b&topic=c", None);
    text(&mut body);
    (0..10_000).for_each(|n| drop(send(&flood, &format!("{n:0100}"))));
    send(&b, "here");
    let mut frames = vec![frame(&mut body).unwrap()];
    send(&c, "too");
    frames.push(frame(&mut body).unwrap());
    let early = String::from_utf8(frames.concat()).unwrap();
    assert!(early.contains("data: here\n") && early.contains("data: too\n"), "in the first two frames");
    while let Some(frame) = frame(&mut body) {
        frames.push(frame);
    }
    assert!(frames.iter().all(|frame| frame.len() <= GATHERED), "{:?}", frames.iter().map(bytes::Bytes::len).max());
    assert!(frames[..90].iter().all(|frame| frame.len() > GATHERED - 1000), "they are full");
    let (got, _) = events(&String::from_utf8(frames.concat()).unwrap());
    let numbers = got.iter().filter(|got| got.topic() == "a").map(|got| got.data.parse::<u32>().unwrap());
    assert!(numbers.eq(0..10_000), "each once, in order");
}

/// A frame has room for one such event only.
#[test]
fn topics_with_long_events_take_turns() {
    for len in [10_000, 20_000] {
        let (topics, hubs) = with(Topics::public(), ["a", "b", "c"]);
        let mut body = subscribe(&topics, "topic=a&topic=b&topic=c", None);
        text(&mut body);
        for hub in &hubs {
            (0..50).for_each(|n| drop(send(hub, &format!("{n:0len$}"))));
        }
        let (got, _) = events(&text(&mut body));
        assert_eq!(got.len(), 150);
        for turn in got.chunks(3) {
            let mut topics: Vec<_> = turn.iter().map(Got::topic).collect();
            topics.sort_unstable();
            assert_eq!(topics, ["a", "b", "c"]);
        }
    }
}

#[test]
fn a_topic_that_is_there_is_not_inserted_again() {
    let topics = Topics::public().build();
    let hub = Hub::new();
    assert!(topics.insert_new("a", hub.clone()).unwrap());
    let mut body = subscribe(&topics, "topic=a", None);
    send(&hub, "1");
    assert!(!topics.insert_new("a", hub.clone()).unwrap() && topics.insert_new("", hub.clone()).is_err());
    send(&hub, "2");
    let (got, _) = events(&text(&mut body));
    assert_eq!(got[1..].iter().map(|got| &*got.data).collect::<String>(), "12");
}

#[test]
fn long_texts_are_passed_on_and_not_copied() {
    let (topics, [a, b]) = with(Topics::public(), ["a", "b"]);
    let mut bodies = [(); 2].map(|()| subscribe(&topics, "topic=a&topic=b", None));
    let long = "x".repeat(1 << 20);
    bodies.iter_mut().for_each(|body| drop(text(body)));
    send(&b, "1");
    send(&a, &long);
    send(&b, "2");
    let frames = bodies.each_mut().map(|body| std::iter::from_fn(|| frame(body)).collect::<Vec<_>>());
    let places = frames.each_ref().map(|frames| frames.iter().find(|frame| frame.len() > 1 << 20).unwrap().as_ptr());
    assert_eq!(places[0], places[1], "both have the bytes of the hub");
    for frames in frames {
        let (got, _) = events(&String::from_utf8(frames.concat()).unwrap());
        assert_eq!(got.iter().filter(|got| got.topic() == "b").map(|got| &*got.data).collect::<String>(), "12");
        assert!(got.iter().filter(|got| got.topic() == "a").map(|got| &*got.data).eq([&*long]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_response_gets_one_comment_in_a_period() {
    let period = Duration::from_secs(10);
    let names: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    for (keep_alive, comments) in [(period, 10..=20), (Duration::ZERO, 0..=0)] {
        let topics = Topics::public().keep_alive(keep_alive).build();
        for name in &names {
            topics.insert(name, Hub::builder().keep_alive(period).build()).unwrap();
        }
        let mut body = subscribe(&topics, &names.iter().map(|name| format!("topic={name}&")).collect::<String>(), None);
        text(&mut body);
        let mut all = Vec::new();
        // The hubs have 20 × 10 comments in this time.
        let _ = tokio::time::timeout(10 * period + period / 2, async {
            while let Some(frame) = body.frame().await {
                all.push(frame.unwrap().into_data().unwrap());
            }
        })
        .await;
        assert!(all.iter().all(|frame| *frame == ":\n"), "{all:?}");
        assert!(comments.contains(&all.len()), "{}", all.len());
    }
}

/// Wakes a thread that polls by hand.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn threads_that_send_wake_the_reader_each_time_it_waits() {
    testkit::http::watched(|| {
        const EVENTS: usize = 2000;
        let (topics, hubs) = (Topics::public().build(), [(); 4].map(|()| Hub::builder().queue(EVENTS).build()));
        for (n, hub) in hubs.iter().enumerate() {
            topics.insert(&n.to_string(), hub.clone()).unwrap();
        }
        let mut body = subscribe(&topics, "topic=0&topic=1&topic=2&topic=3", None);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut next = [0; 4];
        thread::scope(|scope| {
            for hub in &hubs {
                scope.spawn(|| (0..EVENTS).for_each(|n| drop(send(hub, &n.to_string()))));
            }
            while next != [EVENTS; 4] {
                match Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker)) {
                    Poll::Pending => thread::park(),
                    Poll::Ready(frame) => {
                        let frame = frame.unwrap().unwrap().into_data().unwrap();
                        let (got, _) = events(std::str::from_utf8(&frame).unwrap());
                        for got in got.iter().filter(|got| !got.data.is_empty()) {
                            let topic: usize = got.topic().parse().unwrap();
                            assert_eq!((&*got.name, got.data.parse()), ("", Ok(next[topic])), "{got:?}");
                            next[topic] += 1;
                        }
                    }
                }
            }
        });
    });
}
