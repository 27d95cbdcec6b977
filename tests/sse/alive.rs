//! Keep-alive comments, and the task that sends them: one for each runtime with waiting readers, none without.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Body;
use millstream::sse::{Event, EventBody, Hub};
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, advance, sleep, timeout};

use crate::parse::{Hand, Parser};
use testkit::http::{Flavour, watched};

const PERIOD: Duration = Duration::from_secs(15);

async fn next(body: &mut EventBody) -> bytes::Bytes {
    body.frame().await.unwrap().unwrap().into_data().unwrap()
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_without_events_gets_comments() {
    let hub = Hub::builder().keep_alive(PERIOD).build();
    let mut body = hub.subscribe_from(None).unwrap();
    let start = Instant::now();
    for n in 1..=4 {
        assert_eq!(next(&mut body).await, ":\n");
        let passed = start.elapsed();
        assert!(passed <= PERIOD * n && passed >= PERIOD * n / 2, "comment {n} after {passed:?}");
    }
    assert_eq!(hub.stats().delivered, 0);
}

#[tokio::test(start_paused = true)]
async fn who_had_an_event_meanwhile_gets_no_comment() {
    let hub = Hub::builder().keep_alive(PERIOD).build();
    let mut reader = Hand::new(hub.subscribe_from(None).unwrap());
    for n in 0..40 {
        hub.send(Event::new().data(n.to_string())).unwrap();
        assert_eq!(reader.read().len(), 1);
        advance(PERIOD / 3).await;
        settle().await;
    }
    assert_eq!(reader.parser.comments, 0);
    for _ in 0..12 {
        advance(PERIOD / 3).await;
        settle().await;
        assert!(reader.read().is_empty());
    }
    // Four periods have passed; the first comment may come after half a period.
    assert!((3..=5).contains(&reader.parser.comments), "{}", reader.parser.comments);
}

#[tokio::test(start_paused = true)]
async fn without_keep_alive_there_is_none() {
    let hub = Hub::builder().keep_alive(Duration::ZERO).build();
    let mut body = hub.subscribe_from(None).unwrap();
    assert!(timeout(Duration::from_secs(3600), body.frame()).await.is_err());
}

#[test]
fn a_thousand_readers_have_a_task_for_each_worker_which_ends_with_them() {
    watched(|| {
        for flavour in Flavour::BOTH {
            let runtime = flavour.runtime();
            // Without ticks, so that no tick ends the task.
            let hub = Hub::builder().keep_alive(Duration::ZERO).build();
            let metrics = runtime.metrics();
            runtime.block_on(async {
                let mut readers: Vec<_> = (0..1000).map(|_| Hand::new(hub.subscribe_from(None).unwrap())).collect();
                assert_eq!(metrics.num_alive_tasks(), 0, "no reader waits yet");
                readers.iter_mut().for_each(|reader| assert!(reader.read().is_empty()));
                assert_eq!(metrics.num_alive_tasks(), metrics.num_workers(), "{flavour:?}");
                hub.send(Event::new().data("a")).unwrap();
                while readers.iter().any(|reader| reader.woken() == 0) {
                    sleep(Duration::from_millis(1)).await;
                }
                assert!(readers.iter_mut().all(|reader| reader.data() == ["a"]));
                assert!(readers.iter().all(|reader| reader.woken() == 1));
                drop(readers);
                while metrics.num_alive_tasks() > 0 {
                    sleep(Duration::from_millis(1)).await;
                }
                let mut body = hub.subscribe_from(None).unwrap();
                let (_, sent) = tokio::join!(next(&mut body), async { hub.send(Event::new()).unwrap() });
                assert_eq!(hub.stats().subscribers, 1, "{sent}");
            });
        }
    });
}

#[test]
fn a_hundred_hubs_have_one_task_for_each_period() {
    watched(|| {
        for flavour in Flavour::BOTH {
            let runtime = flavour.runtime();
            let metrics = runtime.metrics();
            let hubs = |period: Duration| {
                let hub = move || Hub::builder().keep_alive(period).build();
                (0..100).map(|_| hub()).map(|hub| (Hand::new(hub.subscribe_from(None).unwrap()), hub)).collect()
            };
            let wait =
                |hubs: &mut Vec<(Hand, Hub)>| hubs.iter_mut().for_each(|(hand, _)| assert!(hand.read().is_empty()));
            runtime.block_on(async {
                let mut quick: Vec<_> = hubs(Duration::from_millis(200));
                let mut slow: Vec<_> = hubs(Duration::from_secs(3600));
                wait(&mut quick);
                assert_eq!(metrics.num_alive_tasks(), 1, "{flavour:?}");
                wait(&mut slow);
                assert_eq!(metrics.num_alive_tasks(), 2, "{flavour:?}");
                // Each reader gets its own event and its comments.
                for (n, (_, hub)) in slow.iter().enumerate() {
                    hub.send(Event::new().data(n.to_string())).unwrap();
                }
                while slow.iter().any(|(hand, _)| hand.woken() == 0) || quick.iter().any(|(hand, _)| hand.woken() == 0)
                {
                    sleep(Duration::from_millis(1)).await;
                }
                for (n, (hand, _)) in slow.iter_mut().enumerate() {
                    assert_eq!((hand.data(), hand.parser.comments), (vec![n.to_string()], 0));
                }
                for (hand, _) in &mut quick {
                    assert!(hand.read().is_empty() && hand.parser.comments == 1);
                }
                drop(quick);
                while metrics.num_alive_tasks() > 1 {
                    sleep(Duration::from_millis(1)).await;
                }
                slow.truncate(1);
                sleep(Duration::from_millis(20)).await;
                assert_eq!(metrics.num_alive_tasks(), 1, "one still waits");
                drop(slow);
                while metrics.num_alive_tasks() > 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            });
        }
    });
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("expected panic of the waker");
    }
}

