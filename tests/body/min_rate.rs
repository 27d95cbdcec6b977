//! `body::min_rate`: when a body is too slow, and that nothing else changes.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Body, Frame};
use hyper::{HeaderMap, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use millstream::body::{MinRateError, min_rate};
use millstream::net::Connector;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, sleep_until};

use testkit::http::{self, BoxError, Raw, on_both, watched};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A body that yields each frame at its time, in milliseconds from now, then ends. It is not `Unpin`, and panics if it
/// is polled after its end.
fn timed(steps: Vec<(u64, Frame<Bytes>)>) -> impl Body<Data = Bytes, Error = io::Error> {
    let start = Instant::now();
    StreamBody::new(stream::unfold(steps.into_iter(), move |mut steps| async move {
        let (at, frame) = steps.next()?;
        sleep_until(start + ms(at)).await;
        Some((Ok(frame), steps))
    }))
}

fn data(len: usize) -> Frame<Bytes> {
    Frame::data(vec![b'x'; len].into())
}

fn paused() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// Returns the text of the error of a body that yields `steps`, or the bytes it yields.
async fn outcome(steps: &[(u64, usize)], rate: u64, time: Duration) -> Result<usize, String> {
    let steps = steps.iter().map(|&(at, len)| (at, data(len))).collect();
    match min_rate(timed(steps), rate, time).collect().await {
        Ok(whole) => Ok(whole.to_bytes().len()),
        Err(error) => Err(error.downcast::<MinRateError>().unwrap().to_string()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_or_trickles_fails_and_says_how_much_came() {
    let start = Instant::now();
    let stops = outcome(&[(0, 5), (3_600_000, 5)], 10, ms(3000)).await;
    assert_eq!(stops.unwrap_err(), "the body yielded 5 bytes in 3s; the limit is 10 bytes a second over 3s");
    assert_eq!(start.elapsed(), ms(3000));

    let trickle: Vec<_> = (1..100).map(|n| (n * 1000, 9)).collect();
    let trickles = outcome(&trickle, 10, ms(4500)).await;
    assert_eq!(trickles.unwrap_err(), "the body yielded 36 bytes in 4.5s; the limit is 10 bytes a second over 4.5s");

    let enough: Vec<_> = (1..100).map(|n| (n * 1000, 10)).collect();
    assert_eq!(outcome(&enough, 10, ms(4000)).await, Ok(990));
    let pauses = [(3999, 40), (7998, 40), (11_997, 40)];
    assert_eq!(outcome(&pauses, 10, ms(4000)).await, Ok(120));
}

/// A new wait begins a new period.
#[tokio::test(start_paused = true)]
async fn a_period_begins_when_the_last_one_has_its_bytes() {
    let start = Instant::now();
    let stops = outcome(&[(900, 1000), (1800, 1000), (3_600_000, 1)], 1000, ms(1000)).await;
    assert_eq!(stops.unwrap_err(), "the body yielded 0 bytes in 1s; the limit is 1000 bytes a second over 1s");
    assert_eq!(start.elapsed(), ms(2800));
}

#[tokio::test(start_paused = true)]
async fn zero_is_no_limit_and_the_largest_limits_do_not_overflow() {
    let hour = [(3_600_000, 1)];
    assert_eq!(outcome(&hour, 0, ms(1)).await, Ok(1));
    assert_eq!(outcome(&hour, 1, Duration::ZERO).await, Ok(1));
    assert_eq!(outcome(&hour, u64::MAX, Duration::MAX).await, Ok(1));
    outcome(&hour, 1, Duration::from_nanos(1)).await.unwrap_err();
}

/// The consumer comes long after the body has woken it, and is away between two frames: only the second before the
/// first frame counts.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_does_not_poll_is_not_the_fault_of_the_peer() {
    let steps = vec![(1000, data(1)), (1001, data(1)), (61_000, data(1)), (63_400, data(1))];
    let mut body = pin!(min_rate(timed(steps), 2, ms(2500)));
    assert!(poll_fn(|cx| Poll::Ready(body.as_mut().poll_frame(cx).is_pending())).await);
    sleep(ms(60_000)).await;
    body.frame().await.unwrap().unwrap();
    body.frame().await.unwrap().unwrap();
    sleep(ms(2000)).await;
    body.frame().await.unwrap().unwrap();
    // The wait is 1.4 s now.
    body.frame().await.unwrap().unwrap();
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_was_too_slow_fails_at_every_poll() {
    let mut body = pin!(min_rate(timed(vec![(10, data(1)), (20, data(1))]), 1, ms(5)));
    for _ in 0..3 {
        let error = body.frame().await.unwrap().unwrap_err();
        assert!(error.to_string().starts_with("the body yielded 0 bytes in 5ms;"), "{error}");
        assert!(!body.is_end_stream());
        sleep(ms(20)).await;
    }
}

/// One step of a body and of its consumer, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// From the last frame to this one.
    gap: u64,
    len: usize,
    /// How long the consumer is away if it has found the body pending.
    away: u64,
    /// How long it works on the frame.
    works: u64,
}

/// Returns how many frames are yielded, and the bytes and time of the error, by arithmetic.
fn model(steps: &[Step], need: u64, time: u64) -> (usize, Option<(u64, u64)>) {
    let (mut now, mut comes, mut waited, mut bytes) = (0, 0, 0, 0);
    for (at, step) in steps.iter().enumerate() {
        comes += step.gap;
        let mut away = step.away;
        while now < comes {
            if waited >= time {
                return (at, Some((bytes, waited)));
            }
            let next = if away > 0 { now + away } else { comes.min(now + time - waited) };
            waited += next.min(comes) - now;
            (now, away) = (next, 0);
        }
        bytes += step.len as u64;
        if bytes >= need {
            (bytes, waited) = (0, 0);
        }
        now += step.works;
    }
    (steps.len(), None)
}

async fn run(steps: &[Step], rate: u64, time: u64) -> (usize, Option<String>) {
    let mut at = 0;
    let frames = steps.iter().map(|step| {
        at += step.gap;
        (at, data(step.len))
    });
    let mut body = pin!(min_rate(timed(frames.collect()), rate, ms(time)));
    for (at, step) in steps.iter().enumerate() {
        let first = poll_fn(|cx| Poll::Ready(body.as_mut().poll_frame(cx))).await;
        let frame = match first {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                sleep(ms(step.away)).await;
                body.frame().await
            }
        };
        match frame.unwrap() {
            Ok(frame) => assert_eq!(frame.into_data().unwrap().len(), step.len),
            Err(error) => return (at, Some(error.downcast::<MinRateError>().unwrap().to_string())),
        }
        sleep(ms(step.works)).await;
    }
    assert!(body.frame().await.is_none());
    (steps.len(), None)
}

#[test]
fn any_body_and_consumer_are_as_in_the_model() {
    watched(|| {
        let often_none = |max: u64| prop_oneof![3 => Just(0), 1 => 1..max];
        let step = (often_none(3000), 0usize..3000, often_none(4000), often_none(4000));
        let step = step.prop_map(|(gap, len, away, works)| Step { gap, len, away, works });
        let strategy = (prop::collection::vec(step, 0..30), 0u64..2000, 1u64..3000);
        let config = Config { cases: 2000, failure_persistence: None, ..Config::default() };
        let slow = Cell::new(0);
        let ran = TestRunner::new(config).run(&strategy, |(steps, rate, time)| {
            let need = (rate * time).div_ceil(1000);
            let (frames, error) = model(&steps, need, if need == 0 { u64::MAX / 2 } else { time });
            let error = error.map(|(bytes, waited)| {
                let (waited, time) = (ms(waited), ms(time));
                format!(
                    "the body yielded {bytes} bytes in {waited:?}; the limit is {rate} bytes a second over {time:?}"
                )
            });
            slow.set(slow.get() + usize::from(error.is_some()));
            prop_assert_eq!(paused().block_on(run(&steps, rate, time)), (frames, error));
            Ok(())
        });
        ran.unwrap();
        assert!((200..1800).contains(&slow.get()), "{} of 2000 bodies were too slow", slow.get());
    });
}

/// There is no runtime, so a timer would panic.
#[test]
fn frames_that_are_ready_need_no_timer_and_pass_unchanged() {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    let steps = [Ok(data(3)), Ok(data(0)), Ok(Frame::trailers(trailers.clone())), Err(io::Error::other("broken"))];
    let mut body = pin!(min_rate(StreamBody::new(stream::iter(steps)), 1, ms(1)));
    let mut next = || match body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(frame) => frame,
        Poll::Pending => panic!("it is ready"),
    };
    assert_eq!(next().unwrap().unwrap().into_data().unwrap().len(), 3);
    assert_eq!(next().unwrap().unwrap().into_data().unwrap().len(), 0);
    assert_eq!(next().unwrap().unwrap().into_trailers().unwrap(), trailers);
    assert_eq!(next().unwrap().unwrap_err().downcast::<io::Error>().unwrap().to_string(), "broken");
    assert!(next().is_none());

    let full = min_rate(Full::new(Bytes::from("five!")), 1, ms(1));
    assert_eq!((full.size_hint().exact(), full.is_end_stream()), (Some(5), false));
    assert!(min_rate(Empty::<Bytes>::new(), 1, ms(1)).is_end_stream());
}

