//! Senders that wait for slow readers (`LagPolicy::Block`).

use std::pin::Pin;
use std::time::Duration;

use hyper::body::Body;
use millstream::sse::{Event, Hub, HubBuilder, LagPolicy, SendError};
use tokio::time::{Instant, timeout};

use crate::parse::Hand;

fn blocking() -> HubBuilder {
    Hub::builder().replay(100).queue(3).lag_policy(LagPolicy::Block)
}

fn event(n: u64) -> Event {
    Event::new().data(n.to_string())
}

fn subscribe(hub: &Hub) -> Hand {
    Hand::new(hub.subscribe_from(None).unwrap())
}

#[test]
fn a_full_queue_refuses_until_the_slowest_has_read() {
    let hub = blocking().build();
    (0..10).for_each(|n| drop(hub.send(event(n)).unwrap()));
    let (mut fast, mut slow) = (subscribe(&hub), subscribe(&hub));
    for n in 10..13 {
        hub.send(event(n)).unwrap();
        assert_eq!(fast.data(), [n.to_string()]);
    }
    assert!(matches!(hub.send(event(13)), Err(SendError::Full)));
    assert_eq!(slow.data(), ["10", "11", "12"]);
    hub.send(event(13)).unwrap();
    assert_eq!((fast.data(), slow.data()), (vec!["13".to_owned()], vec!["13".to_owned()]));
    // A reader that leaves blocks no sender.
    (14..17).for_each(|n| drop(hub.send(event(n)).unwrap()));
    assert_eq!(fast.data().len(), 3);
    assert!(matches!(hub.send(event(17)), Err(SendError::Full)));
    drop(slow);
    hub.send(event(17)).unwrap();
    assert_eq!((hub.stats().dropped, hub.stats().gaps), (0, 0));
}

#[test]
fn a_reader_that_comes_back_holds_senders_up_until_it_is_near() {
    let hub = blocking().build();
    let ids: Vec<_> = (0..10).map(|n| hub.send(event(n)).unwrap().to_string()).collect();
    let mut late = Hand::new(hub.subscribe_from(Some(&ids[2])).unwrap());
    assert!(matches!(hub.send(event(10)), Err(SendError::Full)));
    assert!(late.data().into_iter().eq((3..10).map(|n| n.to_string())));
    hub.send(event(10)).unwrap();
    assert_eq!(late.data(), ["10"]);
}

