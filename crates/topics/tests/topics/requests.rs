//! Requests: names, authorization, refusals, forms and JSON.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Body as _;
use millstream::sse::Hub;
use millstream_topics::{Topics, TopicsBuilder};

use super::*;

/// Returns status, text and `Retry-After` of a refusal.
pub(crate) fn refusal(mut response: Response<TopicsBody>) -> (u16, String, Option<u64>) {
    assert_eq!(response.headers()["cache-control"], "no-store");
    let retry = response.headers().get("retry-after").map(|seconds| seconds.to_str().unwrap().parse().unwrap());
    let size = response.body().size_hint().exact();
    let text = text(response.body_mut());
    assert_eq!(size, Some(text.len() as u64));
    (response.status().as_u16(), text, retry)
}

fn refused(topics: &Topics, query: &str) -> (u16, String) {
    let (status, text, retry) = refusal(topics.subscribe(&get(query)));
    assert_eq!(retry, None);
    (status, text)
}

pub(crate) fn error(error: &str, topic: Option<&str>) -> String {
    let topic = topic.map_or("null".to_owned(), |topic| format!("\"{topic}\""));
    format!("{{\"error\":\"{error}\",\"topic\":{topic}}}")
}

#[test]
fn each_topic_of_each_request_is_authorized() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let builder = Topics::builder(move |request, topic| {
        log.lock().unwrap().push(topic.to_owned());
        topic != "secret" || request.headers.contains_key("authorization")
    });
    let (topics, [_open, secret]) = with(builder, ["open", "secret"]);
    assert_eq!(refused(&topics, "topic=open&topic=secret&topic=none"), (403, error("forbidden", Some("secret"))));
    assert_eq!(*asked.lock().unwrap(), ["open", "secret"]);
    // The same for a topic that does not exist.
    topics.remove("secret");
    assert_eq!(refused(&topics, "topic=secret"), (403, error("forbidden", Some("secret"))));
    topics.insert("secret", secret.clone()).unwrap();
    let mut request = get("topic=open&topic=secret");
    request.headers.insert("authorization", "Bearer x".parse().unwrap());
    assert_eq!(topics.subscribe(&request).status(), 200);
    request.method = hyper::Method::HEAD;
    assert_eq!(topics.subscribe(&request).status(), 200);
    request.headers.clear();
    assert_eq!(topics.subscribe(&request).status(), 403);
    assert_eq!((topics.stats().readers, secret.stats().subscribers), (0, 0));
}

#[test]
fn requests_have_limits() {
    let builder = || Topics::public().topics(2).name_len(5).id_len(100).readers(1);
    let (topics, [a, _, _]) = with(builder(), ["a", "b", "c"]);
    assert_eq!(refused(&topics, ""), (400, error("no_topic", None)));
    assert_eq!(refused(&topics, "topic=a&topic=b&topic=c"), (400, error("too_many_topics", None)));
    assert_eq!(refused(&topics, "topic=123456"), (400, error("name_too_long", None)));
    assert_eq!(refused(&topics, "topic=12345"), (404, error("unknown_topic", Some("12345"))));
    assert_eq!(refused(&topics, "topic=a&topic="), (400, error("no_topic", None)));
    assert_eq!(refused(&topics, "topic=a&topic=%22"), (404, error("unknown_topic", Some("\\\""))));
    let body = subscribe(&topics, "topic=a&topic=b&topic=a", None);
    let (status, text, retry) = refusal(topics.subscribe(&get("topic=a")));
    assert_eq!((status, text), (503, error("full", None)));
    assert!((1..=3).contains(&retry.unwrap()), "{retry:?}");
    assert_eq!((topics.stats().readers, topics.stats().refused), (1, 1));
    drop(body);
    drop(subscribe(&topics, "topic=a", None));

    // The names alone are too long with their reserve.
    let (narrow, _) = with(builder().id_len(60), ["\u{e9}\u{e9}", "b"]);
    assert_eq!(refused(&narrow, "topic=%C3%A9%C3%A9&topic=b"), (400, error("id_too_long", None)));
    // A hub may have its own maximum.
    let full = Hub::builder().subscribers(1).build();
    topics.insert("b", full.clone()).unwrap();
    let held = full.subscribe_from(None).unwrap();
    assert_eq!(refusal(topics.subscribe(&get("topic=a&topic=b"))).0, 503);
    assert_eq!((topics.stats().readers, topics.stats().refused, a.stats().subscribers), (0, 2, 0));
    drop(held);
    assert_eq!(
        topics.insert("", Hub::new()).unwrap_err().to_string(),
        topics.insert("123456", Hub::new()).unwrap_err().to_string()
    );
}

