//! When the breaker of a path opens, probes and closes. Tests that depend on time use a paused clock.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Frame;
use hyper::{Request, Response, StatusCode};
use millstream::body::GracefulClose;
use millstream::metrics::Snapshot;
use millstream::net::SendStrategy;
use millstream::server::{Connection, RequestBody};
use millstream_layers::{BreakerPin, BreakerState, Canary, CanaryBuilder, CanaryHandle, CanaryLayer, Thresholds};
use tokio::time::{advance, sleep, timeout};
use tower::{Layer, Service, service_fn};

use super::servers::{Accepted, Client, FRIEND, STRANGER, field, start};
use testkit::http::{AnyBody, BoxError, boxed, on_both, request};
use testkit::pair;

const NO_CORK: usize = SendStrategy::NoCork as usize;
const REPORT: &str = "x-millstream-path";

fn all_on_no_cork() -> CanaryBuilder {
    CanaryLayer::builder().report(true).share(SendStrategy::NoCork, 100.0)
}

/// The fault of a response that took the path under test.
#[derive(Clone, Copy, Debug)]
enum Ill {
    No,
    Status,
    Slow,
    Service,
    Body,
    LateBody,
}

fn answer(ill: Ill) -> Result<Response<AnyBody>, io::Error> {
    let frames = |frames: Vec<Result<Frame<Bytes>, io::Error>>| boxed(StreamBody::new(stream::iter(frames)));
    let data = || Ok(Frame::data(Bytes::from_static(b"data")));
    let broken = || Err(io::Error::other("broken"));
    let mut response = Response::new(match ill {
        Ill::Body => frames(vec![broken()]),
        Ill::LateBody => frames(vec![data(), data(), broken()]),
        _ => boxed(Full::new(Bytes::from_static(b"well"))),
    });
    match ill {
        Ill::Service => return Err(io::Error::other("broken")),
        Ill::Status => *response.status_mut() = StatusCode::BAD_GATEWAY,
        _ => {}
    }
    Ok(response)
}

type Patient = Rc<Cell<Ill>>;

/// Sends one request; returns the path, or `None` without a response.
async fn ask<S>(canary: &mut Canary<S>, connection: &Connection) -> Option<String>
where
    S: Service<Request<()>, Response = Response<AnyBody>, Error = io::Error>,
{
    let mut request = Request::new(());
    request.extensions_mut().insert(connection.clone());
    let response = canary.call(request).await.ok()?;
    let path = response.headers()[REPORT].to_str().unwrap().to_owned();
    let _: Result<_, BoxError> = response.into_body().collect().await;
    Some(path)
}

fn state(handle: &CanaryHandle) -> BreakerState {
    handle.state().paths[NO_CORK].breaker
}

