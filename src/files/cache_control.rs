//! `Cache-Control` of files, [RFC 9111 §5.2](https://www.rfc-editor.org/rfc/rfc9111#section-5.2).

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use http::HeaderValue;

/// A file about to be served, as passed to the rule of
/// [`FilesBuilder::cache_control`](super::FilesBuilder::cache_control).
#[derive(Clone, Copy, Debug)]
pub struct Asset<'a> {
    path: &'a Path,
    content_type: &'a HeaderValue,
}

impl<'a> Asset<'a> {
    /// Returns the path beneath the directory. For an index, it includes the name of the index.
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// Returns the value of `Content-Type`.
    pub fn content_type(&self) -> &'a HeaderValue {
        self.content_type
    }

    /// Returns whether the file is an HTML document.
    pub fn is_page(&self) -> bool {
        let value = self.content_type.as_bytes();
        [&b"text/html"[..], b"application/xhtml+xml"].iter().any(|page| value.starts_with(page))
    }

    /// Returns whether the name contains a hash of the contents, as bundlers write it: `app.3f9a1c2b.js`,
    /// `index-D4k9x_Qa.css`, `chunk-7QWX2ABC.js`.
    ///
    /// A hash is the last part of a name before its extensions, or a part between dots: 8 or more hexadecimal digits in
    /// lower case, or exactly 8 letters, digits, `_` and `-`. Both digits and letters must occur, upper-case letters in
    /// the second form, so that words and dates do not count. A hash without a digit is not recognised.
    pub fn has_content_hash(&self) -> bool {
        let Some(name) = self.path.file_name().and_then(|name| name.to_str()) else { return false };
        let Some((stem, _)) = name.rsplit_once('.') else { return false };
        stem.split('.').enumerate().any(|(i, part)| {
            let last = part.rsplit(['-', '_']).next().unwrap_or(part);
            // The first part needs a name before the hash.
            let named = i > 0 || last.len() < part.len();
            (named && is_hexadecimal(last)) || ends_with_letters_and_digits(part, i > 0)
        })
    }
}

fn is_hexadecimal(part: &str) -> bool {
    part.len() >= 8
        && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        && part.bytes().any(|b| b.is_ascii_digit())
        && part.bytes().any(|b| b.is_ascii_alphabetic())
}

/// Returns whether a part is, or ends behind a `-` with, a hash of 8 characters.
fn ends_with_letters_and_digits(part: &str, whole: bool) -> bool {
    let hash = match part.len().checked_sub(8).map(|at| part.as_bytes().split_at(at)) {
        Some((b"", hash)) if whole => hash,
        Some(([.., b'-'], hash)) => hash,
        _ => return false,
    };
    hash.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        && hash.iter().any(u8::is_ascii_digit)
        && hash.iter().any(u8::is_ascii_uppercase)
}

/// The usual rule for a site made by a bundler, for
/// [`FilesBuilder::cache_control`](super::FilesBuilder::cache_control).
///
/// | file | `Cache-Control` |
/// |---|---|
/// | page | `no-cache`: stored, and validated for each use |
/// | [name with a hash of the contents](Asset::has_content_hash) | `public, max-age=31536000, immutable` |
/// | other | none: the client decides |
pub fn cache_by_name(asset: &Asset<'_>) -> Option<HeaderValue> {
    if asset.is_page() {
        return Some(HeaderValue::from_static("no-cache"));
    }
    asset.has_content_hash().then(|| HeaderValue::from_static("public, max-age=31536000, immutable"))
}

type Rule = dyn Fn(&Asset<'_>) -> Option<HeaderValue> + Send + Sync;

/// Rule that returns the `Cache-Control` of a file.
#[derive(Clone)]
pub(super) struct CacheControl(Arc<Rule>);

impl CacheControl {
    pub(super) fn new(rule: impl Fn(&Asset<'_>) -> Option<HeaderValue> + Send + Sync + 'static) -> Self {
        Self(Arc::new(rule))
    }

    pub(super) fn of(&self, path: &Path, content_type: &HeaderValue) -> Option<HeaderValue> {
        (self.0)(&Asset { path, content_type })
    }
}

impl fmt::Debug for CacheControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CacheControl(_)")
    }
}

#[cfg(test)]
mod tests;
