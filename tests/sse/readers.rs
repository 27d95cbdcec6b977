//! Readers that share a ring: events in order, once, or a report of missed ones. Polled by hand, outside of every
//! runtime.

use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake};

use hyper::body::Body;
use millstream::metrics::Snapshot;
use millstream::sse::{Event, Hub, LagPolicy};
use proptest::prelude::*;

use crate::parse::{Hand, Seen};
use testkit::http::watched;

fn send(hub: &Hub, n: u64) {
    hub.send(Event::new().data(n.to_string())).unwrap();
}

fn subscribe(hub: &Hub, last: Option<&str>) -> Hand {
    Hand::new(hub.subscribe_from(last).unwrap())
}

#[test]
fn who_waits_is_woken_and_who_is_busy_is_not() {
    let hub = Hub::new();
    let mut waits = subscribe(&hub, None);
    let busy = subscribe(&hub, None);
    assert!(waits.read().is_empty());
    send(&hub, 0);
    send(&hub, 1);
    assert_eq!((waits.woken(), busy.woken()), (1, 0));
    assert_eq!(waits.data(), ["0", "1"]);
    assert_eq!(waits.frames, 1, "events that wait are merged");
    send(&hub, 2);
    assert_eq!(waits.woken(), 2);
    assert_eq!(hub.stats().delivered, 2);
}

/// A waker that polls a new reader whenever it is woken.
struct Greeter(Hub);

impl Wake for Greeter {
    fn wake(self: Arc<Self>) {
        assert_eq!(subscribe(&self.0, None).read(), []);
    }
}

#[test]
fn a_waker_may_poll_another_reader() {
    watched(|| {
        let hub = Hub::new();
        let mut body = hub.subscribe_from(None).unwrap();
        let waker = Arc::new(Greeter(hub.clone())).into();
        assert!(Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker)).is_pending());
        send(&hub, 0);
        assert_eq!(Hand::new(body).data(), ["0"]);
    });
}

#[test]
fn frames_are_shared_and_have_a_bound() {
    let hub = Hub::new();
    let mut readers = [subscribe(&hub, None), subscribe(&hub, None)];
    for n in 0..100 {
        hub.send(Event::new().data(format!("{n:01000}"))).unwrap();
    }
    hub.send(Event::new().data("x".repeat(100_000))).unwrap();
    for reader in &mut readers {
        let seen = reader.data();
        assert_eq!(seen.len(), 101);
        assert!(seen[..100].iter().enumerate().all(|(n, data)| *data == format!("{n:01000}")));
        assert_eq!(seen[100].len(), 100_000);
        // 15 of these with their ids are just below 16 KiB; the long one is in its own frame.
        assert_eq!(reader.frames, 8);
    }
}

#[test]
fn what_the_ring_keeps_has_bounds() {
    let hub = Hub::builder().replay(10).queue(1).build();
    (0..30).for_each(|n| send(&hub, n));
    assert_eq!(hub.stats().ring_events, 10);

    let hub = Hub::builder().replay_bytes(10_000).build();
    (0..30).for_each(|_| drop(hub.send(Event::new().data("x".repeat(1000)))));
    let stats = hub.stats();
    assert!(stats.ring_events == 9 && stats.ring_bytes <= 10_000, "{stats:?}");
    hub.send(Event::new().data("x".repeat(50_000))).unwrap();
    assert_eq!(hub.stats().ring_events, 1, "the newest event is kept at any size");
}

