//! A directory as JSON, [RFC 8259](https://www.rfc-editor.org/rfc/rfc8259).

use std::fmt::Write;

use super::contents::{Contents, Facts};

pub(super) fn head(contents: &Contents, title: &str) -> String {
    let mut head = String::from("{\"path\":");
    string(&mut head, title);
    write!(head, ",\"truncated\":{},\"entries\":[", contents.more).expect("writing to a string does not fail");
    head
}

/// Starts with the comma that follows the row before it.
pub(super) fn row(rows: &mut String, name: &[u8], is_directory: bool, facts: Facts) {
    rows.push_str(",\n{\"name\":");
    string(rows, &String::from_utf8_lossy(name));
    rows.push_str(if is_directory { ",\"type\":\"directory\"" } else { ",\"type\":\"file\"" });
    if !is_directory {
        write!(rows, ",\"size\":{}", facts.size).expect("writing to a string does not fail");
    }
    if let Some(modified) = facts.modified {
        write!(rows, ",\"modified\":\"{}\"", httpdate::HttpDate::from(modified))
            .expect("writing to a string does not fail");
    }
    rows.push('}');
}

pub(super) fn tail() -> String {
    "\n]}\n".to_owned()
}

fn string(json: &mut String, text: &str) {
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
