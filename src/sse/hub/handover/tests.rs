//! Unit tests of `handover`.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use http_body::Body;

use super::*;
use crate::sse::log::{Log, LogFuture, Replay, ReplayError, Sink};
use crate::sse::{Event, LagPolicy, SendError};

const FRAMING: MovedFraming = MovedFraming { is_chunked: true, keeps_alive: false };

fn event(n: usize) -> Event {
    Event::new().data(n.to_string())
}

fn builder() -> crate::sse::HubBuilder {
    Hub::builder().keep_alive(Duration::ZERO)
}

/// Returns the bytes that a reader has now.
fn bytes(body: &mut EventBody) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Poll::Ready(Some(Ok(frame))) =
        std::pin::Pin::new(&mut *body).poll_frame(&mut Context::from_waker(Waker::noop()))
    {
        bytes.extend(frame.into_data().unwrap());
    }
    bytes
}

/// Returns the data of the events that a reader has now.
fn data(body: &mut EventBody) -> Vec<usize> {
    let text = String::from_utf8(bytes(body)).unwrap();
    assert!(!text.contains("gap"), "{text}");
    text.lines().filter_map(|line| line.strip_prefix("data: ")).map(|data| data.parse().unwrap()).collect()
}

/// Returns the description of a reader that leaves.
fn left(hub: &Hub, body: &mut EventBody) -> Option<Vec<u8>> {
    hub.describe(&MovedBody { reader: body.attach().leave()?, framing: FRAMING })
}

/// Gives the events of a hub to another one.
fn give(handover: &mut HubHandover, to: &Hub) {
    let events = std::iter::from_fn(|| handover.ring_event().unwrap()).collect();
    to.prepend(handover.before(), events).unwrap();
}

#[tokio::test]
async fn readers_continue_at_any_place_behind_all_events_of_the_other_hub() {
    const ALL: usize = 12;
    // Sent before the handover, to the other hub before it has them, late, and afterwards.
    for (ring, own, late) in [(0, 0, 0), (0, 2, 2), (1, 0, 3), (5, 1, 2), (5, 3, 0)] {
        for replay in [4, 100] {
            let (old, new) = (builder().replay(replay).build(), builder().replay(100).build());
            assert!(new.expect_predecessor());
            let mut readers = vec![old.subscribe_from(None).unwrap()];
            let mut got = vec![Vec::new()];
            for n in 0..ring {
                old.send(event(n)).unwrap();
                readers.push(old.subscribe_from(None).unwrap());
                got.push((0..=n).collect());
                // This one is current, and the others leave behind the events that they have not read.
                if n % 2 == 0 {
                    got[0].extend(data(&mut readers[0]));
                }
            }
            assert_eq!(left(&old, &mut readers[0]), None, "the hub stays");
            let mut handover = old.hand_over().unwrap();
            assert!(old.hand_over().is_none(), "once");
            for n in 0..own {
                new.send(event(ring + n)).unwrap();
            }
            give(&mut handover, &new);
            for n in ring + own..ring + own + late {
                old.send(event(n)).unwrap();
                new.import(handover.next_event().unwrap().unwrap()).unwrap();
            }
            assert_eq!(handover.next_event().unwrap(), None);
            for n in ring + own + late..ALL {
                new.send(event(n)).unwrap();
            }
            for (reader, got) in readers.iter_mut().zip(&mut got) {
                let Some(description) = left(&old, reader) else {
                    assert!(replay == 4, "it is behind the ring");
                    continue;
                };
                let mut resumed = new.resume(&description).unwrap();
                assert_eq!(resumed.framing, FRAMING);
                got.extend(data(&mut resumed.body));
                assert_eq!(*got, (0..ALL).collect::<Vec<_>>(), "{ring} {own} {late} {replay}");
            }
            // A client that reconnects finds its event as well.
            for (n, id) in (0..ring.min(replay)).map(|n| (ring - 1 - n, old.position())).take(1) {
                let mut again = new.subscribe_from(Some(&id)).unwrap();
                assert_eq!(data(&mut again), (n + 1..ALL).collect::<Vec<_>>());
            }
        }
    }
}

