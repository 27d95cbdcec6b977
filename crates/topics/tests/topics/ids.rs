//! The composite id: what the first bytes have, what an event has, and what a reader gets that comes back with it.

use millstream::sse::{Event, Hub, LagPolicy};
use millstream_topics::Topics;

use super::*;

#[test]
fn the_first_bytes_have_the_position_of_each_topic() {
    let (topics, [a, b]) = with(Topics::public(), ["a", "b c"]);
    let sent = send(&a, "before");
    let mut body = subscribe(&topics, "topic=a&topic=b+c", None);
    assert_eq!(text(&mut body), format!("id: a={sent},b%20c={}\n\n", b.position()));
    assert!(b.position().ends_with("-start"), "{}", b.position());
}

#[test]
fn an_event_has_the_positions_of_all_topics_and_its_own_first() {
    let (topics, [a, b]) = with(Topics::public(), ["a", "b"]);
    let mut body = subscribe(&topics, "topic=a&topic=b", None);
    let start = b.position();
    text(&mut body);
    let one = send(&a, "1");
    assert_eq!(text(&mut body), format!("data: 1\nid: a={one},b={start}\n\n"));
    let two = b.send(Event::new().event("named").data("2\n3").comment("c")).unwrap();
    assert_eq!(text(&mut body), format!(": c\nevent: named\ndata: 2\ndata: 3\nid: b={two},a={one}\n\n"));
    let given = a.send(Event::new().id("a=1, ü").data("4")).unwrap();
    assert_eq!(given.to_string(), "a=1, ü");
    assert_eq!(text(&mut body), format!("data: 4\nid: a=a%3D1%2C%20%C3%BC,b={two}\n\n"));
}

#[test]
fn a_reader_that_was_away_gets_what_silent_topics_have_sent() {
    let (topics, [a, b, c]) = with(Topics::public(), ["a", "b", "c"]);
    send(&b, "before");
    let mut body = subscribe(&topics, "topic=a&topic=b&topic=c", None);
    text(&mut body);
    send(&a, "1");
    let last = last(&text(&mut body));
    drop(body);
    for hub in [&a, &b, &c] {
        send(hub, "2");
        send(hub, "3");
    }
    let mut body = subscribe(&topics, "topic=c&topic=a&topic=b", Some(&last));
    let (events, _) = events(&text(&mut body));
    let got: Vec<_> = events[1..].iter().map(|got| (got.topic(), &*got.data)).collect();
    for topic in ["a", "b", "c"] {
        let of_topic: Vec<_> = got.iter().filter(|got| got.0 == topic).map(|got| got.1).collect();
        assert_eq!(of_topic, ["2", "3"], "{topic}");
    }
    assert_eq!(got.len(), 6, "{got:?}");
}

#[test]
fn the_first_bytes_are_enough_to_come_back() {
    let (topics, [a, b]) = with(Topics::public(), ["a", "b"]);
    let last = last(&text(&mut subscribe(&topics, "topic=a&topic=b", None)));
    send(&a, "1");
    send(&b, "2");
    let got = events(&text(&mut subscribe(&topics, "topic=a&topic=b", Some(&last)))).0;
    assert_eq!(got[1..].iter().map(|got| (got.topic(), &*got.data)).collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
}

#[test]
fn gaps_name_their_topic_and_keep_the_position() {
    let hub = Hub::builder().queue(1).lag_policy(LagPolicy::Latest).build();
    let topics = Topics::public().build();
    topics.insert("a\"b", hub.clone()).unwrap();
    topics.insert("c", Hub::new()).unwrap();
    let mut body = subscribe(&topics, "topic=c&topic=a%22b", None);
    let first = last(&text(&mut body));
    for n in 0..3 {
        send(&hub, &n.to_string());
    }
    let (got, _) = events(&text(&mut body));
    assert_eq!(got[0].name, "gap");
    assert_eq!(got[0].data, r#"{"topic":"a\"b","reason":"slow","missed":2}"#);
    let (c, ab) = first.split_once(',').unwrap();
    assert_eq!(got[0].id, format!("{ab},{c}"), "the same positions");
    assert_eq!((got[1].topic(), &*got[1].data, got.len()), ("a%22b", "2", 2));
}

#[test]
fn foreign_ids_are_ignored_and_counted() {
    let (topics, [a]) = with(Topics::public(), ["a"]);
    for (n, foreign) in ["x", "0a1b2c3d-7", "a=1,", "a=%0a", &"a=1,".repeat(2000)].iter().enumerate() {
        let mut body = subscribe(&topics, "topic=a", Some(foreign));
        assert_eq!(text(&mut body), format!("id: a={}\n\n", a.position()), "{foreign}");
        assert_eq!(topics.stats().bad_ids, n as u64 + 1);
    }
    assert_eq!(text(&mut subscribe(&topics, "topic=a", Some(""))), format!("id: a={}\n\n", a.position()));
    assert_eq!(topics.stats().bad_ids, 5);
}

#[test]
fn positions_of_other_topics_are_dropped_and_unknown_ones_give_a_gap() {
    let (topics, [a, b]) = with(Topics::public(), ["a", "b"]);
    send(&a, "1");
    let mut body = subscribe(&topics, "topic=a&topic=b", Some("other=7,a=ffffffff-99999"));
    let (got, _) = events(&text(&mut body));
    assert_eq!(got[0].id, format!("a=ffffffff-99999,b={}", b.position()));
    assert_eq!((&*got[1].name, &*got[1].data), ("gap", r#"{"topic":"a","reason":"expired","missed":null}"#));
    assert_eq!((&*got[2].data, got.len()), ("1", 3));
    assert_eq!(topics.stats().bad_ids, 0);
}

#[test]
fn a_topic_ends_where_its_ids_would_be_too_long() {
    let (topics, [a, b]) = with(Topics::public().id_len(80), ["a", "b"]);
    let mut body = subscribe(&topics, "topic=a&topic=b", None);
    text(&mut body);
    a.send(Event::new().id("x".repeat(80)).data("1")).unwrap();
    send(&b, "2");
    let (got, _) = events(&text(&mut body));
    assert_eq!((&*got[0].name, &*got[0].data), ("topic-end", r#"{"topic":"a","reason":"id_too_long"}"#));
    assert_eq!((&*got[1].data, got.len()), ("2", 2));
    assert!(got.iter().all(|got| got.id.len() <= 80));
}