#[test]
fn ids_lead_back_to_where_they_were() {
    let before = Snapshot::now();
    let hub = Hub::builder().replay(4).queue(4).build();
    let ids: Vec<String> = (0..10).map(|n| hub.send(Event::new().data(n.to_string())).unwrap().to_string()).collect();
    assert_eq!(subscribe(&hub, Some(&ids[9])).read(), []);
    assert_eq!(subscribe(&hub, Some(&ids[7])).data(), ["8", "9"]);
    // The id before the oldest event: nothing is missing.
    assert_eq!(subscribe(&hub, Some(&ids[5])).data(), ["6", "7", "8", "9"]);
    let seen = subscribe(&hub, Some(&ids[2])).read();
    assert_eq!((seen[0].reason(), seen[0].missed(), seen.len()), ("expired", Some(3), 5));
    // Ids of an earlier hub, of the future, and forged ones.
    let (epoch, _) = ids[0].split_once('-').unwrap();
    let other = Hub::new().send(Event::new()).unwrap().to_string();
    for id in [&other, &format!("{epoch}-10"), &format!("{epoch}-+7"), &format!("{epoch}-07"), "7", "é"] {
        let seen = subscribe(&hub, Some(id)).read();
        assert_eq!((seen[0].reason(), seen[0].missed(), seen.len()), ("expired", None, 5), "{id}");
        assert_eq!(seen[0].id, "");
    }
    assert_eq!((hub.stats().gaps, hub.stats().bad_ids), (7, 0));
    for id in ["a\0", "a\nb", &"x".repeat(1025)] {
        assert_eq!(subscribe(&hub, Some(id)).read(), [], "{id:?}");
    }
    assert_eq!(hub.stats().bad_ids, 3);
    // The process counts them too, together with those of other hubs.
    let counted = Snapshot::now().since(&before);
    assert!(counted.event_gaps >= 7 && counted.event_ids_refused >= 3, "{counted}");
}

#[test]
fn of_ids_that_come_twice_the_last_counts() {
    let hub = Hub::builder().replay(3).queue(3).build();
    for (id, n) in [("a", 0), ("b", 1), ("a", 2), ("c", 3)] {
        hub.send(Event::new().id(id).data(n.to_string())).unwrap();
    }
    // The first `a` has left the ring, the second has not.
    assert_eq!(subscribe(&hub, Some("a")).data(), ["3"]);
    hub.send(Event::new().id("d").data("4")).unwrap();
    assert_eq!(subscribe(&hub, Some("b")).data(), ["2", "3", "4"]);
}

#[test]
fn an_id_that_was_given_is_followed_by_numbers() {
    let hub = Hub::builder().replay(2).queue(2).build();
    hub.send(Event::new().id("a").data("0")).unwrap();
    (1..3).for_each(|n| send(&hub, n));
    assert_eq!(subscribe(&hub, Some("a")).data(), ["1", "2"]);
    send(&hub, 3);
    let seen = subscribe(&hub, Some("a")).read();
    assert_eq!((seen[0].reason(), seen.len()), ("expired", 3));
}

/// A reader that checks its events against those sent.
struct Checked {
    reader: Hand,
    /// The last id, kept across connections.
    last: Option<String>,
    /// Next expected event; `None` after a gap of unknown length.
    next: Option<u64>,
    gaps: u64,
}

