//! Clients that half-close the connection after their request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::{Request, Response};
use millstream::server::{Limits, RequestBody};
#[cfg(feature = "sse")]
use millstream::sse;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tower::Service;

use super::{start, text};
use testkit::HANGS;
use testkit::http::{Answer, Raw, boxed, narrow, on_both};

/// Answers `/LENGTH` with that many bytes after a delay; `x-got` has the length of the request body.
async fn sized(request: Request<RequestBody>) -> Result<Answer, Infallible> {
    let length = request.uri().path()[1..].parse().unwrap();
    let got = request.into_body().collect().await.unwrap().to_bytes().len();
    // The client's end of stream must arrive first.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut answer = text(vec![b'x'; length]);
    answer.headers_mut().insert("x-got", got.into());
    Ok(answer)
}

#[test]
fn a_client_that_has_ended_its_side_is_answered() {
    on_both(async || {
        let addr = start(Limits::default(), tower::service_fn(sized)).await;
        for _ in 0..5 {
            for length in [5, 70_000, 1 << 20] {
                for (request, got) in [
                    (format!("GET /{length} HTTP/1.1\r\nHost: mill\r\n\r\n"), "0"),
                    (format!("POST /{length} HTTP/1.1\r\nHost: mill\r\nContent-Length: 4\r\n\r\nbody"), "4"),
                ] {
                    let mut client = Raw::connect(addr).await;
                    client.send(&request).await;
                    client.io.shutdown().await.unwrap();
                    let head = client.head().await;
                    assert_eq!((head.status, head.field("x-got")), (200, Some(got)));
                    assert_eq!(client.body(length).await.unwrap().len(), length);
                    assert!(client.drain().await.is_empty(), "closed after the answer");
                }
            }
        }
    });
}

