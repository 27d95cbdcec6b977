//! Messages of JSON streams. Each is kept as it was sent, with [`END`] behind it. The space between tokens, and nothing
//! else in JSON, may have line feeds. They become spaces, so that a line feed is the end of a message.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::store::Kind;

/// The end of a message.
pub(crate) const END: &[u8] = b",\n";

/// Checks the body of an append and returns the messages in it: the elements of an array, or one value.
pub(crate) fn messages(body: &[u8]) -> Result<Bytes, String> {
    let text = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8".to_owned())?;
    let array = text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('[');
    let mut messages = Messages(BytesMut::with_capacity(body.len() + END.len()));
    let mut json = serde_json::Deserializer::from_str(text);
    let read = match array {
        true => json.deserialize_seq(&mut messages),
        false => <&RawValue>::deserialize(&mut json).map(|message| messages.add(message)),
    };
    read.and_then(|()| json.end()).map_err(|e| format!("the body is not valid JSON: {e}"))?;
    Ok(messages.0.freeze())
}

struct Messages(BytesMut);

impl Messages {
    fn add(&mut self, message: &RawValue) {
        let start = self.0.len();
        self.0.put_slice(message.get().as_bytes());
        self.0[start..].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        self.0.put_slice(END);
    }
}

impl<'de> Visitor<'de> for &mut Messages {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        while let Some(message) = array.next_element()? {
            self.add(message);
        }
        Ok(())
    }
}

/// Returns where to cut so that about `max` bytes remain, and no message and no character is divided. `None` if all
/// bytes may remain.
pub(crate) fn cut(kind: Kind, bytes: &[u8], max: usize) -> Option<usize> {
    if bytes.len() <= max {
        return None;
    }
    match kind {
        Kind::Binary => Some(max),
        Kind::Text => {
            Some((max.saturating_sub(3).max(1)..=max).rev().find(|&at| bytes[at] & 0xc0 != 0x80).unwrap_or(max))
        }
        Kind::Json => {
            let is_end = |byte: &u8| *byte == b'\n';
            let end = bytes[..max].iter().rposition(is_end).or_else(|| bytes.iter().position(is_end));
            end.map(|end| end + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_flattened_once() {
        let of = |body: &str| messages(body.as_bytes()).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
        assert_eq!(of(r#"{"a": 1}"#).unwrap(), "{\"a\": 1},\n");
        assert_eq!(of(" [[1,\n2], \"x\\n\" ]").unwrap(), "[1, 2],\n\"x\\n\",\n");
        assert_eq!(of("[]").unwrap(), "");
        for wrong in ["", "[1", "{", "1 2", "[1] 2", "\u{1}"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert!(messages(b"\"\xff\"").is_err());
    }

    #[test]
    fn messages_are_not_divided() {
        let bytes = b"{\"a\":[1,2]},\n\"x,\",\n3,\n";
        assert_eq!(cut(Kind::Json, bytes, 1), Some(13), "a message is longer than the limit");
        assert_eq!(cut(Kind::Json, bytes, 16), Some(13));
        assert_eq!(cut(Kind::Json, bytes, 19), Some(19));
        assert_eq!(cut(Kind::Json, bytes, 100), None);
        assert_eq!(cut(Kind::Text, "aäö".as_bytes(), 2), Some(1));
        assert_eq!(cut(Kind::Binary, &[0; 9], 2), Some(2));
    }
}
