//! Messages of JSON streams. Each is kept as it was sent, with a comma behind it.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::value::RawValue;

use crate::store::Kind;

/// Checks the body of an append and returns the messages in it: the elements of an array, or one value.
pub(crate) fn messages(body: &[u8]) -> Result<Bytes, String> {
    let text = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8".to_owned())?;
    let array = text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('[');
    let fail = |e: serde_json::Error| format!("the body is not valid JSON: {e}");
    let messages: Vec<&RawValue> = match array {
        true => serde_json::from_str(text).map_err(fail)?,
        false => vec![serde_json::from_str(text).map_err(fail)?],
    };
    let mut out = BytesMut::with_capacity(body.len() + messages.len());
    for message in messages {
        out.put_slice(message.get().as_bytes());
        out.put_u8(b',');
    }
    Ok(out.freeze())
}

/// Walks over messages, and remembers where it is within one.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    depth: u32,
    text: bool,
    escaped: bool,
}

impl Walk {
    /// Returns the length up to and with the next comma between messages.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, &byte) in bytes.iter().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.text => self.escaped = true,
                b'"' => self.text = !self.text,
                _ if self.text => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth -= 1,
                b',' if self.depth == 0 => return Some(at + 1),
                _ => {}
            }
        }
        None
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
            let (mut walk, mut end) = (Walk::default(), 0);
            while let Some(len) = walk.next(&bytes[end..]) {
                if end > 0 && end + len > max {
                    break;
                }
                end += len;
            }
            (end > 0).then_some(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_flattened_once() {
        let of = |body: &str| messages(body.as_bytes()).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
        assert_eq!(of(r#"{"a": 1}"#).unwrap(), r#"{"a": 1},"#);
        assert_eq!(of(r#" [[1,2], "x" ]"#).unwrap(), r#"[1,2],"x","#);
        assert_eq!(of("[]").unwrap(), "");
        for wrong in ["", "[1", "{", "1 2", "[1] 2", "\u{1}"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert!(messages(b"\"\xff\"").is_err());
    }

    #[test]
    fn messages_are_not_divided() {
        let bytes = br#"{"a":[1,2]},"x,\",y",3,"#;
        assert_eq!(cut(Kind::Json, bytes, 1), Some(12), "a message is longer than the limit");
        assert_eq!(cut(Kind::Json, bytes, 15), Some(12));
        assert_eq!(cut(Kind::Json, bytes, 21), Some(21));
        assert_eq!(cut(Kind::Json, bytes, 100), None);
        assert_eq!(cut(Kind::Text, "aäö".as_bytes(), 2), Some(1));
        assert_eq!(cut(Kind::Binary, &[0; 9], 2), Some(2));
    }
}