/// Adds a permit on drop.
struct Guard(Arc<Semaphore>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

/// A service whose bodies stall after the first frame; the semaphore gets a permit when one is dropped.
pub(crate) fn silent(
    dropped: &Arc<Semaphore>,
) -> impl Service<Request<RequestBody>, Response = Answer, Error = Infallible, Future: Send> + Clone + Send + use<> {
    let dropped = Arc::clone(dropped);
    tower::service_fn(move |_: Request<RequestBody>| {
        let guard = Guard(Arc::clone(&dropped));
        let frames = futures_util::stream::unfold((guard, true), async |(guard, first)| match first {
            true => Some((Ok::<_, Infallible>(Frame::data(Bytes::from("begun"))), (guard, false))),
            false => std::future::pending().await,
        });
        let answer = Response::new(boxed(StreamBody::new(frames)));
        async { Ok::<_, Infallible>(answer) }
    })
}

#[test]
fn the_answer_to_a_client_that_has_left_is_dropped() {
    on_both(async || {
        let dropped = Arc::new(Semaphore::new(0));
        let service = silent(&dropped);
        let quick = Limits::default().half_close(Duration::from_millis(200));
        let off = Limits::default().half_close(Duration::ZERO);
        let never = Limits::default().half_close(Duration::MAX);
        let further = "GET / HTTP/1.1\r\nHost: mill\r\n\r\n";
        for (limits, resets, more) in
            [(quick, false, ""), (off, false, ""), (never.clone(), true, ""), (never, true, further)]
        {
            let addr = start(limits, service.clone()).await;
            let mut client = Raw::connect(addr).await;
            client.ask("/").await;
            assert_eq!(client.head().await.status, 200);
            client.send(more).await;
            match resets {
                // A reset never counts as a half-close.
                true => client.reset(),
                false => {
                    // Reads everything, so that the close sends no reset.
                    client.body("5\r\nbegun\r\n".len()).await.unwrap();
                    drop(client);
                }
            }
            let permit = tokio::time::timeout(HANGS, dropped.acquire()).await.expect("dropped in time");
            permit.unwrap().forget();
        }
    });
}

#[test]
fn a_client_that_has_left_is_noticed_although_its_body_is_not_read() {
    on_both(async || {
        let dropped = Arc::new(Semaphore::new(0));
        let service = silent(&dropped);
        let addr = start(Limits::default().half_close(Duration::from_millis(200)), service).await;
        let post = "POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 4\r\n\r\n";
        for body in ["body", "bo", "body and the start of a request"] {
            for pause in [false, true] {
                let mut client = Raw::connect(addr).await;
                client.send(&post[..10]).await;
                tokio::task::yield_now().await;
                client.send([&post[10..], body].concat()).await;
                if pause {
                    client.head().await;
                }
                client.io.shutdown().await.unwrap();
                let permit = tokio::time::timeout(HANGS, dropped.acquire()).await.expect("dropped in time");
                permit.unwrap().forget();
            }
        }
    });
}

#[cfg(feature = "sse")]
#[test]
fn a_stream_of_events_ends_with_its_client_unless_it_is_to_go_on() {
    on_both(async || {
        for goes_on in [false, true] {
            let events = sse::Hub::new();
            let hub = events.clone();
            let service = tower::service_fn(move |request: Request<RequestBody>| {
                let answer = hub.subscribe(&request).map(boxed);
                async { Ok::<_, Infallible>(answer) }
            });
            let limits = Limits::default().half_close(Duration::MAX).half_close_events(goes_on);
            let addr = start(limits, service).await;
            let mut client = Raw::connect(addr).await;
            client.ask("/").await;
            assert_eq!(client.head().await.status, 200);
            client.io.shutdown().await.unwrap();
            let ends = async {
                while events.stats().subscribers > 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let patience = if goes_on { Duration::from_millis(200) } else { HANGS };
            assert_eq!(tokio::time::timeout(patience, ends).await.is_err(), goes_on);
            if goes_on {
                events.send(sse::Event::new().data("late")).unwrap();
                assert!(client.body("1B\r\ndata: late".len()).await.unwrap().ends_with(b"data: late"));
            }
        }
    });
}

#[test]
fn events_that_wait_for_a_slow_client_are_sent_before_the_end() {
    const EVENTS: usize = 100;
    on_both(async || {
        let dropped = Arc::new(Semaphore::new(0));
        let seen = Arc::clone(&dropped);
        let service = tower::service_fn(move |_: Request<RequestBody>| {
            let guard = Guard(Arc::clone(&seen));
            let events = futures_util::stream::unfold((guard, 0), async |(guard, n)| match n {
                EVENTS => std::future::pending().await,
                _ => Some((Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'\n'; 60_000]))), (guard, n + 1))),
            });
            let mut answer = Response::new(boxed(StreamBody::new(events)));
            answer.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
            async { Ok::<Answer, Infallible>(answer) }
        });
        let addr = start(Limits::default(), service).await;
        let mut client = Raw::over(narrow(addr).await);
        client.ask("/").await;
        client.io.shutdown().await.unwrap();
        assert_eq!(client.head().await.status, 200);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let frame = "EA60\r\n".len() + 60_000 + 2;
        assert_eq!(client.body(EVENTS * frame).await.unwrap().len(), EVENTS * frame);
        let permit = tokio::time::timeout(HANGS, dropped.acquire()).await.expect("dropped in time");
        permit.unwrap().forget();
    });
}

#[test]
fn with_the_switch_off_the_end_of_the_clients_side_is_the_end() {
    on_both(async || {
        // The answer would come, but not before the end of the client's side.
        let never = tower::service_fn(async |_: Request<RequestBody>| {
            std::future::pending::<Result<Answer, Infallible>>().await
        });
        let addr = start(Limits::default().half_close(Duration::ZERO), never).await;
        let mut client = Raw::connect(addr).await;
        client.ask("/").await;
        client.io.shutdown().await.unwrap();
        assert!(client.drain().await.is_empty());
    });
}
