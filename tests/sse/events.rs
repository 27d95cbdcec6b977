//! Events survive encoding and parsing.

use std::time::Duration;

use millstream::sse::{Event, Hub, SendError};
use proptest::prelude::*;

use crate::parse::{Hand, Seen};

fn seen(event: Event) -> Vec<Seen> {
    let hub = Hub::new();
    let mut reader = Hand::new(hub.subscribe_from(None).unwrap());
    hub.send(event).unwrap();
    reader.read()
}

#[test]
fn what_is_sent_is_what_a_reader_dispatches() {
    let event = Event::new().id("7").event("token").data("a\r\nb\rc\nd").comment("no\nevent: x").retry(Duration::ZERO);
    let expected = Seen { name: "token".into(), data: "a\nb\nc\nd".into(), id: "7".into() };
    assert_eq!(seen(event), [expected]);
    assert!(seen(Event::new().comment("only").id("7")).is_empty());
    assert_eq!(seen(Event::new().data(""))[0].data, "");
}

#[test]
fn the_id_that_was_given_back_is_the_one_readers_see() {
    let hub = Hub::new();
    let mut reader = Hand::new(hub.subscribe_from(None).unwrap());
    let first = hub.send(Event::new().data("a")).unwrap();
    let second = hub.send(Event::new().data("b").id("mine")).unwrap();
    let ids: Vec<_> = reader.read().into_iter().map(|seen| seen.id).collect();
    assert_eq!(ids, [first.to_string(), second.to_string()]);
    assert_eq!(second.id().as_deref(), Some("mine"));
}

#[test]
fn what_cannot_be_sent_is_not() {
    let hub = Hub::new();
    let mut reader = Hand::new(hub.subscribe_from(None).unwrap());
    for id in ["", "a\nb", "a\rb", "a\0b", " a", "a ", "a\tb", "\x7f", &"x".repeat(1025)] {
        let refused = hub.send(Event::new().id(id).data("x"));
        assert!(matches!(refused, Err(SendError::InvalidId(_))), "{id:?}: {refused:?}");
    }
    let refused = hub.send(Event::new().event("a\n\ndata: forged").data("x"));
    assert!(matches!(&refused, Err(SendError::InvalidName(why)) if why.contains("line break")), "{refused:?}");
    assert!(reader.read().is_empty());
    assert_eq!((hub.stats().sent, hub.stats().ring_events), (0, 0));
}

proptest! {
    #[test]
    fn any_text_arrives_with_its_lines(data in "[a: \r\n\u{e9}\u{2028}\0]{0,40}", name in "[a: \u{e9}]{0,9}") {
        let seen = seen(Event::new().event(name.clone()).data(data.clone()));
        prop_assert_eq!(seen.len(), 1);
        // One space after the colon is not part of the value; the hub always writes it.
        prop_assert_eq!(&seen[0].name, &name);
        prop_assert_eq!(&seen[0].data, &data.replace("\r\n", "\n").replace('\r', "\n"));
    }
}
