//! A parser for the events of an upstream,
//! [HTML section 9.2.6](https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation).

use std::mem;

use millstream::sse::Event;

/// Length of the longest event.
const LONGEST: usize = 1 << 20;

/// The data and the name of an event. The gateway assigns its own ids.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) data: String,
    name: String,
}

impl From<Parsed> for Event {
    fn from(Parsed { data, name }: Parsed) -> Self {
        let event = Self::new().data(data);
        if name.is_empty() { event } else { event.event(name) }
    }
}

/// Bytes in, events out.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// The line that has begun.
    line: Vec<u8>,
    /// Whether the last line ended with CR, which a LF may follow.
    after_cr: bool,
    /// Whether a line has been read. A byte order mark may precede the first one.
    has_begun: bool,
    event: Option<Parsed>,
}

impl Parser {
    /// Returns the events that end in `bytes`.
    ///
    /// # Errors
    ///
    /// Fails if an event is longer than 1 MiB, or is not UTF-8.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Parsed>, &'static str> {
        let mut events = Vec::new();
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\r' | b'\n')) {
            let after_cr = mem::take(&mut self.after_cr);
            if after_cr && part == b"\n" {
                continue;
            }
            let (line, end) = match part.split_last() {
                Some((end @ (b'\r' | b'\n'), line)) => (line, Some(*end)),
                _ => (part, None),
            };
            self.line.extend_from_slice(line);
            if self.line.len() + self.event.as_ref().map_or(0, |event| event.data.len()) > LONGEST {
                return Err("an event is longer than 1 MiB");
            }
            if let Some(end) = end {
                self.after_cr = end == b'\r';
                let line = mem::take(&mut self.line);
                events.extend(self.line(std::str::from_utf8(&line).map_err(|_| "an event is not UTF-8")?));
            }
        }
        Ok(events)
    }

    /// Reads a line. Returns an event if it ends one.
    fn line(&mut self, line: &str) -> Option<Parsed> {
        let is_first = !mem::replace(&mut self.has_begun, true);
        let line = line.strip_prefix('\u{feff}').filter(|_| is_first).unwrap_or(line);
        if line.is_empty() {
            let mut event = self.event.take()?;
            // An event without data is none.
            event.data.pop()?;
            return Some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        let event = self.event.get_or_insert_default();
        match field {
            "data" => {
                event.data.push_str(value);
                event.data.push('\n');
            }
            "event" => value.clone_into(&mut event.name),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(data: &str, name: &str) -> Parsed {
        Parsed { data: data.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn events_are_the_same_however_they_are_cut() {
        let text =
            "\u{feff}data: a\n\ndata:b\r\ndata: c\r\nid: 7\r\n\r\nevent: x\rdata:  d\r\revent: none\n\ndata\n\ndata: ü";
        let expected = [parsed("a", ""), parsed("b\nc", ""), parsed(" d", "x"), parsed("", "")];
        for len in 1..text.len() {
            let mut parser = Parser::default();
            let events: Vec<_> = text.as_bytes().chunks(len).flat_map(|part| parser.push(part).unwrap()).collect();
            assert_eq!(events, expected, "in pieces of {len}");
        }
    }

    #[test]
    fn invalid_text_and_endless_lines_are_refused() {
        assert!(Parser::default().push(b"data: \xff\n").is_err());
        let mut parser = Parser::default();
        assert!((0..=1024).any(|_| parser.push(&[b'x'; 1024]).is_err()));
        let mut parser = Parser::default();
        assert!((0..=1024).any(|_| parser.push(&[b"data: ", &[b'x'; 1024][..], b"\n"].concat()).is_err()));
    }
}
