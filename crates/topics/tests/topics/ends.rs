//! Topics that end, and responses that end with them.

use std::time::Duration;

use millstream::body::GracefulClose;
use millstream::sse::{Event, Hub, LagPolicy, SendError};
use millstream_resumable::{StreamSender, Streams};
use millstream_topics::{SourceError, Topics};

use super::*;

fn end(topic: &str, reason: &str) -> (String, String) {
    ("topic-end".to_owned(), format!(r#"{{"topic":"{topic}","reason":"{reason}"}}"#))
}

fn named(got: &Got) -> (String, String) {
    (got.name.clone(), got.data.clone())
}

/// Returns the times of all `retry:` lines.
fn retries(text: &str) -> Vec<u64> {
    text.lines().filter_map(|line| line.strip_prefix("retry: ")?.parse().ok()).collect()
}

#[test]
fn a_topic_that_is_removed_or_closed_ends_and_the_others_continue() {
    let (topics, [a, b, c]) = with(Topics::public().retry(Duration::from_millis(7)), ["a", "b", "c"]);
    let query = "topic=a&topic=b&topic=c";
    let mut body = subscribe(&topics, query, None);
    text(&mut body);
    send(&a, "1");
    send(&b, "2");
    assert!(topics.remove("a") && !topics.remove("a"));
    b.close();
    // Events that were sent before come first.
    let all = text(&mut body);
    let (mut got, _) = events(&all);
    got.sort_by_key(|got| got.topic().to_owned());
    let ids: Vec<_> = got.iter().map(|got| got.topic().to_owned()).collect();
    assert_eq!(ids, ["a", "a", "b", "b"]);
    assert_eq!(
        got.iter().map(named).collect::<Vec<_>>(),
        [(String::new(), "1".to_owned()), end("a", "removed"), (String::new(), "2".to_owned()), end("b", "ended"),]
    );
    assert_eq!(retries(&all), [0; 0], "the response goes on");
    send(&c, "3");
    let rest = text(&mut body);
    assert_eq!(events(&rest).0[0].data, "3");
    let last = last(&rest);

    // A reader that comes back is told again, and goes on too.
    let mut again = subscribe(&topics, query, Some(&last));
    let (got, _) = events(&text(&mut again));
    assert_eq!(got[1..].iter().map(named).collect::<Vec<_>>(), [end("a", "removed"), end("b", "ended")]);

    c.close();
    let all = text(&mut body);
    assert_eq!(named(&events(&all).0[0]), end("c", "ended"));
    assert_eq!((retries(&all), all.ends_with("\n\nretry: 7\n\n")), (vec![7], true), "{all}");
    assert!(body.is_end_stream());
    assert_eq!(answer(&topics, query, Some(&last)).status(), 204);
    drop((body, again));
    assert_eq!([&a, &b, &c].map(|hub| hub.stats().subscribers), [0; 3]);
    assert_eq!(topics.stats().readers, 0);
}

#[test]
fn a_hub_that_ends_a_reader_ends_the_response_and_the_reader_misses_nothing() {
    let a = Hub::builder().queue(2).lag_policy(LagPolicy::Disconnect).build();
    let (topics, [b]) = with(Topics::public(), ["b"]);
    topics.insert("a", a.clone()).unwrap();
    let mut body = subscribe(&topics, "topic=a&topic=b", None);
    let first = text(&mut body);
    for n in 0..5 {
        send(&a, &n.to_string());
    }
    send(&b, "b");
    let all = first + &text(&mut body);
    assert!(body.is_end_stream() && retries(&all).len() == 1 && !all.contains("topic-end"), "{all}");
    let rest = text(&mut subscribe(&topics, "topic=a&topic=b", Some(&last(&all))));
    let got = [events(&all).0, events(&rest).0].concat();
    let data = |topic: &str| {
        let got = got.iter().filter(|got| got.topic() == topic && !got.data.is_empty());
        got.map(|got| got.data.as_str()).collect::<Vec<_>>().concat()
    };
    assert_eq!((data("a"), data("b")), ("01234".to_owned(), "b".to_owned()));
}

#[test]
fn a_response_ends_by_its_signal_behind_the_events_before() {
    let (topics, [a, b]) = with(Topics::public().wait_for_topics(true), ["a", "b"]);
    let response = answer(&topics, "topic=a&topic=b&topic=later", None);
    let ending = response.extensions().get::<GracefulClose>().unwrap().clone();
    let mut body = response.into_body();
    text(&mut body);
    send(&a, "1");
    send(&b, "2");
    ending.end();
    ending.end();
    send(&a, "3");
    let all = text(&mut body);
    let data: Vec<_> = events(&all).0.into_iter().map(|got| got.data).collect();
    assert!(
        data.starts_with(&["1".to_owned(), "3".to_owned()]) || data.starts_with(&["1".to_owned(), "2".to_owned()]),
        "{all}"
    );
    assert!(retries(&all).len() == 1 && all.ends_with("\n\n") && body.is_end_stream(), "{all}");
    assert!(!all.contains("topic-end"), "{all}");
    // The position of the topic that was waited for is kept, too.
    let last = last(&all);
    assert!(last.contains("later="), "{last}");
}

#[test]
fn topics_end_with_their_last_handle() {
    let (topics, [a]) = with(Topics::public().wait_for_topics(true), ["a"]);
    let mut body = subscribe(&topics, "topic=a&topic=later", None);
    text(&mut body);
    send(&a, "1");
    drop(topics);
    let all = text(&mut body);
    let names: Vec<_> = events(&all).0.iter().map(named).collect();
    assert!(names.contains(&(String::new(), "1".to_owned())) && names.contains(&end("a", "removed")), "{all}");
    assert!(body.is_end_stream() && retries(&all).len() == 1, "{all}");
    assert_eq!(a.stats().subscribers, 0);
}

#[tokio::test]
async fn a_stream_with_a_key_is_read_from_its_first_event_and_ends_with_its_producer() {
    async fn produce(sender: StreamSender) -> Result<(), SendError> {
        (0..3).try_for_each(|n| sender.send(Event::new().data(n.to_string())).map(drop))
    }
    let streams = Streams::new();
    let stream = streams.get_or_start("k", "alice", produce).unwrap();
    stream.ended().await;
    let (topics, [a]) = with(Topics::public(), ["a"]);
    topics.insert("k", stream).unwrap();
    let mut body = subscribe(&topics, "topic=k&topic=a", None);
    let all = text(&mut body);
    let (got, _) = events(&all);
    assert_eq!(got[0].id, format!("k=,a={}", a.position()));
    assert_eq!(got[1..4].iter().map(|got| &*got.data).collect::<Vec<_>>(), ["0", "1", "2"]);
    assert_eq!((named(&got[4]), got.len()), (end("k", "ended"), 5));
    // Not from the first event on again.
    let again = text(&mut subscribe(&topics, "topic=k&topic=a", Some(&last(&all))));
    assert_eq!(events(&again).0[1..].iter().map(named).collect::<Vec<_>>(), [end("k", "ended")]);
    let part = text(&mut subscribe(&topics, "topic=k", Some(&got[2].id)));
    assert_eq!(events(&part).0[1].data, "2");
    assert_eq!(answer(&topics, "topic=k", Some(&last(&all))).status(), 204);
}

#[test]
fn a_function_is_asked_with_the_position_of_the_reader() {
    let (hub, topics) = (Hub::new(), Topics::public().build());
    let (asked, calls) = std::sync::mpsc::channel();
    let source = hub.clone();
    let function = move |last: Option<&str>| {
        asked.send(last.map(str::to_owned)).unwrap();
        Ok::<_, SourceError>(source.subscribe_from(last)?)
    };
    topics.insert("f", function).unwrap();
    let mut body = subscribe(&topics, "topic=f", None);
    assert_eq!(text(&mut body), "id: f=\n\n");
    let id = send(&hub, "1");
    assert_eq!(last(&text(&mut body)), format!("f={id}"));
    drop(subscribe(&topics, "topic=f", Some(&format!("f={id}"))));
    hub.close();
    assert!(text(&mut body).contains(r#""reason":"ended""#));
    assert_eq!(calls.try_iter().collect::<Vec<_>>(), [None, Some(id.clone()), Some(id)]);
}