#[test]
fn bytes_count_as_well() {
    let hub = blocking().queue(100).replay_bytes(10_000).build();
    let mut reader = subscribe(&hub);
    let large = || Event::new().data("x".repeat(4000));
    hub.send(large()).unwrap();
    hub.send(large()).unwrap();
    assert!(matches!(hub.send(large()), Err(SendError::Full)));
    assert_eq!(reader.data().len(), 2);
    hub.send(large()).unwrap();
    assert_eq!(reader.data().len(), 1);
    hub.send(Event::new().data("x".repeat(40_000))).expect("there is nothing to wait for");
    assert_eq!(reader.data().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn send_wait_waits_for_the_slowest() {
    let hub = blocking().build();
    let mut reader = subscribe(&hub);
    for n in 0..3 {
        hub.send_wait(event(n)).await.unwrap();
    }
    let sender = hub.clone();
    let waiting = tokio::spawn(async move { sender.send_wait(event(3)).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    assert_eq!(reader.data(), ["0", "1", "2"]);
    waiting.await.unwrap().unwrap();
    assert_eq!(reader.data(), ["3"]);

    // A send dropped before it is ready has sent nothing.
    (4..7).for_each(|n| drop(hub.send(event(n)).unwrap()));
    assert!(timeout(Duration::from_secs(1), hub.send_wait(event(7))).await.is_err());
    assert_eq!(reader.data(), ["4", "5", "6"]);

    (7..10).for_each(|n| drop(hub.send(event(n)).unwrap()));
    let sender = hub.clone();
    let waiting = tokio::spawn(async move { sender.send_wait(event(10)).await });
    tokio::task::yield_now().await;
    hub.close();
    assert!(matches!(waiting.await.unwrap(), Err(SendError::Closed)));
}

#[tokio::test(start_paused = true)]
async fn who_holds_the_others_up_for_too_long_is_given_up() {
    let hub = blocking().patience(Duration::from_secs(5)).build();
    let (mut stalled, mut good) = (subscribe(&hub), subscribe(&hub));
    let start = Instant::now();
    let first = hub.send(event(0)).unwrap().to_string();
    assert_eq!(good.data(), ["0"]);
    for n in 1..20 {
        hub.send_wait(event(n)).await.unwrap();
        assert_eq!(good.data(), [n.to_string()]);
    }
    assert_eq!(start.elapsed(), Duration::from_secs(5), "one wait for the stalled reader");
    assert!(stalled.read().is_empty() && stalled.ended);
    assert!(stalled.parser.has_retry());
    drop(stalled);
    // A new reader may start before the events for which another reader was dropped.
    let mut late = Hand::new(hub.subscribe_from(Some(&first)).unwrap());
    assert!(late.data().into_iter().eq((1..20).map(|n| n.to_string())));
    drop(late);
    // A dropped reader blocks no sender, and leaves the limit in place.
    (20..23).for_each(|n| drop(hub.send(event(n)).unwrap()));
    assert!(matches!(hub.send(event(23)), Err(SendError::Full)));
    assert_eq!(good.data(), ["20", "21", "22"]);
}

#[tokio::test(start_paused = true)]
async fn the_room_of_one_that_was_given_up_is_for_all_senders() {
    let hub = blocking().patience(Duration::from_secs(5)).build();
    let stalled = subscribe(&hub);
    (0..3).for_each(|n| drop(hub.send(event(n)).unwrap()));
    let start = Instant::now();
    let senders = [0, 4].map(|after| {
        let sender = hub.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(after)).await;
            sender.send_wait(event(3 + after)).await
        })
    });
    for sender in senders {
        sender.await.unwrap().unwrap();
    }
    assert_eq!(start.elapsed(), Duration::from_secs(5), "the second sender did not wait");
    drop(stalled);
}

#[tokio::test(start_paused = true)]
async fn who_comes_behind_those_that_were_given_up_can_be_given_up_too() {
    let hub = blocking().build();
    let stalled = subscribe(&hub);
    let first = hub.send(event(0)).unwrap().to_string();
    let second = hub.send(event(1)).unwrap().to_string();
    hub.send(event(2)).unwrap();
    hub.send_wait(event(3)).await.unwrap();
    // Both start before the events for which the stalled reader was dropped, and the farther one leaves no room.
    let mut far = Hand::new(hub.subscribe_from(Some(&first)).unwrap());
    let mut near = Hand::new(hub.subscribe_from(Some(&second)).unwrap());
    hub.send_wait(event(4)).await.unwrap();
    assert!(far.read().is_empty() && far.ended, "no sender waited for it, so it was dropped");
    assert_eq!(near.data(), ["2", "3", "4"]);
    drop(stalled);
}

/// A waker that sends until the hub is full.
struct Filler(Hub);

impl std::task::Wake for Filler {
    fn wake(self: std::sync::Arc<Self>) {
        while self.0.send(Event::new().data("filler")).is_ok() {}
    }
}

#[test]
fn who_was_not_slow_is_not_given_up_because_another_sender_was_faster() {
    let hub = blocking().patience(Duration::from_secs(5)).build();
    let (stalled, mut good) = (subscribe(&hub), subscribe(&hub));
    let mut filler = hub.subscribe_from(None).unwrap();
    (0..3).for_each(|n| drop(hub.send(event(n)).unwrap()));
    let waker = std::sync::Arc::new(Filler(hub.clone())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    // Polled outside of every runtime, so that the sender that drops the stalled reader wakes it; it then takes the
    // room.
    while Pin::new(&mut filler).poll_frame(&mut cx).is_ready() {}
    assert_eq!(good.data().len(), 3);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let sender = hub.clone();
        let sent = tokio::spawn(async move { sender.send_wait(event(3)).await });
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(good.data(), ["filler"; 3], "it was not slow");
        drop((stalled, filler));
        sent.await.unwrap().unwrap();
        assert_eq!(good.data(), ["3"]);
    });
}

#[tokio::test(start_paused = true)]
async fn what_somebody_has_still_to_read_does_not_grow_too_old() {
    let hub = blocking().replay_age(Duration::from_secs(60)).build();
    let mut reader = subscribe(&hub);
    let first = hub.send(event(0)).unwrap().to_string();
    tokio::time::advance(Duration::from_secs(100)).await;
    hub.send(event(1)).unwrap();
    assert_eq!(Hand::new(hub.subscribe_from(Some(&first)).unwrap()).data(), ["1"]);
    assert_eq!(hub.stats().ring_events, 2);
    assert_eq!(reader.data(), ["0", "1"]);
    hub.send(event(2)).unwrap();
    assert_eq!(hub.stats().ring_events, 2, "the first was read");
}
