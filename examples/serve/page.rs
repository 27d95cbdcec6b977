//! The start page: plots of the activity of the process, and the served files. It loads nothing from other hosts.

use std::ffi::OsStr;
use std::fmt::Write;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page.html");

/// Unreserved characters of RFC 3986 §2.3 are not encoded in a path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Maximum number of listed files.
const LISTED: usize = 500;

/// Returns the content security policy of the page: its own style and script, by their digests, and its own events. An
/// injected file name could not run as script.
pub(crate) fn policy() -> &'static str {
    static POLICY: OnceLock<String> = OnceLock::new();
    POLICY.get_or_init(|| {
        let digest = |tag| BASE64_STANDARD.encode(Sha256::digest(inside(tag)));
        format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; img-src data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            digest("script"),
            digest("style")
        )
    })
}

/// Returns the contents of the only element with this tag.
fn inside(tag: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("<{tag}>")).expect("page.html has the element");
    rest.split_once(&format!("</{tag}>")).expect("and its end").0
}

/// Renders the page. Reads the directory, so it may block on a disk.
pub(crate) fn render_blocking(root: &Path) -> String {
    let files = match list_blocking(root) {
        Ok(files) => table(&files),
        Err(e) => format!("<p class=\"soft\">The directory cannot be read: {}.</p>\n", escape(&e.to_string())),
    };
    // Split before anything is filled in, because a file name may contain a placeholder.
    let (head, rest) = PAGE.split_once("{{root}}").expect("page.html has the mark");
    let (middle, tail) = rest.split_once("{{files}}").expect("page.html has the mark");
    [head, &escape(&root.to_string_lossy()), middle, &files, tail].concat()
}

/// Returns the regular files that `/f/` serves, sorted by name, without links and dot files.
fn list_blocking(root: &Path) -> io::Result<Vec<(Box<OsStr>, u64)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        // A file may be removed after it was listed.
        let Ok(status) = entry.metadata() else { continue };
        if status.is_file() && !entry.file_name().as_bytes().starts_with(b".") {
            files.push((entry.file_name().into_boxed_os_str(), status.len()));
        }
    }
    files.sort();
    Ok(files)
}

fn table(files: &[(Box<OsStr>, u64)]) -> String {
    if files.is_empty() {
        return "<p class=\"soft\">No files at the top of this directory.</p>\n".into();
    }
    let mut html = String::from("<table>\n");
    for (name, size) in files.iter().take(LISTED) {
        let (link, text) = (percent_encode(name.as_bytes(), ENCODED), escape(&name.to_string_lossy()));
        writeln!(html, "<tr><td><a href=\"/f/{link}\">{text}</a></td><td>{}</td></tr>", human(*size))
            .expect("a String takes everything");
    }
    html.push_str("</table>\n");
    if files.len() > LISTED {
        writeln!(html, "<p class=\"soft\">And {} more.</p>", files.len() - LISTED).expect("a String takes everything");
    }
    html
}

/// Escapes HTML text and double-quoted attributes.
fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

fn human(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            return if unit == "B" || size >= 100.0 {
                format!("{size:.0} {unit}")
            } else {
                format!("{size:.1} {unit}")
            };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_the_page() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let names: [&[u8]; 4] = [b"<script>\"'&", b"100% {{files}} #?.txt", b"\xff\xfe", b"plain.txt"];
        for name in names {
            std::fs::write(directory.path().join(OsStr::from_bytes(name)), "1234").expect("a file");
        }
        std::fs::write(directory.path().join(".hidden"), "").expect("a file");
        std::fs::create_dir(directory.path().join("below")).expect("a directory");
        std::os::unix::fs::symlink("plain.txt", directory.path().join("link")).expect("a link");

        let page = render_blocking(directory.path());
        assert!(
            page.contains("<a href=\"/f/%3Cscript%3E%22%27%26\">&lt;script&gt;&quot;&#39;&amp;</a></td><td>4 B</td>")
        );
        assert!(page.contains("<a href=\"/f/100%25%20%7B%7Bfiles%7D%7D%20%23%3F.txt\">100% {{files}} #?.txt</a>"));
        assert!(page.contains("<a href=\"/f/%FF%FE\">\u{fffd}\u{fffd}</a>"));
        assert!(page.contains("<a href=\"/f/plain.txt\">plain.txt</a>"));
        assert_eq!(page.matches("href=\"/f/").count(), 4, "no dot file, no directory, no link");
        assert!(!page.contains("{{root}}"));
    }

    #[test]
    fn no_address_of_another_host_is_in_the_page() {
        assert!(!PAGE.contains("//"), "{PAGE}");
    }

    #[test]
    fn the_policy_names_what_is_in_the_page_and_nothing_is_filled_into_that() {
        assert!(policy().starts_with("default-src 'none'; script-src 'sha256-") && !policy().contains("unsafe"));
        for tag in ["script", "style"] {
            assert_eq!(PAGE.matches(&format!("<{tag}")).count(), 1);
            assert!(!inside(tag).contains("{{") && inside(tag).len() > 500);
        }
        assert!(!PAGE.contains(" style=") && !PAGE.contains(" onclick="), "attributes are not covered by digests");
    }

    #[test]
    fn sizes_are_short() {
        let sizes = [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (150 << 20, "150 MiB"), (3 << 40, "3.0 TiB")];
        for (bytes, text) in sizes {
            assert_eq!(human(bytes), text);
        }
    }
}
