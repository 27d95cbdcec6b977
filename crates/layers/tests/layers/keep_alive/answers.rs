//! `KeepAliveLayer`: responses that get comments, and late answers.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, StatusCode};
use millstream::sse::Hub;
use millstream_layers::KeepAliveLayer;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::*;

const PERIOD: Duration = Duration::from_secs(15);
const AFTER: Duration = Duration::from_secs(20);
const COMMENT: &str = ":\n";
const EVENTS: &str = "text/event-stream";

type Body1 = UnsyncBoxBody<Bytes, io::Error>;

fn pending() -> Body1 {
    StreamBody::new(stream::pending()).boxed_unsync()
}

fn with(kind: &'static str, body: Body1) -> Answer {
    Response::builder().header(CONTENT_TYPE, kind).body(body).unwrap()
}

fn asks(method: Method, accept: Option<&str>) -> Request<()> {
    let mut request = Request::builder().method(method);
    if let Some(accept) = accept {
        request = request.header(ACCEPT, accept);
    }
    request.body(()).unwrap()
}

/// Sends a request to a service behind the layer that answers at once.
async fn answered(method: Method, answer: Answer) -> Response<impl Body<Data = Bytes, Error = io::Error>> {
    let mut answer = Some(answer);
    let service = tower::service_fn(|_: Request<()>| std::future::ready(Ok::<_, Infallible>(answer.take().unwrap())));
    KeepAliveLayer::new(PERIOD).early(AFTER).layer(service).oneshot(asks(method, Some(EVENTS))).await.unwrap()
}

/// Returns the data of the next frame; `None` at the end.
async fn next(body: &mut (impl Body<Data = Bytes, Error = io::Error> + Unpin)) -> Option<Bytes> {
    body.frame().await.map(|frame| frame.unwrap().into_data().unwrap())
}