#[test]
fn a_waker_that_panics_holds_up_nobody() {
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let hubs = [(); 2].map(|()| Hub::builder().keep_alive(Duration::from_millis(20)).build());
            let mut bad = hubs[0].subscribe_from(None).unwrap();
            let mut readers = [&hubs[0], &hubs[1]].map(|hub| Hand::new(hub.subscribe_from(None).unwrap()));
            let waker = Arc::new(Panics).into();
            let mut cx = Context::from_waker(&waker);
            assert!(Pin::new(&mut bad).poll_frame(&mut cx).is_pending());
            assert!(readers.iter_mut().all(|reader| reader.read().is_empty()));
            hubs.iter().for_each(|hub| drop(hub.send(Event::new().data("a")).unwrap()));
            for reader in &mut readers {
                while reader.woken() == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(reader.data(), ["a"]);
            }
            // A panic in a tick does not affect other readers either.
            assert!(Pin::new(&mut bad).poll_frame(&mut cx).is_ready());
            assert!(Pin::new(&mut bad).poll_frame(&mut cx).is_pending());
            for reader in &mut readers {
                while reader.parser.comments < 2 {
                    sleep(Duration::from_millis(1)).await;
                    assert!(reader.read().is_empty());
                }
            }
        });
    });
}

#[test]
fn readers_that_come_and_go_are_woken_each_time() {
    watched(|| {
        for flavour in Flavour::BOTH {
            let runtime = flavour.runtime();
            let (mut senders, mut readers) = (Vec::new(), Vec::new());
            for _ in 0..8 {
                // Without ticks, which would hide a lost wake-up.
                let hub = Hub::builder().keep_alive(Duration::ZERO).build();
                let (ask, mut asked) = tokio::sync::mpsc::channel(1);
                let sender = hub.clone();
                senders.push(std::thread::spawn(move || {
                    while asked.blocking_recv().is_some() {
                        sender.send(Event::new().data("a")).unwrap();
                    }
                }));
                readers.push(runtime.spawn(async move {
                    for _ in 0..500 {
                        let mut body = hub.subscribe_from(None).unwrap();
                        ask.send(()).await.unwrap();
                        next(&mut body).await;
                    }
                }));
            }
            runtime.block_on(async {
                for reader in readers {
                    reader.await.unwrap();
                }
            });
            senders.into_iter().for_each(|sender| sender.join().unwrap());
        }
    });
}

