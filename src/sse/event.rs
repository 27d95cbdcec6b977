//! One event, and how it is written: the [event stream] of the HTML standard.
//!
//! The id is written last, so that everything else is encoded before the place in the order is known.
//!
//! [event stream]: https://html.spec.whatwg.org/multipage/server-sent-events.html

use std::fmt;
use std::io::Write as _;
use std::time::Duration;

use super::error::SendError;

/// Longest id in bytes, of an event and of a reader that comes back: readers send it in a header.
pub(super) const ID_MAX: usize = 1024;

/// An event of a [`Hub`](super::Hub). Setting a part again replaces it.
///
/// ```
/// use std::time::Duration;
/// use millstream::sse::Event;
///
/// let event = Event::new().event("token").data("two\nlines").retry(Duration::from_secs(2));
/// assert_eq!(event.parts().data, Some("two\nlines"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "an event is not sent before Hub::send"]
pub struct Event {
    id: Option<String>,
    name: Option<String>,
    data: Option<String>,
    retry: Option<Duration>,
    comment: Option<String>,
}

/// What an [`Event`] is made of, for a [`Log`](crate::sse::log::Log) that has to write it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventParts<'a> {
    /// The id it was given; the hub's own are not known before it is sent.
    pub id: Option<&'a str>,
    /// Its name.
    pub event: Option<&'a str>,
    /// Its data, as they were given.
    pub data: Option<&'a str>,
    /// How long the reader waits before it comes back.
    pub retry: Option<Duration>,
    /// What readers do not look at.
    pub comment: Option<&'a str>,
}

impl Event {
    /// An event without anything in it. Without [`data`](Self::data) browsers take note of its id and dispatch nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The id a reader comes back with, at most 1024 bytes, without line breaks and NUL. By default the hub gives
    /// ids. Of several events with the same id in the ring, the last counts.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Its name, without line breaks and NUL; to readers an event without a name is a `message`. `gap` is the name of
    /// the hub's own events, see [`Hub`](super::Hub#gaps).
    pub fn event(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Its data. LF, CR and CRLF all are line breaks, and arrive as LF.
    pub fn data(mut self, data: impl Into<String>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// How long the reader is to wait before it connects again, in whole milliseconds.
    pub fn retry(mut self, retry: Duration) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Lines that readers pass over.
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = Some(comment.into());
        self
    }

    /// What it is made of.
    pub fn parts(&self) -> EventParts<'_> {
        EventParts {
            id: self.id.as_deref(),
            event: self.name.as_deref(),
            data: self.data.as_deref(),
            retry: self.retry,
            comment: self.comment.as_deref(),
        }
    }

    /// Whether it can be sent.
    pub(super) fn check(&self) -> Result<(), SendError> {
        if let Some(id) = &self.id {
            check_id(id).map_err(SendError::InvalidId)?;
        }
        self.check_name()
    }

    pub(super) fn check_name(&self) -> Result<(), SendError> {
        self.name.as_deref().map_or(Ok(()), one_line).map_err(SendError::InvalidName)
    }

    /// All of it but the id and the line that ends it, with room for those in the capacity: `id` is the length of the id.
    pub(super) fn encode(&self, id: usize) -> Vec<u8> {
        let lens = [&self.name, &self.data, &self.comment].map(|part| part.as_ref().map_or(0, |part| part.len() + 16));
        let mut text = String::with_capacity(lens.iter().sum::<usize>() + id + 32);
        if let Some(comment) = &self.comment {
            lines(&mut text, ": ", comment);
        }
        if let Some(name) = self.name.as_ref().filter(|name| !name.is_empty()) {
            lines(&mut text, "event: ", name);
        }
        if let Some(data) = &self.data {
            lines(&mut text, "data: ", data);
        }
        if let Some(retry) = self.retry {
            text.push_str("retry: ");
            text.push_str(&retry.as_millis().to_string());
            text.push('\n');
        }
        text.into_bytes()
    }
}

/// Ends what [`Event::encode`] has begun.
pub(super) fn finish(text: &mut Vec<u8>, id: &dyn fmt::Display) {
    // Vectors take everything.
    let _ = write!(text, "id: {id}\n\n");
}

/// Why an id cannot be sent, nor have been.
pub(super) fn check_id(id: &str) -> Result<(), &'static str> {
    match id.len() {
        0 => Err("is empty, which would have readers forget where they were"),
        1..=ID_MAX => one_line(id),
        _ => Err("is longer than 1024 bytes"),
    }
}

fn one_line(field: &str) -> Result<(), &'static str> {
    match field.bytes().find(|b| matches!(b, b'\r' | b'\n' | 0)) {
        None => Ok(()),
        Some(0) => Err("has a NUL in it"),
        Some(_) => Err("has a line break in it, which would end the field"),
    }
}

/// Writes each line of `value` behind `field`. One space behind the colon is not part of the value.
fn lines(text: &mut String, field: &str, value: &str) {
    let mut rest = value;
    loop {
        let end = rest.bytes().position(|b| matches!(b, b'\r' | b'\n'));
        text.push_str(field);
        text.push_str(&rest[..end.unwrap_or(rest.len())]);
        text.push('\n');
        let Some(end) = end else { return };
        let len = if rest[end..].starts_with("\r\n") { 2 } else { 1 };
        rest = &rest[end + len..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(event: &Event) -> String {
        event.check().unwrap();
        let mut text = event.encode(1);
        let capacity = text.capacity();
        finish(&mut text, &"7");
        if !event.parts().data.is_some_and(|data| data.contains(['\n', '\r'])) {
            assert_eq!(text.capacity(), capacity, "no room was left for the id");
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
        for id in ["", "a\nb", "a\rb", "a\r\nb", "a\0b", &long] {
            assert!(matches!(Event::new().id(id).check(), Err(SendError::InvalidId(_))), "{id:?}");
        }
        for name in ["a\nb", "a\rb", "\0", "a\n\ndata: b"] {
            assert!(matches!(Event::new().event(name).check(), Err(SendError::InvalidName(_))), "{name:?}");
        }
        Event::new().id(&long[1..]).event("é: x").check().unwrap();
    }
}