fn post(media: &str, body: &str) -> Request<Full<Bytes>> {
    Request::post("/events?topic=ignored")
        .header("content-type", media)
        .body(Full::new(body.to_owned().into()))
        .unwrap()
}

#[tokio::test]
async fn a_post_names_topics_in_a_form_or_in_json() {
    let (topics, [a, b]) = with(Topics::public().body_len(100), ["a", "b c"]);
    let last = last(&text(&mut subscribe(&topics, "topic=a&topic=b+c", None)));
    send(&a, "1");
    send(&b, "2");
    let form = format!("topic=a&topic=b+c&lastEventId={}", last.replace('%', "%25").replace('=', "%3D"));
    let json = format!(r#"{{"topics":["a","b c"],"lastEventId":"{last}"}}"#);
    for (media, body) in [("application/x-www-form-urlencoded", form), ("application/json; charset=utf-8", json)] {
        let response = topics.answer(post(media, &body)).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"text/event-stream".parse().unwrap()),
            "{body}"
        );
        let got = events(&text(&mut response.into_body())).0;
        assert_eq!(
            got[1..].iter().map(|got| (got.topic(), &*got.data)).collect::<Vec<_>>(),
            [("a", "1"), ("b%20c", "2")]
        );
    }
    let long = format!(r#"{{"topics":["{}"]}}"#, "a".repeat(100));
    for (request, expected) in [
        (post("application/json", "{}"), (400, error("malformed_body", None))),
        (post("application/json", r#"{"topics":["none"]}"#), (404, error("unknown_topic", Some("none")))),
        (post("application/json", &long), (413, error("body_too_large", None))),
        (post("text/plain", "topic=a"), (415, error("media_type", None))),
    ] {
        let (status, text, _) = refusal(topics.answer(request).await);
        assert_eq!((status, text), expected);
    }
    let put = Request::put("/events?topic=a").body(Empty::<Bytes>::new()).unwrap();
    let response = topics.answer(put).await;
    assert_eq!(response.headers()["allow"], "GET, HEAD, POST");
    assert_eq!(refusal(response).0, 405);
}

#[tokio::test]
async fn a_head_request_gets_the_head_and_is_no_reader() {
    let (topics, [a]) = with(Topics::public().readers(0), ["a"]);
    let head = Request::head("/events?topic=a").body(Empty::<Bytes>::new()).unwrap();
    let response = topics.answer(head).await;
    assert_eq!((response.status().as_u16(), response.headers()["x-accel-buffering"].as_bytes()), (200, &b"no"[..]));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
    assert_eq!((topics.stats().readers, topics.stats().refused, a.stats().subscribers), (0, 0, 0));
    assert_eq!(refused(&topics, "topic=none").0, 404);
    // A hub without a place for it refuses it.
    let full = Hub::builder().subscribers(0).build();
    topics.insert("full", full).unwrap();
    let head = Request::head("/events?topic=full").body(Empty::<Bytes>::new()).unwrap();
    assert_eq!(topics.answer(head).await.status(), 503);
    let _: fn() -> TopicsBuilder = Topics::public;
}
