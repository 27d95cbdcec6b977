//! Events in other framings than that of the HTML standard, made once for all readers at the same position.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;

use super::EventParts;
use crate::sync::{Mutex, lock};

/// The form of the events on another wire than server-sent events; see [`Hub::framed`](crate::sse::Hub::framed).
///
/// ```
/// use millstream::sse::{EventParts, Framing};
///
/// /// The data of each event behind its length: four bytes, big endian.
/// #[derive(Debug)]
/// struct Lengths;
///
/// impl Framing for Lengths {
///     fn content_type(&self) -> http::HeaderValue {
///         http::HeaderValue::from_static("application/octet-stream")
///     }
///
///     fn frame(&self, event: EventParts<'_>, to: &mut Vec<u8>) {
///         let data = event.data.unwrap_or_default();
///         to.extend(u32::to_be_bytes(data.len() as u32));
///         to.extend(data.as_bytes());
///     }
/// }
/// ```
pub trait Framing: fmt::Debug + Send + Sync + 'static {
    /// Returns the `Content-Type` of the response.
    fn content_type(&self) -> HeaderValue;

    /// Appends the form of an event to `to`: nothing if readers do not get it. `retry` and `comment` of the event are
    /// `None`. The events of the hub itself are named `gap` and have no id, see [`Hub`](crate::sse::Hub#gaps). Called
    /// under a lock of the framing: it must not block, nor poll a body of the same `FramedHub`. If it panics, the
    /// connection of the reader ends.
    fn frame(&self, event: EventParts<'_>, to: &mut Vec<u8>);

    /// Returns the bytes that keep an idle connection alive; none by default. They stand between two events.
    fn keep_alive(&self) -> &'static [u8] {
        b""
    }

    /// Appends the last bytes of a stream that the hub or the server ends; none by default.
    fn end(&self, _end: FramingEnd, _to: &mut Vec<u8>) {}
}

/// The end of a stream of events, for [`Framing::end`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FramingEnd {
    /// The time after which the reader should return.
    pub retry: Duration,
    /// Why the stream ends.
    pub reason: EndReason,
}

/// Why the stream of a reader ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// The reader is too slow for [`LagPolicy::Disconnect`](crate::sse::LagPolicy::Disconnect).
    TooSlow,
    /// The stream has reached its [maximum age](crate::sse::HubBuilder::max_age).
    Aged,
    /// The server drains, or the [handle](crate::body::GracefulClose) of the body was used.
    Drained,
    /// The hub was closed.
    Closed,
}

/// JSON lines (`application/x-ndjson`): each event is a line.
///
/// The line is the data of the event, which has to be JSON; line breaks in it, which are white space there, become
/// spaces. Events without data are left out. An empty line keeps idle connections alive.
///
/// ```text
/// {"price":12}
/// {"gap":{"reason":"slow","missed":3}}
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonLines {
    has_ids: bool,
}

impl JsonLines {
    /// Creates the framing whose lines are the data.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wraps the data with the id, with which a reader returns, and the name of the event, if it has one:
    /// `{"id":"1f-7","event":"tick","data":{"price":12}}`.
    #[must_use]
    pub fn with_ids(mut self) -> Self {
        self.has_ids = true;
        self
    }
}

impl Framing for JsonLines {
    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static("application/x-ndjson")
    }

    fn frame(&self, event: EventParts<'_>, to: &mut Vec<u8>) {
        let Some(data) = event.data else { return };
        let data = data.bytes().map(|byte| if byte == b'\n' { b' ' } else { byte });
        match event.id {
            // Only the gaps of the hub have no id.
            None => {
                to.extend(b"{\"gap\":");
                to.extend(data);
                to.push(b'}');
            }
            Some(id) if self.has_ids => {
                to.extend(b"{\"id\":");
                json_string(id, to);
                if let Some(name) = event.event {
                    to.extend(b",\"event\":");
                    json_string(name, to);
                }
                to.extend(b",\"data\":");
                to.extend(data);
                to.push(b'}');
            }
            Some(_) => to.extend(data),
        }
        to.push(b'\n');
    }

    fn keep_alive(&self) -> &'static [u8] {
        b"\n"
    }
}

/// Appends `text` as a string of JSON (RFC 8259 §7).
fn json_string(text: &str, to: &mut Vec<u8>) {
    to.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => to.extend([b'\\', byte]),
            0..0x20 => to.extend(format!("\\u{byte:04x}").bytes()),
            _ => to.push(byte),
        }
    }
    to.push(b'"');
}

/// The data of the events, as it is (`application/octet-stream`). Nothing tells where an event ends, nor that some are
/// missing, and nothing keeps idle connections alive.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Raw {}

impl Raw {
    /// Creates the framing.
    #[must_use]
    pub fn new() -> Self {
        Self {}
    }
}

impl Framing for Raw {
    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static("application/octet-stream")
    }

    fn frame(&self, event: EventParts<'_>, to: &mut Vec<u8>) {
        if event.id.is_some() {
            to.extend(event.data.unwrap_or_default().bytes());
        }
    }
}

/// A framing, and the last events in it.
#[derive(Debug)]
pub(in crate::sse) struct Framed {
    framing: Box<dyn Framing>,
    /// The last events of the ring that were framed, and their numbers: most readers are at the same position.
    last: Mutex<Option<((u64, u64), Bytes)>>,
}

impl Framed {
    pub(in crate::sse) fn new(framing: impl Framing) -> Self {
        Self { framing: Box::new(framing), last: Mutex::default() }
    }

    pub(in crate::sse) fn framing(&self) -> &dyn Framing {
        &*self.framing
    }

    /// Returns these events of the ring, framed.
    pub(in crate::sse) fn shared(&self, range: (u64, u64), text: &[u8]) -> Bytes {
        let mut last = lock(&self.last);
        match &*last {
            Some((framed, bytes)) if *framed == range => bytes.clone(),
            _ => last.insert((range, self.frame(text))).1.clone(),
        }
    }

    /// Returns events, framed.
    pub(in crate::sse) fn frame(&self, text: &[u8]) -> Bytes {
        let mut framed = Vec::with_capacity(text.len());
        for_each_event(text, |event| self.framing.frame(event, &mut framed));
        framed.into()
    }

    /// Returns the end of a stream.
    pub(in crate::sse) fn end(&self, end: FramingEnd) -> Bytes {
        let mut last = Vec::new();
        self.framing.end(end, &mut last);
        last.into()
    }
}

/// Calls `each` with the events of a text that [`Event::encode`](super::Event) has written.
fn for_each_event(text: &[u8], mut each: impl FnMut(EventParts<'_>)) {
    let mut joined = String::new();
    for block in String::from_utf8_lossy(text).split_terminator("\n\n") {
        joined.clear();
        let (mut id, mut event, mut has_data) = (None, None, false);
        for (field, value) in block.lines().filter_map(|line| line.split_once(": ")) {
            match field {
                "id" => id = Some(value),
                "event" => event = Some(value),
                "data" => {
                    if has_data {
                        joined.push('\n');
                    }
                    has_data = true;
                    joined.push_str(value);
                }
                _ => {}
            }
        }
        each(EventParts { id, event, data: has_data.then_some(&joined), retry: None, comment: None });
    }
}

#[cfg(test)]
mod tests;