#[tokio::test]
async fn a_hub_that_was_not_handed_over_goes_on_with_the_same_ids() {
    let hub = builder().replay(100).queue(3).lag_policy(LagPolicy::Block).build();
    let mut reader = hub.subscribe_from(None).unwrap();
    let mut ids = vec![hub.send(event(0)).unwrap()];
    for round in 0..3 {
        let mut handover = hub.hand_over().unwrap();
        let from = ids.len();
        // More than the queue: readers that leave do not hold senders up.
        ids.extend((0..5).map(|n| hub.send(event(from + n)).unwrap()));
        ids.push(hub.send(event(from + 5).id(format!("given {round}"))).unwrap());
        assert_eq!(data(&mut reader).last(), Some(&(from - 1)), "late events are the other hub's");
        let handed: Vec<_> = std::iter::from_fn(|| handover.next_event().unwrap()).map(|event| event.id).collect();
        let sent: Vec<_> = ids.iter().filter_map(|id| id.id()).collect();
        assert_eq!(handed, sent);
        handover.seal();
        assert!(matches!(hub.send(event(99)), Err(SendError::Closed)));
        drop(handover);
        assert_eq!(data(&mut reader), (from..from + 6).collect::<Vec<_>>());
        ids.push(hub.send(event(from + 6)).unwrap());
    }
    hub.hand_over().unwrap().finish();
    assert!(matches!(hub.send(event(99)), Err(SendError::Closed)));
}

/// A log that takes events and delivers none.
#[derive(Debug)]
struct Taken(Arc<AtomicUsize>);

impl Log for Taken {
    fn append(&self, _: Event) -> Result<(), SendError> {
        self.0.fetch_add(1, Relaxed);
        Ok(())
    }

    fn order(&self, _: &str, _: &str) -> Option<Ordering> {
        None
    }

    fn run(self: Arc<Self>, sink: Sink) -> LogFuture<'static, ()> {
        Box::pin(async move { sink.closed().await })
    }

    fn replay<'a>(&'a self, _: &'a str, _: &'a str, _: usize) -> LogFuture<'a, Result<Replay, ReplayError>> {
        Box::pin(async { Ok(Replay::new(Vec::new())) })
    }
}

#[tokio::test]
async fn a_sealed_hub_gives_its_log_no_further_events() {
    let taken = Arc::<AtomicUsize>::default();
    let hub = builder().log(Taken(Arc::clone(&taken))).build();
    let handover = hub.hand_over().unwrap();
    hub.send(event(0)).unwrap();
    handover.seal();
    assert!(matches!(hub.send(event(1)), Err(SendError::Closed)));
    assert!(matches!(hub.send_wait(event(1)).await, Err(SendError::Closed)));
    assert_eq!(taken.load(Relaxed), 1);
    drop(handover);
    hub.send(event(2)).unwrap();
    assert_eq!(taken.load(Relaxed), 2);
}

/// Gives each event of both hubs to the other one, once.
fn exchange(handover: &mut HubHandover, new: &Hub, events: &mut HubEvents) {
    while let Some(event) = handover.next_event().unwrap() {
        new.import(event).unwrap();
    }
    while let Some(event) = events.next_event().unwrap() {
        handover.deliver(event).unwrap();
    }
}

#[tokio::test]
async fn readers_that_stay_get_the_events_of_both_hubs_in_the_same_order() {
    // With a ring that has room for the two events of a step only, and with one that has for all.
    for replay in [2, 100] {
        let (old, new) = (builder().queue(replay).replay(replay).build(), builder().replay(100).build());
        assert!(new.expect_predecessor());
        old.send(event(0)).unwrap();
        let (mut stays, mut leaves) = (old.subscribe_from(None).unwrap(), old.subscribe_from(None).unwrap());
        let mut handover = old.hand_over().unwrap();
        // It does not belong to the ring, although it is there before the ring is given.
        old.send(event(31)).unwrap();
        give(&mut handover, &new);
        let mut events = new.own_events().unwrap();
        exchange(&mut handover, &new, &mut events);
        assert_eq!(data(&mut stays), [31]);
        let mut expected = vec![31];
        for step in 0..10 {
            new.send(event(3 * step + 1)).unwrap();
            // Two in one id: each is delivered.
            old.send(event(3 * step + 2).id("same")).unwrap();
            exchange(&mut handover, &new, &mut events);
            assert_eq!(data(&mut stays), [3 * step + 1, 3 * step + 2], "{replay}");
            old.send(event(3 * step + 3)).unwrap();
            exchange(&mut handover, &new, &mut events);
            assert_eq!(data(&mut stays), [3 * step + 3]);
            expected.extend([3 * step + 1, 3 * step + 2, 3 * step + 3]);
            if step == 4 && replay > 2 {
                assert_eq!(data(&mut leaves), expected);
            }
        }
        let mut resumed = new.resume(&left(&old, &mut stays).unwrap()).unwrap().body;
        assert!(data(&mut resumed).is_empty());
        if replay > 2 {
            // Behind what came back.
            let mut resumed = new.resume(&left(&old, &mut leaves).unwrap()).unwrap().body;
            assert_eq!(data(&mut resumed), expected[16..]);
        }
    }
}

