//! Unit tests of `event`.

use super::*;

fn encoded(event: &Event) -> String {
    event.check().unwrap();
    let mut text = event.encode(1);
    let capacity = text.capacity();
    finish(&mut text, &"7");
    if !event.parts().data.is_some_and(|data| data.contains(['\n', '\r'])) {
        assert_eq!(text.capacity(), capacity, "the capacity has no room for the id");
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn parts_are_written_in_lines() {
    for (event, text) in [
        (Event::new(), "id: 7\n\n"),
        (Event::new().data(""), "data: \nid: 7\n\n"),
        (Event::new().data(" a"), "data:  a\nid: 7\n\n"),
        (Event::new().event("").data("a"), "data: a\nid: 7\n\n"),
        (Event::new().data("a\nb"), "data: a\ndata: b\nid: 7\n\n"),
        (Event::new().data("a\rb"), "data: a\ndata: b\nid: 7\n\n"),
        (Event::new().data("a\r\nb"), "data: a\ndata: b\nid: 7\n\n"),
        (Event::new().data("a\n\rb"), "data: a\ndata: \ndata: b\nid: 7\n\n"),
        (Event::new().data("a\r\n"), "data: a\ndata: \nid: 7\n\n"),
        (Event::new().data("\n"), "data: \ndata: \nid: 7\n\n"),
        (Event::new().data("é\u{2028}x"), "data: é\u{2028}x\nid: 7\n\n"),
        (Event::new().comment("a\nid: 8"), ": a\n: id: 8\nid: 7\n\n"),
        (Event::new().data("a").data("b").retry(Duration::from_millis(1500)), "data: b\nretry: 1500\nid: 7\n\n"),
        (Event::new().data("a").event("n: x").comment("c"), ": c\nevent: n: x\ndata: a\nid: 7\n\n"),
    ] {
        assert_eq!(encoded(&event), text, "{event:?}");
    }
}

#[test]
fn what_would_break_out_of_its_line_is_refused() {
    let long = "x".repeat(ID_MAX + 1);
    for id in ["", "a\nb", "a\rb", "a\r\nb", "a\0b", &long, " ", " a", "a ", "a\tb", "a\x1bb", "a\x7f"] {
        assert!(matches!(Event::new().id(id).check(), Err(SendError::InvalidId(_))), "{id:?}");
    }
    for name in ["a\nb", "a\rb", "\0", "a\n\ndata: b"] {
        assert!(matches!(Event::new().event(name).check(), Err(SendError::InvalidName(_))), "{name:?}");
    }
    Event::new().id("a b, ü\u{a0}").check().unwrap();
    Event::new().id(&long[1..]).event("é: x").check().unwrap();
}