#[tokio::test(start_paused = true)]
async fn a_path_that_does_badly_is_given_up_probed_and_taken_again() {
    for ill in [Ill::Status, Ill::Slow, Ill::Service, Ill::Body, Ill::LateBody] {
        let layer = all_on_no_cork().build().unwrap();
        let handle = layer.handle();
        let (stream, _theirs) = pair().await;
        let socket = stream.handle();
        let patient = Patient::new(Cell::new(Ill::No));
        let mut canary = layer.layer(service_fn(|_: Request<()>| {
            let ill = if socket.send_strategy() == Some(SendStrategy::NoCork) { patient.get() } else { Ill::No };
            async move {
                sleep(Duration::from_millis(if matches!(ill, Ill::Slow) { 201 } else { 1 })).await;
                answer(ill)
            }
        }));
        let connection = Connection::new(std::net::IpAddr::from(STRANGER), stream.handle());
        for _ in 0..100 {
            assert_eq!(ask(&mut canary, &connection).await.as_deref(), Some("no-cork"));
        }
        // The error limit is 1 in 20, the limit of slow responses 1 in 100.
        patient.set(ill);
        let before = Snapshot::now();
        let mut taken = 0;
        while state(&handle) == BreakerState::Closed && taken < 1000 {
            ask(&mut canary, &connection).await;
            taken += 1;
        }
        assert_eq!(taken, if matches!(ill, Ill::Slow) { 2 } else { 6 }, "{ill:?}");
        let path = &handle.state().paths[NO_CORK];
        assert_eq!((path.breaker, path.trips), (BreakerState::Open, 1), "{ill:?}");
        assert!(Snapshot::now().since(&before).breaker_trips >= 1, "{ill:?}");
        assert_eq!(path.errors, if matches!(ill, Ill::Slow) { 0 } else { taken }, "{ill:?}");
        assert_eq!((path.requests, path.resets), (100 + taken, 0), "{ill:?}");
        for _ in 0..100 {
            assert_eq!(ask(&mut canary, &connection).await.as_deref(), Some("auto"), "{ill:?}");
        }
        // The first probe still fails; the second cool-down is twice as long.
        advance(Duration::from_secs(30)).await;
        ask(&mut canary, &connection).await;
        assert_eq!(state(&handle), BreakerState::Open, "{ill:?}");
        patient.set(Ill::No);
        advance(Duration::from_secs(59)).await;
        assert_eq!(ask(&mut canary, &connection).await.as_deref(), Some("auto"), "{ill:?}");
        advance(Duration::from_secs(1)).await;
        let mut probes = 0;
        for _ in 0..191 {
            assert_ne!(state(&handle), BreakerState::Closed);
            probes += u32::from(ask(&mut canary, &connection).await.as_deref() == Some("no-cork"));
        }
        assert_eq!((probes, state(&handle)), (20, BreakerState::Closed), "{ill:?}: one in ten, 20 in all");
        assert_eq!(ask(&mut canary, &connection).await.as_deref(), Some("no-cork"), "{ill:?}");
    }
}