#[tokio::test(start_paused = true)]
async fn only_event_streams_get_comments() {
    let none: (HeaderName, &str) = (HeaderName::from_static("x-any"), "any");
    for (status, kind, (name, value), method, expected) in [
        (200, EVENTS, none.clone(), Method::GET, true),
        (200, "Text/Event-Stream; charset=utf-8", none.clone(), Method::POST, true),
        (200, EVENTS, (CONTENT_ENCODING, "identity"), Method::GET, true),
        (200, EVENTS, (CONTENT_ENCODING, "gzip"), Method::GET, false),
        (200, EVENTS, (CONTENT_LENGTH, "1000"), Method::GET, false),
        (200, EVENTS, none.clone(), Method::HEAD, false),
        (206, EVENTS, none.clone(), Method::GET, false),
        (503, EVENTS, none.clone(), Method::GET, false),
        (200, "text/plain", none.clone(), Method::GET, false),
        (200, "application/json", none, Method::GET, false),
    ] {
        let mut answer = with(kind, pending());
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        answer.headers_mut().insert(name.clone(), value.parse().unwrap());
        let fields = answer.headers().clone();
        let response = answered(method.clone(), answer).await;
        assert_eq!((response.status().as_u16(), response.headers()), (status, &fields));
        let mut body = pin!(response.into_body());
        let got = timeout(PERIOD * 2, next(&mut body)).await.ok();
        assert_eq!(got, expected.then(|| Some(Bytes::from(COMMENT))), "{status} {kind} {name} {method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_known_size_keeps_it() {
    let response = answered(Method::GET, with(EVENTS, boxed(Full::new(Bytes::from("data: a\n\n"))))).await;
    assert_eq!(response.body().size_hint().exact(), Some(9));
    assert!(answered(Method::GET, with(EVENTS, boxed(Empty::new()))).await.body().is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_writes_past_layers_is_left_alone() {
    for (past, expected) in [(false, true), (true, false)] {
        let hub = Hub::builder().keep_alive(Duration::ZERO).past_layers(past).build();
        let events = hub.subscribe(&asks(Method::GET, Some(EVENTS)));
        let response = answered(Method::GET, events.map(boxed)).await;
        let mut body = pin!(response.into_body());
        assert_eq!(timeout(PERIOD * 2, next(&mut body)).await.is_ok(), expected, "{past}");
    }
}

/// The answer of a service that comes when the test sends it.
type Late = oneshot::Sender<Result<Answer, io::Error>>;

/// Counts the futures that have not been dropped.
type Alive = Arc<()>;

/// Sends a request to a service behind the layer that does not answer yet.
fn late(
    request: Request<()>,
) -> (Late, Alive, impl Future<Output = io::Result<Response<impl Body<Data = Bytes, Error = io::Error> + Send>>>) {
    let (send, receive) = oneshot::channel();
    let alive = Alive::default();
    let (held, mut receive) = (Arc::clone(&alive), Some(receive));
    let service = tower::service_fn(move |_: Request<()>| {
        let (held, receive) = (Arc::clone(&held), receive.take().unwrap());
        async move {
            let answer = receive.await.unwrap();
            drop(held);
            answer
        }
    });
    (send, alive, KeepAliveLayer::new(PERIOD).early(AFTER).layer(service).oneshot(request))
}

#[tokio::test(start_paused = true)]
async fn a_late_stream_follows_comments() {
    for method in [Method::GET, Method::POST] {
        let (send, alive, response) = late(asks(method, Some("application/json, text/event-stream")));
        let start = Instant::now();
        let response = response.await.unwrap();
        assert!((AFTER..AFTER + Duration::from_millis(10)).contains(&start.elapsed()), "{:?}", start.elapsed());
        let expected = [("content-type", EVENTS), ("cache-control", "no-store"), ("x-accel-buffering", "no")];
        let expected: HeaderMap =
            expected.map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).into_iter().collect();
        assert_eq!((response.status(), response.headers()), (StatusCode::OK, &expected));
        assert!(!response.body().is_end_stream() && response.body().size_hint().upper().is_none());
        let mut body = pin!(response.into_body());
        for _ in 0..3 {
            assert_eq!(next(&mut body).await.unwrap(), COMMENT);
        }
        let (source, mut tokens) = mpsc::channel(8);
        let tokens = stream::poll_fn(move |cx| tokens.poll_recv(cx));
        let mut answer = with(EVENTS, StreamBody::new(tokens).boxed_unsync());
        answer.headers_mut().insert(CONTENT_LENGTH, "1000".parse().unwrap());
        assert!(send.send(Ok(answer)).is_ok());
        for (sent, expected) in [("\u{feff}data: a\n\n", "data: a\n\n"), ("data: b\n\n", "data: b\n\n")] {
            source.try_send(Ok(Frame::data(Bytes::from(sent)))).unwrap();
            assert_eq!(next(&mut body).await.unwrap(), expected, "without the byte order mark");
            assert_eq!(next(&mut body).await.unwrap(), COMMENT);
        }
        drop(source);
        assert_eq!(next(&mut body).await, None);
        assert_eq!(Arc::strong_count(&alive), 1, "the future is gone");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_time_or_to_another_client_is_never_early() {
    for (method, accept, wait) in [
        (Method::GET, Some(EVENTS), AFTER - Duration::from_millis(10)),
        (Method::GET, None, AFTER * 10),
        (Method::GET, Some("*/*"), AFTER * 10),
        (Method::GET, Some("text/event-stream;q=0"), AFTER * 10),
        (Method::HEAD, Some(EVENTS), AFTER * 10),
    ] {
        let (send, _, response) = late(asks(method.clone(), accept));
        tokio::spawn(async move {
            sleep(wait).await;
            let mut answer = with("text/plain", boxed(Full::new(Bytes::from("slow down"))));
            *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            assert!(send.send(Ok(answer)).is_ok());
        });
        let response = response.await.unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{method} {accept:?}");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "slow down");
    }
}

#[tokio::test(start_paused = true)]
async fn any_other_late_answer_is_one_event() {
    let text = |text: &str| boxed(Full::new(Bytes::from(text.to_owned())));
    let long = "é".repeat(4 << 10);
    let torn = || frames([Ok(Bytes::from("to")), Err(io::Error::other("torn"))]);
    let gzip = |mut answer: Answer| {
        answer.headers_mut().insert(CONTENT_ENCODING, "gzip".parse().unwrap());
        answer
    };
    let cases = [
        (429, Ok(with("application/json", text("{\"error\":\"quota\"}"))), Some("{\\\"error\\\":\\\"quota\\\"}")),
        (200, Ok(with("application/json; charset=utf-8", text("{}"))), Some("{}")),
        (500, Ok(with("text/plain", text("a\nb"))), Some("a\\nb")),
        (502, Ok(with("text/html", text(&long))), Some(&long[..4 << 10])),
        (502, Ok(with("text/plain", torn())), Some("to")),
        (503, Ok(with("text/event-stream", text("data: a\n\n"))), Some("data: a\\n\\n")),
        (204, Ok(Response::new(boxed(Empty::new()))), None),
        (200, Ok(with("image/png", text("png"))), None),
        (404, Ok(gzip(with("text/plain", text("zip")))), None),
        (200, Ok(gzip(with(EVENTS, pending()))), None),
        (500, Err(io::Error::other("the service has failed")), None),
    ];
    for (status, answer, quoted) in cases {
        let (send, _, response) = late(asks(Method::GET, Some(EVENTS)));
        let response = response.await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut body = pin!(response.into_body());
        assert_eq!(next(&mut body).await.unwrap(), COMMENT);
        let answer = answer.map(|mut answer| {
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            answer
        });
        assert!(send.send(answer).is_ok());
        let quoted = quoted.map_or_else(String::new, |quoted| format!(",\"body\":\"{quoted}\""));
        let expected = format!("event: error\ndata: {{\"status\":{status}{quoted}}}\n\n");
        assert_eq!(next(&mut body).await.unwrap(), expected);
        assert!(body.is_end_stream());
        assert_eq!(next(&mut body).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn comments_go_on_while_a_text_is_read() {
    let (send, _, response) = late(asks(Method::GET, Some(EVENTS)));
    let mut body = pin!(response.await.unwrap().into_body());
    assert!(send.send(Ok(with("text/plain", pending()))).is_ok());
    for _ in 0..3 {
        assert_eq!(next(&mut body).await.unwrap(), COMMENT);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_response_drops_the_service_future() {
    let (_send, alive, response) = late(asks(Method::GET, Some(EVENTS)));
    assert!(timeout(AFTER / 2, response).await.is_err());
    assert_eq!(Arc::strong_count(&alive), 1, "while it waited for the head");
    let (_send, alive, response) = late(asks(Method::GET, Some(EVENTS)));
    let mut body = Box::pin(response.await.unwrap().into_body());
    assert_eq!(next(&mut body).await.unwrap(), COMMENT);
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(body);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn outside_of_a_runtime_nothing_is_early_and_nothing_panics() {
    let (send, _, response) = late(asks(Method::GET, Some(EVENTS)));
    let mut response = pin!(response);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(response.as_mut().poll(&mut cx).is_pending());
    assert!(send.send(Ok(with(EVENTS, pending()))).is_ok());
    let std::task::Poll::Ready(Ok(response)) = response.poll(&mut cx) else { panic!("the answer is there") };
    let mut body = pin!(response.into_body());
    assert!(body.as_mut().poll_frame(&mut cx).is_pending());
}