#[test]
fn a_runtime_ends_with_readers_in_it_and_they_go_on_in_another() {
    watched(|| {
        let hub = Hub::builder().keep_alive(Duration::from_millis(20)).build();
        let first = Builder::new_current_thread().enable_all().build().unwrap();
        let mut reader = Hand::new(hub.subscribe_from(None).unwrap());
        let mut gone = Hand::new(hub.subscribe_from(None).unwrap());
        let mut outside = Hand::new(hub.subscribe_from(None).unwrap());
        first.block_on(async {
            assert!(reader.read().is_empty() && gone.read().is_empty() && outside.read().is_empty());
        });
        drop(first);
        assert!(reader.woken() >= 1, "woken to find another runtime");
        drop(gone);
        let second = Flavour::TwoWorkers.runtime();
        second.block_on(async {
            let Hand { mut body, .. } = reader;
            assert_eq!(next(&mut body).await, ":\n");
            let task = tokio::spawn(async move {
                let mut parser = Parser::default();
                loop {
                    if let Some(seen) = parser.feed(&next(&mut body).await).pop() {
                        return seen.data;
                    }
                }
            });
            hub.send(Event::new().data("still here")).unwrap();
            assert_eq!(task.await.unwrap(), "still here");
        });
        assert_eq!(outside.data(), ["still here"]);
        drop(second);
        let woken = outside.woken();
        assert!(outside.read().is_empty());
        hub.send(Event::new().data("nobody else")).unwrap();
        assert_eq!((outside.woken(), outside.data()), (woken + 1, vec!["nobody else".to_owned()]));
    });
}

#[test]
fn a_runtime_without_timers_has_events_and_no_comments() {
    watched(|| {
        let hub = Hub::new();
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
            let mut body = hub.subscribe_from(None).unwrap();
            let sender = hub.clone();
            tokio::spawn(async move {
                settle().await;
                sender.send(Event::new().data("a")).unwrap();
            });
            let seen = Parser::default().feed(&next(&mut body).await);
            assert_eq!(seen[0].data, "a");
        });
    });
}

#[tokio::test(start_paused = true)]
async fn old_events_leave_the_ring() {
    let hub = Hub::builder().replay_age(Duration::from_secs(60)).build();
    let first = hub.send(Event::new().data("old")).unwrap().to_string();
    advance(Duration::from_secs(40)).await;
    hub.send(Event::new().data("young")).unwrap();
    advance(Duration::from_secs(40)).await;
    let seen = Hand::new(hub.subscribe_from(Some("unknown")).unwrap()).data();
    assert_eq!(seen[1..], ["young"]);
    assert_eq!(Hand::new(hub.subscribe_from(Some(&first)).unwrap()).data(), ["young"]);
    advance(Duration::from_secs(40)).await;
    let seen = Hand::new(hub.subscribe_from(Some(&first)).unwrap()).read();
    assert_eq!((seen.len(), seen[0].missed()), (1, Some(1)));
    assert_eq!((hub.stats().ring_events, hub.stats().ring_bytes), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn readers_end_at_their_age_and_not_together() {
    let second = Duration::from_secs(1);
    for keep_alive in [Duration::ZERO, PERIOD] {
        let hub = Hub::builder().keep_alive(keep_alive).max_age(60 * second..=120 * second).build();
        let start = Instant::now();
        let mut readers = tokio::task::JoinSet::new();
        for n in 0..1000 {
            let mut body = hub.subscribe_from(None).unwrap();
            readers.spawn(async move {
                let (mut parser, mut comments) = (Parser::default(), 0);
                while let Some(frame) = body.frame().await {
                    parser.feed(&frame.unwrap().into_data().unwrap());
                    comments = parser.comments as u32;
                    // Some are slow, so that they do not wait when their age ends.
                    sleep(second * (n % 2) / 10).await;
                }
                assert!(parser.has_retry());
                (start.elapsed(), comments)
            });
        }
        let mut ends = [0; 7];
        while let Some(end) = timeout(200 * second, readers.join_next()).await.expect("an end") {
            let (after, comments) = end.unwrap();
            assert!((60 * second..=122 * second + second / 2).contains(&after), "{after:?}");
            ends[(after.as_secs() / 10) as usize - 6] += 1;
            if !keep_alive.is_zero() {
                let (least, most) = (after.div_duration_f32(PERIOD), after.div_duration_f32(PERIOD / 2));
                assert!((least.floor() - 1.0..=most).contains(&(comments as f32)), "{comments} in {after:?}");
            }
        }
        // A look for the age each second moves some to the next part.
        assert!(ends[..6].iter().all(|count| (130..=190).contains(count)), "{ends:?}");
        assert_eq!(hub.stats().subscribers, 0);
    }
}
