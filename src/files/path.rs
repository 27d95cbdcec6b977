//! Conversion of the path of a request to a name beneath the directory.
//!
//! The kernel's `RESOLVE_BENEATH` confines the name to the directory. The checks here keep hidden files hidden, and map
//! all spellings of a path to one name, so that a file is cached once.

use std::borrow::Cow;
use std::path::Path;

use http::{HeaderValue, Uri};
use percent_encoding::percent_decode;

use crate::sys::path as sys_path;

const PATH_MAX: usize = 4096;

/// The names that start with a dot and are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dots {
    None,
    /// `.well-known` at the front of a path, [RFC 8615](https://www.rfc-editor.org/rfc/rfc8615).
    WellKnown,
    All,
}

impl Dots {
    /// Returns whether a segment that starts with a dot is served behind `before`.
    pub(super) fn serves(self, segment: &[u8], before: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::WellKnown => before.is_empty() && segment == b".well-known",
            Self::All => true,
        }
    }
}

/// Returns the decoded name beneath the directory: no leading slash, no empty segment and no `.`; empty or ending with
/// a slash for a directory. Borrowed if the path equals the name. `None` if the path has a segment that is `..` or
/// starts with a dot that `dots` refuses; an encoded slash or zero byte; or an invalid encoding.
pub(super) fn name(path: &str, dots: Dots) -> Option<Cow<'_, [u8]>> {
    let path = path.strip_prefix('/')?;
    if path.len() > PATH_MAX {
        return None;
    }
    let mut name = Vec::with_capacity(path.len());
    for segment in path.split('/') {
        let decoded = decode(segment)?;
        match &decoded[..] {
            b"" | b"." => continue,
            b".." => return None,
            segment if segment.starts_with(b".") && !dots.serves(segment, &name) => return None,
            segment if !is_segment(segment) => return None,
            segment => name.extend_from_slice(segment),
        }
        name.push(b'/');
    }
    if !path.ends_with('/') {
        name.pop();
    }
    Some(if name == path.as_bytes() { Cow::Borrowed(path.as_bytes()) } else { Cow::Owned(name) })
}

/// Returns whether these bytes can be the name of a file.
fn is_segment(segment: &[u8]) -> bool {
    !segment.iter().any(|&b| b == b'/' || b == 0) && (!cfg!(windows) || is_windows_name(segment))
}

/// Returns whether a name is UTF-8 without the characters that Windows reserves, and neither a device nor another
/// spelling of a name
/// ([naming files](https://learn.microsoft.com/en-us/windows/win32/fileio/naming-a-file)).
fn is_windows_name(segment: &[u8]) -> bool {
    const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
    let Ok(name) = std::str::from_utf8(segment) else { return false };
    let stem = name.split('.').next().unwrap_or_default().trim_end_matches(' ').to_ascii_uppercase();
    let is_port = ["COM", "LPT"].iter().filter_map(|port| stem.strip_prefix(port)).any(|number| {
        let mut digits = number.chars();
        digits.next().is_some_and(char::is_numeric) && digits.next().is_none()
    });
    let is_reserved = |c: char| c < ' ' || r#"<>:"/\|?*"#.contains(c);
    // The volume may have a name such as `GIT~1` for `.git`.
    let is_short = name.split('~').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    !is_short && !name.contains(is_reserved) && !name.ends_with(['.', ' ']) && !is_port && !DEVICES.contains(&&*stem)
}

/// Returns whether a relative path, as a user writes it, is the name of a file beneath the directory.
pub(super) fn is_name(path: &str, dots: Dots) -> bool {
    let mut before = 0;
    !path.is_empty()
        && path.len() <= PATH_MAX
        && path.split('/').all(|segment| {
            let front = &path.as_bytes()[..before];
            before += segment.len() + 1;
            !matches!(segment, "" | "." | "..")
                && !segment.contains('\0')
                && (!segment.starts_with('.') || dots.serves(segment.as_bytes(), front))
        })
}

fn decode(segment: &str) -> Option<Cow<'_, [u8]>> {
    let mut rest = segment.as_bytes();
    while let Some(at) = rest.iter().position(|&b| b == b'%') {
        let [_, high, low, ..] = rest[at..] else { return None };
        if !high.is_ascii_hexdigit() || !low.is_ascii_hexdigit() {
            return None;
        }
        rest = &rest[at + 3..];
    }
    Some(percent_decode(segment.as_bytes()).into())
}

pub(super) fn is_directory(name: &[u8]) -> bool {
    name.last().is_none_or(|&b| b == b'/')
}

pub(super) fn as_path(name: &[u8]) -> &Path {
    // [`name`] returns only names that are paths of this system.
    sys_path::of_bytes(name).unwrap_or(Path::new(""))
}

/// Returns the location, relative to the request, of a directory that was requested without its slash ([RFC 3986
/// §5.2](https://www.rfc-editor.org/rfc/rfc3986#section-5.2)). A relative reference that starts with a dot cannot lead
/// to another host, and is valid wherever the service is mounted.
pub(super) fn slashed(uri: &Uri) -> Option<HeaderValue> {
    let (_, last) = uri.path().rsplit_once('/')?;
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    HeaderValue::try_from(format!("./{last}/{query}")).ok()
}

#[cfg(test)]
mod tests;