/// One good probe would close the breaker, so each kind of failed probe must count as failed.
#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_opens_it_again_even_if_one_is_enough() {
    for ill in [Ill::Status, Ill::Service, Ill::Body] {
        let thresholds = Thresholds::default().samples(1).probe_one_in(1).good_probes(1);
        let layer = all_on_no_cork().thresholds(thresholds).build().unwrap();
        let handle = layer.handle();
        let (stream, _theirs) = pair().await;
        let mut canary = layer.layer(service_fn(|_: Request<()>| async move {
            let mut answer = answer(ill)?;
            // With a length, the latency covers the whole response.
            answer.headers_mut().insert("content-length", "4".parse().unwrap());
            Ok(answer)
        }));
        let connection = Connection::new(None, stream.handle());
        for trips in 1..=3 {
            ask(&mut canary, &connection).await;
            let path = &handle.state().paths[NO_CORK];
            assert_eq!((path.breaker, path.trips), (BreakerState::Open, trips), "{ill:?}");
            advance(Duration::from_secs(600)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn auto_is_given_up_for_no_cork_only_if_that_was_asked_for() {
    for breaks in [false, true] {
        let layer = CanaryLayer::builder().report(true).breaks_auto(breaks).build().unwrap();
        let (stream, _theirs) = pair().await;
        let mut canary = layer.layer(service_fn(async |_: Request<()>| answer(Ill::Status)));
        let connection = Connection::new(None, stream.handle());
        for _ in 0..100 {
            assert_eq!(ask(&mut canary, &connection).await.as_deref(), Some("auto"));
        }
        let then = if breaks { "no-cork" } else { "auto" };
        for _ in 0..300 {
            // `no-cork` stays in use even if it fails too: no path replaces it.
            assert_eq!(ask(&mut canary, &connection).await.as_deref(), Some(then));
        }
        assert_eq!(stream.handle().send_strategy().unwrap().to_string(), then);
    }
}

#[tokio::test(start_paused = true)]
async fn pins_and_clearing_work_at_once() {
    let layer = all_on_no_cork().build().unwrap();
    let handle = layer.handle();
    let (stream, _theirs) = pair().await;
    let mut canary = layer.layer(service_fn(async |_: Request<()>| answer(Ill::Status)));
    let connection = Connection::new(None, stream.handle());
    handle.pin(SendStrategy::NoCork, BreakerPin::Open);
    assert_eq!(ask(&mut canary, &connection).await.as_deref(), Some("auto"));
    handle.pin(SendStrategy::NoCork, BreakerPin::Closed);
    for _ in 0..200 {
        assert_eq!(ask(&mut canary, &connection).await.as_deref(), Some("no-cork"));
    }
    assert_eq!(state(&handle), BreakerState::PinnedClosed);
    handle.unpin(SendStrategy::NoCork);
    for _ in 0..100 {
        assert_eq!(ask(&mut canary, &connection).await.as_deref(), Some("no-cork"));
    }
    assert_eq!(ask(&mut canary, &connection).await.as_deref(), Some("auto"));
    assert_eq!(handle.state().paths[NO_CORK].opens_for, Duration::from_secs(30));
    handle.clear(SendStrategy::NoCork);
    assert_eq!(ask(&mut canary, &connection).await.as_deref(), Some("no-cork"));
}

/// hyper does not poll these bodies to their end; they count as complete.
#[tokio::test]
async fn answers_without_a_body_and_bodies_of_known_length_are_whole() {
    let (addr, handle, accepted) = serve(all_on_no_cork(), |path| match path {
        "/empty" => Response::new(boxed(Empty::<Bytes>::new())),
        "/304" => Response::builder().status(304).body(boxed(Full::new(Bytes::from_static(b"x")))).unwrap(),
        "/sized" => Response::new(boxed(Full::new(Bytes::from(vec![b'x'; 300_000])))),
        // hyper counts these bytes and does not poll for the end.
        "/declared" => Response::builder()
            .header("content-length", "10")
            .body(boxed(StreamBody::new(stream::iter(
                (0..10).map(|_| Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"x")))),
            ))))
            .unwrap(),
        _ => Response::new(boxed(StreamBody::new(stream::iter(
            (0..10).map(|_| Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"x")))),
        )))),
    })
    .await;
    for method in ["GET", "HEAD"] {
        for path in ["/empty", "/304", "/sized", "/declared", "/streamed"] {
            // Over HTTP/2, hyper would send these bodies.
            let bodiless = method == "HEAD" || path == "/304";
            for two in [false, true].into_iter().filter(|two| !two || !bodiless) {
                let request = Request::builder().method(method).uri(path).header("host", "mill");
                let request = request.body(Empty::<Bytes>::new()).unwrap();
                let response =
                    match if two { Client::two(STRANGER, addr).await } else { Client::one(STRANGER, addr).await } {
                        Client::One(mut sender) => sender.send_request(request).await.unwrap(),
                        Client::Two(mut sender) => sender.send_request(request).await.unwrap(),
                    };
                response.into_body().collect().await.unwrap();
            }
        }
    }
    until_closed(&accepted).await;
    let path = &handle.state().paths[NO_CORK];
    assert_eq!((path.requests, path.errors, path.resets), (14, 0, 0));
}

async fn serve(
    builder: CanaryBuilder,
    answer: impl Fn(&str) -> Response<AnyBody> + Clone + Send + 'static,
) -> (SocketAddr, CanaryHandle, Accepted) {
    let layer = builder.build().unwrap();
    let service = service_fn(move |request: Request<RequestBody>| {
        let answer = answer(request.uri().path());
        async { Ok::<_, Infallible>(answer) }
    });
    let (addr, accepted) = start(layer.layer(service)).await;
    (addr, layer.handle(), accepted)
}

fn endless(running: &Arc<()>) -> AnyBody {
    boxed(StreamBody::new(stream::unfold(Arc::clone(running), async |running| {
        sleep(Duration::from_millis(5)).await;
        Some((Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"more"))), running))
    })))
}

async fn until(what: impl Fn() -> bool) {
    let waiting = timeout(testkit::HANGS, async {
        while !what() {
            sleep(Duration::from_millis(1)).await;
        }
    });
    waiting.await.expect("the condition becomes true in time");
}

async fn until_closed(accepted: &Accepted) {
    until(|| accepted.lock().unwrap().iter().all(|handle| handle.send_strategy().is_none())).await;
}

