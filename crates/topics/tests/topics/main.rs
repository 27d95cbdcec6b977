//! `Topics`: what readers of several hubs get, by bodies without a server and over real connections.

mod ends;
mod flow;
mod ids;
mod later;
mod lost;
mod requests;
mod resume;
mod served;

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http::request::Parts;
use http::{Request, Response};
use hyper::body::Body;
use millstream::sse::{Event, EventId, Hub};
use millstream_topics::{Topics, TopicsBody, TopicsBuilder};

/// Topics with these names, each with a hub.
pub(crate) fn with<const N: usize>(builder: TopicsBuilder, names: [&str; N]) -> (Topics, [Hub; N]) {
    let (topics, hubs) = (builder.build(), names.map(|_| Hub::new()));
    for (name, hub) in names.iter().zip(&hubs) {
        topics.insert(name, hub.clone()).unwrap();
    }
    (topics, hubs)
}

pub(crate) fn get(query: &str) -> Parts {
    Request::get(format!("/events?{query}")).body(()).unwrap().into_parts().0
}

pub(crate) fn send(hub: &Hub, data: &str) -> String {
    hub.send(Event::new().data(data)).map(|id: EventId| id.to_string()).unwrap()
}

/// Subscribes to the topics of the query, behind the id `last`.
pub(crate) fn subscribe(topics: &Topics, query: &str, last: Option<&str>) -> TopicsBody {
    let response = answer(topics, query, last);
    assert_eq!(response.status(), 200, "{:?}", response.body());
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response.into_body()
}

pub(crate) fn answer(topics: &Topics, query: &str, last: Option<&str>) -> Response<TopicsBody> {
    let mut request = get(query);
    if let Some(last) = last {
        request.headers.insert("last-event-id", last.parse().unwrap());
    }
    topics.subscribe(&request)
}

/// Returns the next frame; `None` if there is none now, or at the end.
pub(crate) fn frame(body: &mut TopicsBody) -> Option<bytes::Bytes> {
    match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(frame) => Some(frame?.unwrap().into_data().unwrap()),
        Poll::Pending => None,
    }
}

/// Returns the text of all frames that are ready.
pub(crate) fn text(body: &mut TopicsBody) -> String {
    let mut all = Vec::new();
    while let Some(frame) = frame(body) {
        all.extend_from_slice(&frame);
    }
    String::from_utf8(all).unwrap()
}

/// An event as the client gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) data: String,
}

impl Got {
    /// Returns the topic, as a browser finds it.
    pub(crate) fn topic(&self) -> &str {
        self.id.split('=').next().unwrap()
    }
}

/// Returns the whole events of a text, and its length. `HTML §9.2.6`: what has no empty line behind it is no event.
pub(crate) fn events(text: &str) -> (Vec<Got>, usize) {
    let (mut all, mut at) = (Vec::new(), 0);
    while let Some(end) = text[at..].find("\n\n") {
        let mut got = Got::default();
        for line in text[at..at + end].lines() {
            let (field, value) = line.split_once(": ").unwrap_or((line, ""));
            match field {
                "id" => got.id = value.to_owned(),
                "event" => got.name = value.to_owned(),
                "data" => got.data.push_str(value),
                "retry" | ":" => {}
                _ => panic!("{line:?} in {text:?}"),
            }
        }
        all.push(got);
        at += end + 2;
    }
    (all, at)
}

/// Returns the last id of a text.
pub(crate) fn last(text: &str) -> String {
    events(text).0.into_iter().rfind(|got| !got.id.is_empty()).unwrap().id
}