/// An upload whose client stops: the service has the error, converts it, and answers.
#[test]
fn an_upload_that_stops() {
    on_both(|| async {
        let addr = http::start(|request| async {
            let body = min_rate(request.into_body(), 1000, ms(1000));
            let error = body.collect().await.unwrap_err().downcast::<MinRateError>().unwrap();
            let error = io::Error::from(*error);
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(error.get_ref().is_some_and(|inner| inner.is::<MinRateError>()));
            let mut response = Response::new(http::boxed(Full::new(Bytes::from(error.to_string()))));
            *response.status_mut() = hyper::StatusCode::REQUEST_TIMEOUT;
            response
        })
        .await;
        let mut client = Raw::connect(addr).await;
        client.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 1000\r\n\r\nfirst").await;
        let head = client.head().await;
        let text = String::from_utf8(client.body(head.content_length()).await.unwrap()).unwrap();
        assert_eq!(head.status, 408);
        assert!(text.starts_with("the body yielded 5 bytes in "), "{text}");
    });
}

/// A download whose server stops: the client of hyper-util has the error.
#[test]
fn a_download_that_stops() {
    on_both(|| async {
        let addr = http::raw_upstream(|mut stream| async move {
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nfirst").await.unwrap();
            // Until the client gives up.
            assert_eq!(stream.read(&mut [0; 4096]).await.unwrap_or(0), 0);
        })
        .await;
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(Connector::new());
        let response = client.get(format!("http://{addr}/").parse().unwrap()).await.unwrap();
        let body = min_rate(response.into_body(), 1000, ms(1000));
        let error: BoxError = body.collect().await.unwrap_err();
        assert!(error.is::<MinRateError>());
        assert!(error.to_string().starts_with("the body yielded 5 bytes in "), "{error}");
    });
}
