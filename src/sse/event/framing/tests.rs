//! Events in other framings, byte by byte.

use super::*;
use crate::sse::Event;
use crate::sse::event::finish;

fn encoded(event: &Event, id: &str) -> Vec<u8> {
    let mut text = event.encode(id.len());
    finish(&mut text, &id);
    text
}

fn framed(framing: impl Framing, text: &[u8]) -> String {
    String::from_utf8(Framed::new(framing).frame(text).to_vec()).unwrap()
}

#[test]
fn the_fields_of_an_event_are_found_again() {
    let hard = "a: b\n\n: c\r\ndata: d\rid: e\n";
    let events = [
        Event::new().data("x"),
        Event::new().event("tick").data(hard).comment("no\nevent: data").retry(Duration::from_secs(1)),
        Event::new().event("empty").data(""),
        Event::new().comment("alone"),
    ];
    let text: Vec<u8> = events.iter().enumerate().flat_map(|(n, event)| encoded(event, &format!("id: {n}"))).collect();
    let mut found = Vec::new();
    for_each_event(&text, |event| {
        found.push((event.id.map(str::to_owned), event.event.map(str::to_owned), event.data.map(str::to_owned)));
    });
    let expected = |id: &str, event: Option<&str>, data: Option<&str>| {
        (Some(id.to_owned()), event.map(str::to_owned), data.map(str::to_owned))
    };
    assert_eq!(
        found,
        [
            expected("id: 0", None, Some("x")),
            // Line breaks arrive as LF.
            expected("id: 1", Some("tick"), Some("a: b\n\n: c\ndata: d\nid: e\n")),
            expected("id: 2", Some("empty"), Some("")),
            expected("id: 3", None, None),
        ]
    );
}

#[test]
fn a_line_is_one_event_and_valid_json() {
    let mut text = encoded(&Event::new().event("a\"b").data("{\"n\":\n1}"), "x\\\u{1}y");
    text.extend(encoded(&Event::new().event("no data"), "2"));
    text.extend(crate::sse::event::Gap::slow(Some(3)).encode());
    assert_eq!(framed(JsonLines::new(), &text), "{\"n\": 1}\n{\"gap\":{\"reason\":\"slow\",\"missed\":3}}\n");
    let with_ids = framed(JsonLines::new().with_ids(), &text);
    let lines: Vec<serde_json::Value> = with_ids.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], serde_json::json!({ "id": "x\\\u{1}y", "event": "a\"b", "data": { "n": 1 } }));
    assert_eq!(lines[1], serde_json::json!({ "gap": { "reason": "slow", "missed": 3 } }));
    assert_eq!(lines.len(), 2);
    assert_eq!(framed(Raw::new(), &text), "{\"n\":\n1}");
}

#[test]
fn events_at_the_same_position_are_framed_once() {
    let framed = Framed::new(Raw::new());
    let text = encoded(&Event::new().data("x"), "1");
    let first = framed.shared((0, 1), &text);
    assert_eq!(framed.shared((0, 1), &text).as_ptr(), first.as_ptr());
    assert_ne!(framed.shared((1, 2), &text).as_ptr(), first.as_ptr());
}