#[tokio::test]
async fn a_hub_that_goes_on_delivers_what_did_not_come_back() {
    let (old, new) = (builder().replay(100).build(), builder().replay(100).build());
    assert!(new.expect_predecessor());
    let mut reader = old.subscribe_from(None).unwrap();
    let mut handover = old.hand_over().unwrap();
    give(&mut handover, &new);
    let mut events = new.own_events().unwrap();
    let mut ids: Vec<_> = [0, 1].map(|n| old.send(event(n)).unwrap()).to_vec();
    new.send(event(2)).unwrap();
    exchange(&mut handover, &new, &mut events);
    new.send(event(3)).unwrap();
    exchange(&mut handover, &new, &mut events);
    // Both were sent, and one of them was given, but none came back.
    ids.extend([4, 5].map(|n| old.send(event(n)).unwrap()));
    new.import(handover.next_event().unwrap().unwrap()).unwrap();
    drop(handover);
    ids.push(old.send(event(6)).unwrap());
    assert_eq!(data(&mut reader), [2, 0, 1, 3, 4, 5, 6]);
    for (n, id) in ids.iter().enumerate() {
        assert!(!ids[..n].contains(id), "{id}: two events have it");
        let mut again = old.subscribe_from(id.id().as_deref()).unwrap();
        let behind = &[2, 0, 1, 3, 4, 5, 6][[2, 3, 5, 6, 7][n]..];
        assert_eq!(data(&mut again), behind, "behind {id}");
    }
}