/// Disconnects in the middle of a response.
async fn leave(two: bool, addr: SocketAddr) {
    let mut client = if two { Client::two(STRANGER, addr).await } else { Client::one(STRANGER, addr).await };
    let mut body = client.send(&[]).await.into_body();
    body.frame().await.unwrap().unwrap();
}

#[test]
fn three_resets_of_a_peer_trip_it_for_that_peer() {
    on_both(|| async {
        for two in [false, true] {
            let (addr, handle, _) = serve(all_on_no_cork(), |_| Response::new(endless(&Arc::default()))).await;
            for n in 1..=3 {
                assert_eq!(handle.state().paths[NO_CORK].peers_out, 0);
                leave(two, addr).await;
                until(|| handle.state().paths[NO_CORK].resets == n).await;
            }
            let path = &handle.state().paths[NO_CORK];
            assert_eq!((path.peers_out, path.errors, path.breaker), (1, 0, BreakerState::Closed));
            for (source, expected) in [(STRANGER, "auto"), (FRIEND, "no-cork")] {
                let answer = Client::one(source, addr).await.send(&[]).await;
                assert_eq!(field(&answer, REPORT), Some(expected), "{source}");
            }
        }
    });
}

#[tokio::test]
async fn those_who_leave_an_endless_answer_do_no_harm() {
    let running = Arc::new(());
    let body = Arc::clone(&running);
    let (addr, told, _) = serve(all_on_no_cork(), move |_| {
        let mut response = Response::new(endless(&body));
        response.extensions_mut().insert(GracefulClose::new(|| ()));
        response
    })
    .await;
    let body = Arc::clone(&running);
    let (events, of_events, _) = serve(all_on_no_cork(), move |_| {
        let response = Response::builder().header("content-type", "text/event-stream; charset=utf-8");
        response.body(endless(&body)).unwrap()
    })
    .await;
    let idle = Arc::strong_count(&running);
    for _ in 0..5 {
        leave(false, addr).await;
        leave(true, events).await;
    }
    until(|| Arc::strong_count(&running) == idle).await;
    for handle in [told, of_events] {
        let path = &handle.state().paths[NO_CORK];
        assert_eq!((path.requests, path.resets, path.peers_out), (5, 0, 0));
    }
}

#[tokio::test]
async fn a_panic_is_an_error_and_no_reset() {
    let (addr, handle, accepted) = serve(all_on_no_cork(), |_| panic!("a test's panic")).await;
    let Client::One(mut sender) = Client::one(STRANGER, addr).await else { unreachable!() };
    sender.send_request(request("/")).await.unwrap_err();
    until_closed(&accepted).await;
    let path = &handle.state().paths[NO_CORK];
    assert_eq!((path.requests, path.errors, path.resets), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn thresholds_change_while_it_runs() {
    let layer = all_on_no_cork().build().unwrap();
    let handle = layer.handle();
    let (stream, _theirs) = pair().await;
    let mut canary = layer.layer(service_fn(async |_: Request<()>| answer(Ill::Status)));
    let connection = Connection::new(None, stream.handle());
    handle.set_thresholds(&Thresholds::default().samples(3));
    for _ in 0..3 {
        assert_eq!(ask(&mut canary, &connection).await.as_deref(), Some("no-cork"));
    }
    assert_eq!((state(&handle), ask(&mut canary, &connection).await.as_deref()), (BreakerState::Open, Some("auto")));
}

#[test]
fn thresholds_are_what_was_set() {
    on_both(|| async {
        let thresholds = Thresholds::default().resets(1, Duration::from_secs(60)).samples(3).errors(50.0);
        let (addr, handle, _) = serve(all_on_no_cork().thresholds(thresholds), |_| {
            Response::builder().status(500).body(boxed(Full::new(Bytes::new()))).unwrap()
        })
        .await;
        let mut client = Client::one(STRANGER, addr).await;
        for _ in 0..3 {
            assert_eq!(field(&client.ask(&[]).await, REPORT), Some("no-cork"));
        }
        assert_eq!(field(&client.ask(&[]).await, REPORT), Some("auto"));
        assert_eq!(state(&handle), BreakerState::Open);
    });
}
