//! Topics that appear, or get another source, while readers follow them.

use millstream::sse::Hub;
use millstream_topics::Topics;

use super::*;

/// Returns topic, name and data of all events that have one of these.
fn got(body: &mut TopicsBody) -> Vec<(String, String, String)> {
    let (got, _) = events(&text(body));
    let got = got.into_iter().filter(|got| !got.name.is_empty() || !got.data.is_empty());
    got.map(|got| (got.topic().to_owned(), got.name.clone(), got.data)).collect()
}

fn data(topic: &str, data: &str) -> (String, String, String) {
    (topic.to_owned(), String::new(), data.to_owned())
}

#[test]
fn a_topic_that_appears_later_is_read_from_its_insertion_on() {
    let (topics, [a]) = with(Topics::public().wait_for_topics(true), ["a"]);
    let mut body = subscribe(&topics, "topic=a&topic=later", None);
    let first = text(&mut body);
    assert_eq!(first, format!("id: a={},later=\n\n", a.position()));
    let later = Hub::new();
    send(&later, "before");
    topics.insert("later", later.clone()).unwrap();
    send(&later, "1");
    assert_eq!(got(&mut body), [data("later", "1")]);
    send(&a, "2");
    let id = last(&text(&mut body));
    assert_eq!(id, format!("a={},later={}", a.position(), later.position()));
    // A reader that was away since it waited gets the same.
    assert_eq!(got(&mut subscribe(&topics, "topic=later", Some(&last(&first)))), [data("later", "1")]);
    // A reader that comes now, and has not asked before, begins with the next event.
    assert_eq!(got(&mut subscribe(&topics, "topic=later", None)), []);
}

#[test]
fn a_topic_that_comes_back_continues_for_those_that_wait() {
    let (topics, [a, _b]) = with(Topics::public().wait_for_topics(true), ["a", "b"]);
    let mut body = subscribe(&topics, "topic=a&topic=b", None);
    send(&a, "1");
    a.close();
    let ended = got(&mut body);
    assert_eq!(ended[0], data("a", "1"));
    assert_eq!((&*ended[1].1, &*ended[1].2), ("topic-end", r#"{"topic":"a","reason":"ended"}"#));
    assert_eq!(got(&mut body), [], "the closed hub is not asked again");
    let next = Hub::new();
    topics.insert("a", next.clone()).unwrap();
    send(&next, "2");
    assert_eq!(got(&mut body), [data("a", "2")]);
    topics.remove("a");
    let removed = text(&mut body);
    assert_eq!(events(&removed).0[0].data, r#"{"topic":"a","reason":"removed"}"#);
    let last_one = Hub::new();
    send(&last_one, "before");
    topics.insert("a", last_one.clone()).unwrap();
    send(&last_one, "3");
    assert_eq!(got(&mut body), [data("a", "3")]);
    // A reader that was away since has no position of the old hub, which would be a gap.
    assert_eq!(got(&mut subscribe(&topics, "topic=a&topic=b", Some(&last(&removed)))), [data("a", "3")]);
}

#[test]
fn a_topic_with_another_source_continues_without_an_end() {
    for waits in [false, true] {
        let (topics, [old]) = with(Topics::public().wait_for_topics(waits), ["a"]);
        let mut body = subscribe(&topics, "topic=a", None);
        text(&mut body);
        send(&old, "1");
        let new = Hub::new();
        topics.insert("a", new.clone()).unwrap();
        send(&old, "lost");
        send(&new, "2");
        assert_eq!(got(&mut body)[0], data("a", "1"));
        send(&new, "3");
        assert_eq!(got(&mut body), [data("a", "3")]);
        assert_eq!((old.stats().subscribers, new.stats().subscribers), (0, 1));
    }
}

#[test]
fn readers_leave_nothing_behind() {
    let topics = Topics::public().wait_for_topics(true).build();
    let bodies: Vec<_> = (0..10).map(|n| subscribe(&topics, &format!("topic=a&topic=b{n}"), None)).collect();
    let hub = Hub::new();
    topics.insert("a", hub.clone()).unwrap();
    assert_eq!((topics.stats().readers, topics.stats().topics, hub.stats().subscribers), (10, 1, 0));
    for mut body in bodies {
        text(&mut body);
        assert_eq!(hub.stats().subscribers, 1);
    }
    assert_eq!((topics.stats().readers, topics.stats().topics, hub.stats().subscribers), (0, 1, 0));
    topics.remove("a");
    assert_eq!(topics.stats().topics, 0);
}
