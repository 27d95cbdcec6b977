//! Texts in JSON, [RFC 8259 §7](https://www.rfc-editor.org/rfc/rfc8259#section-7).

use std::fmt::Write;

/// Appends `text` as a string.
pub(crate) fn push_string(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            c if c < ' ' => write!(json, "\\u{:04x}", u32::from(c)).expect("writing to a string does not fail"),
            c => json.push(c),
        }
    }
    json.push('"');
}
