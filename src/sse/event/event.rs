//! Event and its encoding in the [event stream] format of the HTML standard.
//!
//! The id is written last, so that everything else is encoded before the number of the event is known.
//!
//! [event stream]: https://html.spec.whatwg.org/multipage/server-sent-events.html

use std::fmt;
use std::io::Write as _;
use std::time::Duration;

use crate::sse::error::SendError;

/// Maximum length in bytes of an id, which reconnecting readers send in a header.
pub(super) const ID_MAX: usize = 1024;

/// An event of a [`Hub`](crate::sse::Hub). Setting a field again replaces it.
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

/// The fields of an [`Event`], for a [`Log`](crate::sse::log::Log) that stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventParts<'a> {
    /// Id set on the event. Ids assigned by the hub are not known before it is sent.
    pub id: Option<&'a str>,
    /// Name of the event.
    pub event: Option<&'a str>,
    /// Data as set on the event.
    pub data: Option<&'a str>,
    /// Delay before the reader reconnects.
    pub retry: Option<Duration>,
    /// Comment, which readers ignore.
    pub comment: Option<&'a str>,
}

impl Event {
    /// Creates an empty event. Without [`data`](Self::data) browsers remember its id and dispatch nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the id that a reader reconnects with, in a header: at most 1024 bytes, without control characters, and
    /// without a space at the start or the end. By default the hub assigns ids. If several events in the ring have the
    /// same id, the last one counts.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the name, without line breaks and NUL; readers treat an event without a name as a `message`. The hub uses
    /// the name `gap` for its own events, see [`Hub`](crate::sse::Hub#gaps).
    pub fn event(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the data. LF, CR and CRLF are line breaks, and arrive as LF.
    pub fn data(mut self, data: impl Into<String>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Sets the delay before the reader reconnects, in whole milliseconds.
    pub fn retry(mut self, retry: Duration) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Sets comment lines, which readers ignore.
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = Some(comment.into());
        self
    }

    /// Returns the fields.
    pub fn parts(&self) -> EventParts<'_> {
        EventParts {
            id: self.id.as_deref(),
            event: self.name.as_deref(),
            data: self.data.as_deref(),
            retry: self.retry,
            comment: self.comment.as_deref(),
        }
    }

    pub(in crate::sse) fn check(&self) -> Result<(), SendError> {
        if let Some(id) = &self.id {
            check_id(id).map_err(SendError::InvalidId)?;
        }
        self.check_name()
    }

    pub(in crate::sse) fn check_name(&self) -> Result<(), SendError> {
        self.name.as_deref().map_or(Ok(()), one_line).map_err(SendError::InvalidName)
    }

    /// Encodes everything but the id and the final line, with spare capacity for both: `id` is the length of the id.
    pub(in crate::sse) fn encode(&self, id: usize) -> Vec<u8> {
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

pub(in crate::sse) fn finish(text: &mut Vec<u8>, id: &dyn fmt::Display) {
    // Writing to a `Vec` does not fail.
    let _ = write!(text, "id: {id}\n\n");
}

pub(in crate::sse) fn check_id(id: &str) -> Result<(), &'static str> {
    match id.as_bytes() {
        [] => Err("is empty, which would reset the position of readers"),
        bytes if bytes.len() > ID_MAX => Err("is longer than 1024 bytes"),
        [b' ', ..] | [.., b' '] => Err("begins or ends with a space, which the header of a reader would lose"),
        bytes => {
            one_line(id)?;
            let is_text = !bytes.iter().any(u8::is_ascii_control);
            is_text.then_some(()).ok_or("contains a control character, which the header of a reader cannot have")
        }
    }
}

fn one_line(field: &str) -> Result<(), &'static str> {
    match field.bytes().find(|b| matches!(b, b'\r' | b'\n' | 0)) {
        None => Ok(()),
        Some(0) => Err("contains a NUL"),
        Some(_) => Err("contains a line break, which would end the field"),
    }
}

/// Writes each line of `value` after `field`. One space after the colon is not part of the value.
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
mod tests;