#[tokio::test]
async fn events_that_the_ring_has_lost_end_those_for_another_hub() {
    let hub = builder().queue(2).replay(2).build();
    assert!(hub.expect_predecessor());
    let mut events = hub.own_events().unwrap();
    for n in 0..3 {
        hub.send(event(n)).unwrap();
    }
    assert_eq!(events.next_event().unwrap_err().kind(), io::ErrorKind::NotFound);
    for sent in [0, 1] {
        let old = builder().build();
        let mut reader = old.subscribe_from(None).unwrap();
        (0..sent).for_each(|n| drop(old.send(event(n)).unwrap()));
        assert_eq!(data(&mut reader).len(), sent);
        let mut handover = old.hand_over().unwrap();
        give(&mut handover, &hub);
        let mut resumed = hub.resume(&left(&old, &mut reader).unwrap()).unwrap().body;
        let text = String::from_utf8(bytes(&mut resumed)).unwrap();
        let events: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(events, [r#"{"reason":"expired","missed":null}"#, "1", "2"]);
    }
}

#[tokio::test(start_paused = true)]
async fn readers_that_come_during_a_handover_leave_old_events_to_the_other_hub() {
    let old = builder().replay_age(Duration::from_secs(10)).build();
    let new = builder().build();
    assert!(new.expect_predecessor());
    let start = old.position();
    old.send(event(0)).unwrap();
    let mut handover = old.hand_over().unwrap();
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(data(&mut old.subscribe_from(Some(&start)).unwrap()), [0]);
    assert_eq!(handover.before(), start);
    give(&mut handover, &new);
    drop(handover);
    let mut later = old.subscribe_from(Some(&start)).unwrap();
    assert!(String::from_utf8(bytes(&mut later)).unwrap().contains("expired"), "old events leave afterwards");
    assert_eq!(data(&mut new.subscribe_from(Some(&start)).unwrap()), [0]);
}

#[tokio::test]
async fn late_events_wake_the_one_that_hands_over() {
    let hub = builder().build();
    hub.send(event(0)).unwrap();
    let mut handover = hub.hand_over().unwrap();
    handover.changed().await;
    assert!(handover.next_event().unwrap().is_some());
    let sender = hub.clone();
    let (handover, ()) = tokio::join!(
        async {
            handover.changed().await;
            handover
        },
        async {
            tokio::task::yield_now().await;
            sender.send(event(1)).unwrap();
        }
    );
    drop(handover);
}

#[tokio::test]
async fn a_hub_that_was_used_does_not_expect_another() {
    let hub = builder().build();
    let reader = hub.subscribe_from(None).unwrap();
    assert!(!hub.expect_predecessor(), "it has a reader");
    drop(reader);
    assert!(hub.expect_predecessor());
    hub.send(event(0)).unwrap();
    assert!(!hub.expect_predecessor(), "it has an event");
    let handed = |id: &str| HandedEvent { id: id.to_owned(), bytes: Bytes::from("data: 1\n\n"), age: Duration::ZERO };
    let unused = builder().build();
    for (hub, before, id) in [(&unused, "a", "b"), (&hub, "", "b"), (&hub, "a", "b\nc")] {
        assert_eq!(hub.prepend(before, vec![handed(id)]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
    assert_eq!(hub.import(handed("")).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(hub.stats().ring_events, 1, "nothing was taken");
}

#[tokio::test]
async fn descriptions_are_read_as_they_were_written() {
    let framings = [(true, true), (true, false), (false, false)];
    for (is_chunked, keeps_alive) in framings {
        for (sums, age) in [(None, None), (Some((7, 1 << 31)), Some(Duration::from_secs(5)))] {
            let framing = MovedFraming { is_chunked, keeps_alive };
            let place = Place { hub: Weak::new(), last: "00ff-12".to_owned(), sums, age };
            let text = describe(&place, framing);
            let (read, read_framing) = parse(&text).unwrap();
            assert_eq!((read.last, read.sums, read.age, read_framing), (place.last, sums, age, framing));
            for len in 0..FIXED {
                assert!(parse(&text[..len]).is_none());
            }
            for (at, byte) in [(0, VERSION + 1), (1, 8), (FIXED, 0xff)] {
                let mut other = text.clone();
                other[at] = byte;
                assert!(parse(&other).is_none(), "{at}");
            }
        }
    }
    let hub = builder().build();
    assert_eq!(hub.resume(b"?").unwrap_err().kind(), io::ErrorKind::InvalidData);
    let place = Place { hub: Weak::new(), last: "a".to_owned(), sums: Some((0, 0)), age: None };
    let error = hub.resume(&describe(&place, FRAMING)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "it has no compressed form");
    let full = builder().subscribers(0).build();
    let plain = describe(&Place { sums: None, ..place }, FRAMING);
    assert_eq!(full.resume(&plain).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
}

#[tokio::test(start_paused = true)]
async fn a_reader_keeps_its_age_and_gets_a_comment() {
    let hub = |age| Hub::builder().keep_alive(Duration::from_secs(5)).max_age(age).build();
    let (old, new) = (hub(Duration::from_secs(10)), hub(Duration::from_secs(1000)));
    assert!(new.expect_predecessor());
    let mut reader = old.subscribe_from(None).unwrap();
    assert!(data(&mut reader).is_empty());
    tokio::time::advance(Duration::from_secs(4)).await;
    let mut handover = old.hand_over().unwrap();
    give(&mut handover, &new);
    let mut resumed = new.resume(&left(&old, &mut reader).unwrap()).unwrap().body;
    assert_eq!(bytes(&mut resumed), b":\n");
    tokio::time::advance(Duration::from_secs(5)).await;
    bytes(&mut resumed);
    assert!(!resumed.is_end_stream());
    tokio::time::advance(Duration::from_secs(2)).await;
    bytes(&mut resumed);
    assert!(resumed.is_end_stream(), "10 s after it began");
}

#[cfg(feature = "compress")]
#[tokio::test]
async fn a_compressed_stream_goes_on_as_one() {
    use std::io::Read;

    let hub = || Hub::builder().gzip(3).keep_alive(Duration::from_secs(60)).build();
    let (old, new) = (hub(), hub());
    assert!(new.expect_predecessor());
    let request = http::Request::builder().header("accept-encoding", "gzip").body(()).unwrap();
    let mut reader = old.subscribe(&request).into_body();
    old.send(event(0)).unwrap();
    let mut stream = bytes(&mut reader);
    let mut handover = old.hand_over().unwrap();
    give(&mut handover, &new);
    let mut resumed = new.resume(&left(&old, &mut reader).unwrap()).unwrap().body;
    new.send(event(1)).unwrap();
    new.close();
    stream.extend(bytes(&mut resumed));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&stream[..]).read_to_string(&mut text).unwrap();
    let data: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data, ["0", "1"], "{text}");
}