impl Checked {
    fn take(&mut self, seen: Vec<Seen>) {
        for seen in seen {
            if seen.name == "gap" {
                self.gaps += 1;
                self.next = self.next.zip(seen.missed()).map(|(next, missed)| next + missed);
                continue;
            }
            let n: u64 = seen.data.parse().unwrap();
            assert_eq!(n, self.next.unwrap_or(n), "lost, doubled or out of order");
            self.next = Some(n + 1);
            self.last = Some(seen.id);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(u64),
    Frame(usize),
    Read(usize),
    Reconnect(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1u64..12).prop_map(Step::Send),
        3 => (0usize..3).prop_map(Step::Frame),
        2 => (0usize..3).prop_map(Step::Read),
        2 => (0usize..3).prop_map(Step::Reconnect),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn every_event_once_in_order_or_a_gap_that_counts(
        steps in steps(),
        slow in prop::sample::select(vec![LagPolicy::DropOldest, LagPolicy::Latest, LagPolicy::Disconnect]),
        (replay, queue) in (1usize..20, 1usize..20),
        own_ids in prop::sample::select(vec![0u64, 1, 2, 3]),
    ) {
        let hub = Hub::builder().replay(replay).queue(queue).lag_policy(slow).build();
        let mut sent = 0;
        let fresh = || Checked { reader: subscribe(&hub, None), last: None, next: Some(0), gaps: 0 };
        let mut readers: Vec<_> = (0..3).map(|_| fresh()).collect();
        for step in steps {
            match step {
                Step::Send(count) => {
                    for n in sent..sent + count {
                        let event = Event::new().data(n.to_string());
                        hub.send(if n * n % 3 < own_ids { event.id(format!("id {n}")) } else { event }).unwrap();
                    }
                    sent += count;
                }
                Step::Frame(n) => {
                    let seen = readers[n].reader.frame();
                    readers[n].take(seen.unwrap_or_default());
                }
                Step::Read(n) => {
                    let seen = readers[n].reader.read();
                    readers[n].take(seen);
                    if !readers[n].reader.ended {
                        prop_assert_eq!(readers[n].next, Some(sent));
                    }
                }
                Step::Reconnect(n) => {
                    let reader = &mut readers[n];
                    match reader.last.clone() {
                        Some(last) => {
                            // After the last id it read at most a gap, which will be sent again.
                            reader.next = None;
                            let number: u64 = last.strip_prefix("id ").unwrap_or_else(|| last.split_once('-').unwrap().1).parse().unwrap();
                            reader.next.replace(number + 1);
                            reader.reader = subscribe(&hub, Some(&last));
                        }
                        None => *reader = Checked { next: Some(sent), ..fresh() },
                    }
                }
            }
        }
        for reader in &mut readers {
            let seen = reader.reader.read();
            reader.take(seen);
            match reader.reader.ended {
                true => prop_assert_eq!(slow, LagPolicy::Disconnect),
                false => prop_assert_eq!(reader.next, Some(sent), "gaps: {}", reader.gaps),
            }
        }
        drop(readers);
        prop_assert_eq!(hub.stats().subscribers, 0);
    }
}

#[test]
fn a_slow_reader_is_told_how_many_it_missed() {
    for (slow, missed, rest) in [(LagPolicy::DropOldest, 15, 15..20), (LagPolicy::Latest, 19, 19..20)] {
        let hub = Hub::builder().queue(5).lag_policy(slow).build();
        let mut reader = subscribe(&hub, None);
        (0..20).for_each(|n| send(&hub, n));
        let seen = reader.read();
        assert_eq!((seen[0].reason(), seen[0].missed()), ("slow", Some(missed)), "{slow:?}");
        assert!(seen[1..].iter().map(|seen| seen.data.clone()).eq(rest.map(|n| n.to_string())), "{slow:?}: {seen:?}");
        let stats = hub.stats();
        assert_eq!((stats.dropped, stats.gaps, stats.delivered), (missed, 1, 20 - missed));
    }
}

#[test]
fn a_reader_that_is_disconnected_comes_back_without_loss() {
    let hub = Hub::builder().replay(50).queue(5).lag_policy(LagPolicy::Disconnect).build();
    let mut reader = subscribe(&hub, None);
    (0..5).for_each(|n| send(&hub, n));
    assert_eq!(reader.data(), ["0", "1", "2", "3", "4"]);
    (5..20).for_each(|n| send(&hub, n));
    assert!(reader.read().is_empty() && reader.ended);
    assert_eq!((reader.parser.has_retry(), hub.stats().subscribers), (true, 0));
    // The new reader may start farther behind than the queue.
    let mut again = subscribe(&hub, Some(&reader.parser.last_id));
    assert!(again.data().into_iter().eq((5..20).map(|n| n.to_string())));
}

#[test]
fn threads_wake_readers_outside_of_runtimes() {
    watched(|| {
        let hub = Hub::new();
        let (tell, told) = mpsc::channel();
        let mut body = hub.subscribe_from(None).unwrap();
        let reader = std::thread::spawn(move || {
            let mut parser = crate::parse::Parser::default();
            let mut seen = 0;
            let frame = || std::pin::pin!(http_body_util::BodyExt::frame(&mut body)).poll_by_parking();
            let mut frame = frame;
            while let Some(Ok(next)) = frame() {
                for event in parser.feed(&next.into_data().unwrap()) {
                    assert_eq!(event.data, seen.to_string());
                    seen += 1;
                    tell.send(seen).unwrap();
                }
            }
            seen
        });
        for n in 0..1000 {
            send(&hub, n);
            // Lets the reader catch up and wait now and then.
            if n % 7 == 0 {
                while told.recv().unwrap() <= n {}
            }
        }
        hub.close();
        assert_eq!(reader.join().unwrap(), 1000);
    });
}

/// Runs a future on this thread, without any runtime.
trait Parking: Future {
    fn poll_by_parking(self) -> Self::Output;
}

impl<F: Future> Parking for F {
    fn poll_by_parking(self) -> F::Output {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = std::task::Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
        let mut future = std::pin::pin!(self);
        loop {
            match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
                std::task::Poll::Ready(output) => return output,
                std::task::Poll::Pending => std::thread::park(),
            }
        }
    }
}

#[test]
fn what_a_reader_gets_does_not_depend_on_when_others_read() {
    let hub = Hub::builder().replay(16).queue(4).build();
    let first = hub.send(Event::new().data("0")).unwrap().to_string();
    send(&hub, 1);
    send(&hub, 2);
    let (mut early, mut late) = (subscribe(&hub, Some(&first)), subscribe(&hub, Some(&first)));
    assert_eq!(early.data(), ["1", "2"]);
    (3..8).for_each(|n| send(&hub, n));
    // All in one frame, not those that the other got in one, and then a gap.
    assert_eq!(late.data(), ["1", "2", "3", "4", "5", "6", "7"]);
}

#[test]
fn a_reader_that_comes_later_with_the_position_of_a_hub_misses_nothing() {
    let hub = Hub::builder().replay(4).queue(4).build();
    let start = hub.position();
    assert_eq!(subscribe(&hub, Some(&start)).data(), [""; 0]);
    send(&hub, 0);
    let (one, given) = (hub.position(), Event::new().id("mine").data("1"));
    hub.send(given).unwrap();
    assert_eq!(hub.position(), "mine");
    assert_eq!(subscribe(&hub, Some(&start)).data(), ["0", "1"], "no gap");
    assert_eq!(subscribe(&hub, Some(&one)).data(), ["1"]);
    (2..5).for_each(|n| send(&hub, n));
    assert_eq!(subscribe(&hub, Some("mine")).data(), ["2", "3", "4"]);
    assert_eq!(subscribe(&hub, Some(&hub.position())).data(), [""; 0]);
    // The first event is gone.
    let seen = subscribe(&hub, Some(&start)).read();
    assert_eq!((seen[0].reason(), seen[0].missed(), seen.len()), ("expired", Some(1), 5));
    // Nor is it the start of another hub, or of a text that only looks like it.
    for foreign in [Hub::new().position(), start.to_uppercase(), format!("0{start}"), "-start".to_owned()] {
        assert_eq!(subscribe(&hub, Some(&foreign)).read()[0].missed(), None, "{foreign}");
    }
}

#[test]
fn the_position_of_a_hub_survives_its_events() {
    let hub = Hub::builder().replay_age(std::time::Duration::ZERO).build();
    send(&hub, 0);
    let numbered = hub.position();
    assert_eq!(subscribe(&hub, Some(&numbered)).data(), [""; 0], "the ring is empty now");
    assert_eq!(hub.position(), numbered);
    hub.send(Event::new().id("mine")).unwrap();
    assert_eq!(subscribe(&hub, Some("mine")).data(), [""; 0]);
    assert_eq!(hub.position(), "mine");
}
