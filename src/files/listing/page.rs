//! A directory as an HTML page, for phones and dark rooms too, without scripts.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::contents::{Contents, Facts, Key, Order};

/// Forbids everything but the style of the page, by its hash.
pub(super) const POLICY: &str = "default-src 'none'; style-src \
    'sha256-F3WJ5K85LTgkpvUeOTyp2zkbnX5MzSF4ob/k6jeynFY='; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

const STYLE: &str = include_str!("page.css");

/// Bytes that are encoded in a reference: all but those that RFC 3986 §2.3 leaves unreserved.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const COLUMNS: [(Key, &str, &str); 3] =
    [(Key::Name, "name", "Name"), (Key::Size, "size", "Size"), (Key::Modified, "modified", "Modified (UTC)")];

pub(super) fn head(contents: &Contents, title: &str) -> String {
    let title = escaped(title);
    let mut head = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<table>\n<thead><tr>"
    );
    for (key, name, text) in COLUMNS {
        let Order { key: current, descending } = contents.order;
        let (sorted, next) = match (key == current, descending) {
            (true, false) => (" aria-sort=\"ascending\"", "desc"),
            (true, true) => (" aria-sort=\"descending\"", "asc"),
            (false, _) => ("", "asc"),
        };
        let link = format!("<th scope=\"col\"{sorted}><a href=\"?sort={name}&amp;order={next}\">{text}</a></th>");
        head.push_str(&link);
    }
    head.push_str("</tr></thead>\n<tbody>\n");
    if !contents.is_root {
        head.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    head
}

pub(super) fn row(rows: &mut String, name: &[u8], is_directory: bool, facts: Facts) {
    let slash = if is_directory { "/" } else { "" };
    let reference = percent_encode(name, ENCODED);
    let name = escaped(&String::from_utf8_lossy(name));
    write!(rows, "<tr><td><a href=\"./{reference}{slash}\">{name}{slash}</a></td>").expect(WRITES);
    match is_directory {
        true => rows.push_str("<td></td>"),
        false => write!(rows, "<td title=\"{} bytes\">{}</td>", facts.size, size(facts.size)).expect(WRITES),
    }
    // "22 Nov 2026 17:30" of "Sun, 22 Nov 2026 17:30:00 GMT".
    let date = facts.modified.map(|modified| httpdate::fmt_http_date(modified)[5..22].to_owned());
    writeln!(rows, "<td>{}</td></tr>", date.unwrap_or_default()).expect(WRITES);
}

pub(super) fn tail(contents: &Contents) -> String {
    let more = if contents.more { "<p>The directory has more files than are listed.</p>\n" } else { "" };
    let none = if contents.len() == 0 { "<p>The directory is empty.</p>\n" } else { "" };
    format!("</tbody>\n</table>\n{more}{none}</body>\n</html>\n")
}

const WRITES: &str = "writing to a string does not fail";

/// Returns a size with three digits: "999 B", "1.00 KiB", "12.3 MiB".
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    // A value that would be rounded to 1024 gets the next unit.
    while value >= 1023.5 {
        value /= 1024.0;
        unit = units.next();
    }
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {}", unit.expect("internal: 2^64 bytes are 16 EiB"))
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
