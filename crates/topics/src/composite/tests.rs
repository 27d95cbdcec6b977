//! Composite ids of any names and positions.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;

fn id(topics: &[(&str, Option<&str>)]) -> CompositeId {
    CompositeId::new(topics.iter().copied(), usize::MAX - 1).unwrap()
}

fn text(id: &CompositeId, first: usize) -> String {
    let mut text = Vec::new();
    id.write(first, &mut text);
    assert_eq!(text.len(), id.len());
    String::from_utf8(text).unwrap()
}

fn decoded(text: &str) -> Option<Positions> {
    decode_all(text, usize::MAX)
}

#[test]
fn the_topic_of_the_event_is_first() {
    let mut id = id(&[("a", Some("1-0")), ("b c", None), ("d", Some("x,=%"))]);
    assert_eq!(text(&id, 0), "a=1-0,b%20c=,d=x%2C%3D%25");
    id.set(1, "7").unwrap();
    assert_eq!(text(&id, 1), "b%20c=7,a=1-0,d=x%2C%3D%25");
    id.set(1, "8").unwrap();
    assert_eq!(text(&id, 2), "d=x%2C%3D%25,a=1-0,b%20c=8");
    id.set(2, "").unwrap();
    id.set(0, "1-1").unwrap();
    assert_eq!(text(&id, 0), "a=1-1,b%20c=8,d=");
    assert_eq!(text(&id, 2), "d=,a=1-1,b%20c=8");
    assert_eq!([0, 1, 2].map(|at| id.position(at)), [Some("1-1".to_owned()), Some("8".to_owned()), None]);
}

#[test]
fn an_id_has_a_maximum_length() {
    let topics = [("a", Some("1")), ("b", None)];
    // Two letters, `=`, room for a position, and a comma.
    let needed = 2 * (1 + 1 + ROOM) + 1;
    let with = |max: usize| CompositeId::new(topics.into_iter(), max);
    assert_eq!(with(needed - 1).err(), Some(TooLong));
    let mut id = with(needed).unwrap();
    let longest = "x".repeat(needed - "a=1,b=".len());
    assert_eq!(id.set(1, &format!("{longest}x")), Err(TooLong));
    assert_eq!(id.position(1), None);
    id.set(1, &longest).unwrap();
    assert_eq!(id.len(), needed);
    let long = "x".repeat(ROOM + 1);
    assert_eq!(CompositeId::new([("a", Some(&*long))].into_iter(), ROOM + 2).err(), Some(TooLong));
}

#[test]
fn foreign_texts_are_no_ids() {
    for foreign in [
        "",
        "a",
        "a=1,",
        ",a=1",
        "a=1,a=2",
        "=1",
        "a=1=2",
        "a b=1",
        "a=%0a",
        "a=%00",
        "a=%ff",
        "ä=1",
        "a=1;b=2",
        "0a1b2c3d-7",
    ] {
        assert_eq!(decoded(foreign), None, "{foreign:?}");
    }
    assert_eq!(decoded(&format!("a={}", "x".repeat(POSITION_MAX + 1))), None);
    assert_eq!(decode_all("a=1", 2), None);
    assert_eq!(decoded("a=1,b="), Some(vec![("a".to_owned(), Some("1".to_owned())), ("b".to_owned(), None)]));
}

proptest! {
    #[test]
    fn ids_are_read_as_they_were_written(
        topics in btree_map(".{1,20}", "[^\r\n\0]{0,40}", 1..20),
        changes in vec((any::<prop::sample::Index>(), "[^\r\n\0]{0,40}"), 0..40),
    ) {
        let mut topics: Vec<(String, String)> = topics.into_iter().collect();
        let mut id = id(&topics.iter().map(|(name, at)| (&**name, Some(&**at))).collect::<Vec<_>>());
        for (at, position) in changes {
            let at = at.index(topics.len());
            id.set(at, &position).unwrap();
            topics[at].1 = position;
            prop_assert_eq!(&decoded(&text(&id, at)).unwrap()[0].0, &topics[at].0);
        }
        prop_assert!(text(&id, 0).bytes().all(|byte| byte.is_ascii_graphic()));
        let mut read = decoded(&text(&id, topics.len() / 2)).unwrap();
        read.sort();
        let written = topics.iter().map(|(name, at)| (name.clone(), Some(at.clone()).filter(|at| !at.is_empty())));
        prop_assert_eq!(read, written.collect::<Vec<_>>());
        for (at, (_, position)) in topics.iter().enumerate() {
            prop_assert_eq!(id.position(at).unwrap_or_default(), position.clone());
        }
    }

    #[test]
    fn no_text_panics(text in ".{0,200}", parts in vec("[a=,%0-9\n\u{e9}]{0,9}", 0..9)) {
        let _ = decoded(&text);
        let parts = parts.join(",");
        if let Some(read) = decoded(&parts) {
            let topics: Vec<_> = read.iter().map(|(name, at)| (&**name, at.as_deref())).collect();
            prop_assert_eq!(decoded(&self::text(&id(&topics), 0)), Some(read.clone()));
        }
    }
}
