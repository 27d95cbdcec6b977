//! The id of an event: the position of each topic of the reader, the topic of the event first.
//!
//! ```text
//! news=0a1b2c3d-7,chat/42=5f3a9b01-12,later=
//! ```
//!
//! Names and positions are percent-encoded. A topic without a position has nothing behind its `=`.

use std::collections::HashSet;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// These characters are not encoded. They need no encoding in a header and in a query.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/').remove(b':');

/// Maximum length of a position, as of the ids of a hub.
const POSITION_MAX: usize = 1024;

/// Room for the position of a topic that has a short one or none: the longest id that a hub assigns.
const ROOM: usize = 8 + 1 + 20;

/// The id would have more bytes than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// The positions of all topics of a reader, encoded.
pub(crate) struct CompositeId {
    /// The part of each topic: name, `=`, position, and a comma.
    text: Vec<u8>,
    parts: Vec<Part>,
    max: usize,
}

/// Where the part of a topic begins, its position begins, and its comma stands.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    position: usize,
    comma: usize,
}

impl CompositeId {
    /// Creates the id of topics with these names and positions. `max` is its maximum length.
    pub(crate) fn new<'a>(
        topics: impl Iterator<Item = (&'a str, Option<&'a str>)>,
        max: usize,
    ) -> Result<Self, TooLong> {
        let (mut text, mut parts, mut needed) = (Vec::new(), Vec::new(), 0);
        for (name, position) in topics {
            let start = text.len();
            encode(&mut text, name);
            text.push(b'=');
            let at = text.len();
            encode(&mut text, position.unwrap_or_default());
            let comma = text.len();
            text.push(b',');
            needed += at - start + (comma - at).max(ROOM) + 1;
            parts.push(Part { start, position: at, comma });
        }
        if needed > max.saturating_add(1) { Err(TooLong) } else { Ok(Self { text, parts, max }) }
    }

    pub(crate) fn len(&self) -> usize {
        self.text.len().saturating_sub(1)
    }

    /// Adds the id to `to`, this topic first and the others in their order.
    pub(crate) fn write(&self, topic: usize, to: &mut Vec<u8>) {
        let Part { start, comma, .. } = self.parts[topic];
        for part in [&self.text[start..=comma], &self.text[..start], &self.text[comma + 1..]] {
            to.extend_from_slice(part);
        }
        // The last comma.
        to.pop();
    }

    /// Sets the position of a topic.
    ///
    /// # Errors
    ///
    /// The id would be too long. The position stays as it was.
    pub(crate) fn set(&mut self, topic: usize, position: &str) -> Result<(), TooLong> {
        let old = self.parts[topic].position..self.parts[topic].comma;
        if position.len() == old.len() && !position.bytes().any(is_encoded) {
            self.text[old].copy_from_slice(position.as_bytes());
            return Ok(());
        }
        let mut encoded = Vec::new();
        encode(&mut encoded, position);
        if self.len() - old.len() + encoded.len() > self.max {
            return Err(TooLong);
        }
        let moved = |at: usize| at - old.len() + encoded.len();
        self.parts[topic].comma = moved(self.parts[topic].comma);
        for Part { start, position, comma } in &mut self.parts[topic + 1..] {
            (*start, *position, *comma) = (moved(*start), moved(*position), moved(*comma));
        }
        self.text.splice(old, encoded);
        Ok(())
    }

    /// Returns the position of a topic.
    pub(crate) fn position(&self, topic: usize) -> Option<String> {
        let Part { position, comma, .. } = self.parts[topic];
        let position = std::str::from_utf8(&self.text[position..comma]).ok()?;
        decode(position).filter(|position| !position.is_empty())
    }
}

/// Names and positions of an id that a reader has sent. A position is `None` if the topic had none.
pub(crate) type Positions = Vec<(String, Option<String>)>;

/// Decodes an id that a reader has sent. `None` if it is no id of ours.
pub(crate) fn decode_all(id: &str, max: usize) -> Option<Positions> {
    if id.len() > max {
        return None;
    }
    let all: Option<Positions> = id.split(',').map(decode_part).collect();
    all.filter(|all| {
        let mut names = HashSet::new();
        all.iter().all(|(name, _)| names.insert(name.as_str()))
    })
}

fn decode_part(part: &str) -> Option<(String, Option<String>)> {
    let (name, position) = part.split_once('=')?;
    let (name, position) = (decode(name)?, decode(position)?);
    let is_valid = !name.is_empty() && position.len() <= POSITION_MAX && !position.contains(['\r', '\n', '\0']);
    is_valid.then(|| (name, Some(position).filter(|position| !position.is_empty())))
}

fn is_encoded(byte: u8) -> bool {
    !byte.is_ascii_alphanumeric() && !b"-._~/:".contains(&byte)
}

fn encode(text: &mut Vec<u8>, part: &str) {
    percent_encode(part.as_bytes(), ENCODED).for_each(|piece| text.extend_from_slice(piece.as_bytes()));
}

fn decode(part: &str) -> Option<String> {
    // A part with a byte that `encode` encodes was not written by `encode`.
    let is_ours = part.bytes().all(|byte| byte == b'%' || !is_encoded(byte));
    is_ours.then(|| percent_decode_str(part).decode_utf8().ok())?.map(Into::into)
}

impl fmt::Debug for CompositeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompositeId").field(&String::from_utf8_lossy(&self.text)).finish()
    }
}

#[cfg(test)]
mod tests;
