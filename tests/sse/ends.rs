//! Ends of streams, and removal of readers that disconnect.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::{Request, StatusCode};
use millstream::body::GracefulClose;
use millstream::sse::{Event, Hub, SendError, SubscribeError};

use crate::parse::Hand;

fn hand(hub: &Hub) -> Hand {
    Hand::new(hub.subscribe_from(None).unwrap())
}

#[test]
fn close_ends_all_after_what_was_sent_before() {
    let hub = Hub::builder().retry(Duration::from_millis(2500)).build();
    let (mut waits, mut new) = (hand(&hub), hand(&hub));
    assert!(waits.read().is_empty());
    hub.send(Event::new().data("last")).unwrap();
    hub.close();
    for reader in [&mut waits, &mut new] {
        assert_eq!(reader.data(), ["last"]);
        assert!(reader.ended && reader.parser.retry == Some(2500));
    }
    assert_eq!((waits.woken(), new.woken()), (1, 0));
    assert!(matches!(hub.send(Event::new()), Err(SendError::Closed)));
    assert_eq!(hub.subscribe_from(None).unwrap_err(), SubscribeError::Closed);
    let answer = hub.subscribe(&Request::new(()));
    assert_eq!(
        (answer.status(), &answer.headers()["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"3".parse().unwrap())
    );
    assert_eq!(hub.stats().subscribers, 0);
}

#[tokio::test]
async fn the_last_handle_closes() {
    let hub = Hub::builder().retry(Duration::from_secs(1)).build();
    let mut body = hub.subscribe_from(None).unwrap();
    let other = hub.clone();
    drop(hub);
    other.send(Event::new().data("a")).unwrap();
    body.frame().await.unwrap().unwrap();
    let (end, ()) = tokio::join!(body.frame(), async { drop(other) });
    assert_eq!(end.unwrap().unwrap().into_data().unwrap(), "retry: 1000\n\n");
    assert!(body.frame().await.is_none());
}

#[test]
fn an_ending_ends_one_stream() {
    let hub = Hub::new();
    let answer = hub.subscribe(&Request::new(()));
    let ending = answer.extensions().get::<GracefulClose>().unwrap().clone();
    let (mut ends, mut stays) = (Hand::new(answer.into_body()), hand(&hub));
    assert!(ends.read().is_empty() && stays.read().is_empty());
    hub.send(Event::new().data("a")).unwrap();
    let woken = ends.woken();
    ending.end();
    ending.end();
    assert_eq!(ends.data(), ["a"]);
    assert!(ends.ended && ends.parser.has_retry());
    assert_eq!(woken, 1);
    hub.send(Event::new().data("b")).unwrap();
    assert_eq!(stays.data(), ["a", "b"]);
    assert!(!stays.ended);
    drop((ends, stays));
    ending.end();
    drop(hub);
    ending.end();
}

#[test]
fn an_ending_wakes_a_reader_that_waits() {
    let hub = Hub::new();
    let mut reader = hand(&hub);
    let ending = reader.body.ending().unwrap();
    assert!(reader.read().is_empty());
    ending.end();
    assert_eq!(reader.woken(), 1);
    assert!(reader.read().is_empty() && reader.ended);
    assert!(reader.body.ending().is_none());
}

#[test]
fn a_stream_that_is_ending_ends_however_fast_events_come() {
    let hub = Hub::new();
    let mut reader = hand(&hub);
    reader.body.ending().unwrap().end();
    let mut frames = 0;
    while !reader.ended {
        hub.send(Event::new().data("x")).unwrap();
        reader.frame();
        frames += 1;
        assert!(frames < 10);
    }
}

#[test]
fn there_are_as_many_subscribers_as_there_may_be() {
    let hub = Hub::builder().subscribers(2).retry(Duration::ZERO).build();
    let (first, mut second) = (hand(&hub), hand(&hub));
    assert_eq!(hub.subscribe_from(None).unwrap_err(), SubscribeError::Full);
    let answer = hub.subscribe(&Request::new(()));
    assert_eq!(
        (answer.status(), &answer.headers()["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
    assert!(hyper::body::Body::is_end_stream(answer.body()));
    drop(first);
    let third = hub.subscribe(&Request::new(()));
    assert_eq!(third.status(), StatusCode::OK);
    assert!(hub.subscribe_from(None).is_err());
    assert!(second.read().is_empty());
    drop(second);
    assert_eq!(hub.stats().subscribers, 1);
    let mut last = hand(&hub);
    last.body.ending().unwrap().end();
    last.read();
    assert_eq!(hub.stats().subscribers, 1);
    drop(third);
    assert_eq!((hub.stats().subscribers, hub.stats().refused), (0, 3));
    // `HEAD` needs no subscriber slot.
    let hub = Hub::builder().subscribers(0).build();
    assert_eq!(hub.subscribe(&Request::head("/").body(()).unwrap()).status(), StatusCode::OK);
}

#[test]
fn refused_readers_come_back_at_different_times() {
    let hub = Hub::builder().subscribers(0).retry(Duration::from_millis(1500)..=Duration::from_secs(5)).build();
    let mut after = [0; 7];
    for _ in 0..100 {
        let seconds = hub.subscribe(&Request::new(())).headers()["retry-after"].to_str().unwrap().to_owned();
        after[seconds.parse::<usize>().unwrap()] += 1;
    }
    assert!(after[..2] == [0; 2] && after[6] == 0, "{after:?}");
    assert!(after[2..6].iter().all(|count| (23..=27).contains(count)), "{after:?}");
}
