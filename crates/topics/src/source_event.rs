//! The events of a source, as its body has them: where one ends, and its id.

use std::borrow::Cow;

use memchr::{memchr_iter, memrchr};
use serde_json::Value;

/// The comment that keeps a connection alive. An empty line may follow.
const COMMENT: &[u8] = b":\n";
/// How a hub begins its event for missed events.
const GAP: &[u8] = b"event: gap\ndata: {";

/// One event of a source.
#[derive(Debug)]
pub(crate) struct SourceEvent<'a> {
    /// Its lines without the id, and without the empty line at its end.
    pub(crate) text: Cow<'a, [u8]>,
    pub(crate) id: Option<&'a str>,
    /// Number of its bytes.
    pub(crate) len: usize,
}

impl<'a> SourceEvent<'a> {
    /// Returns the first event of `events`, which are not empty.
    pub(crate) fn first(events: &'a [u8]) -> Self {
        if events.starts_with(COMMENT) {
            let len = COMMENT.len() + usize::from(events.get(COMMENT.len()) == Some(&b'\n'));
            return Self { text: Cow::Borrowed(COMMENT), id: None, len };
        }
        let (len, lines) = end_of(events).map_or((events.len(), events), |end| (end + 2, &events[..=end]));
        // Hubs and streams write the id last.
        let last = memrchr(b'\n', &lines[..lines.len() - 1]).map_or(0, |end| end + 1);
        if let Some(id) = id_of(&lines[last..]) {
            return Self { text: Cow::Borrowed(&lines[..last]), id: Some(id), len };
        }
        let mut id = None;
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            id = id_of(line).or(id);
        }
        let text = match id {
            None => Cow::Borrowed(lines),
            Some(_) => {
                let others = lines.split_inclusive(|&byte| byte == b'\n').filter(|line| id_of(line).is_none());
                Cow::Owned(others.flatten().copied().collect())
            }
        };
        Self { text, id, len }
    }

    /// Returns whether it is a comment that keeps a connection alive.
    pub(crate) fn is_comment(&self) -> bool {
        self.id.is_none() && *self.text == *COMMENT
    }

    /// Adds the name of the topic to an event for missed events.
    pub(crate) fn name_gap(&mut self, topic: &str) {
        if self.id.is_none() && self.text.starts_with(GAP) {
            let (topic, rest) = (Value::from(topic).to_string(), &self.text[GAP.len()..]);
            self.text = Cow::Owned([GAP, b"\"topic\":", topic.as_bytes(), b",", rest].concat());
        }
    }
}

/// Returns whether `frame` is what a hub sends last: the time after which to reconnect.
pub(crate) fn is_retry(frame: &[u8]) -> bool {
    frame.starts_with(b"retry: ") && end_of(frame) == Some(frame.len() - 2)
}

/// Returns where the last line of the first event ends.
fn end_of(events: &[u8]) -> Option<usize> {
    memchr_iter(b'\n', events).find(|&at| events.get(at + 1) == Some(&b'\n'))
}

/// Returns the id of a line that is one.
fn id_of(line: &[u8]) -> Option<&str> {
    let id = line.strip_prefix(b"id:")?;
    let id = id.strip_suffix(b"\n").unwrap_or(id);
    std::str::from_utf8(id.strip_prefix(b" ").unwrap_or(id)).ok().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns text, id and length of the first event.
    fn first(events: &str) -> (String, Option<&str>, usize) {
        let event = SourceEvent::first(events.as_bytes());
        (String::from_utf8(event.text.to_vec()).unwrap(), event.id, event.len)
    }

    #[test]
    fn an_event_is_its_lines_and_its_id() {
        assert_eq!(first("data: a\nid: 1\n\ndata: b\n\n"), ("data: a\n".to_owned(), Some("1"), 15));
        assert_eq!(first("data: id: 2\nid: 1\n\n"), ("data: id: 2\n".to_owned(), Some("1"), 19));
        assert_eq!(first("id: 1\n\n"), (String::new(), Some("1"), 7));
        assert_eq!(first("id:1\ndata: a\n\n"), ("data: a\n".to_owned(), Some("1"), 14), "of another writer");
        assert_eq!(first("id: 1\nid: 2\ndata: a\n\n"), ("data: a\n".to_owned(), Some("2"), 21));
        assert_eq!(first("data: a\n\nid: 1\n\n"), ("data: a\n".to_owned(), None, 9));
        assert_eq!(first(": id: 1\n\n"), (": id: 1\n".to_owned(), None, 9));
        assert_eq!(first("id: \n\n"), ("id: \n".to_owned(), None, 6));
        assert_eq!(first("data: a"), ("data: a".to_owned(), None, 7), "without an end");
        assert_eq!(first("\n\n"), ("\n".to_owned(), None, 2));
    }

    #[test]
    fn comments_gaps_and_the_last_bytes_are_recognised() {
        let is_comment = |events: &str| SourceEvent::first(events.as_bytes()).is_comment();
        assert_eq!([":\n", ":\n\n", ":\nid: 1\n\n", ": a\n\n"].map(is_comment), [true, true, true, false]);
        assert_eq!([":\n", ":\n\n", ":\nid: 1\n\n"].map(|events| first(events).2), [2, 3, 2]);
        let named = |events: &'static str| {
            let mut event = SourceEvent::first(events.as_bytes());
            event.name_gap("a");
            String::from_utf8(event.text.into_owned()).unwrap()
        };
        assert_eq!(
            named("event: gap\ndata: {\"reason\":\"slow\",\"missed\":1}\n\n"),
            "event: gap\ndata: {\"topic\":\"a\",\"reason\":\"slow\",\"missed\":1}\n"
        );
        assert_eq!(named("event: gap\ndata: {}\nid: 1\n\n"), "event: gap\ndata: {}\n", "an event of a sender");
        let is_retry = |frame: &str| is_retry(frame.as_bytes());
        assert_eq!(["retry: 1000\n\n", "retry: 1\nid: 2\n\n", "data: a\n\n"].map(is_retry), [true, true, false]);
        assert!(!is_retry("retry: 1\n\ndata: a\n\n") && !is_retry("retry: 1"));
    }
}
