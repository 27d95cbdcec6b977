//! Media types by file name extension.

use std::collections::HashMap;
use std::path::Path;

use http::HeaderValue;

/// Types that differ from those of mime_guess. It regards `.ts` as a video, and lacks others.
const OWN: [(&str, &str); 16] = [
    ("cjs", "text/javascript; charset=utf-8"),
    ("cts", "text/typescript; charset=utf-8"),
    ("ico", "image/vnd.microsoft.icon"),
    ("ipynb", "application/x-ipynb+json"),
    ("jsonl", "application/jsonl"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("map", "application/json"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mts", "text/typescript; charset=utf-8"),
    ("ndjson", "application/x-ndjson"),
    ("toml", "application/toml"),
    ("ts", "text/typescript; charset=utf-8"),
    ("tsx", "text/typescript; charset=utf-8"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zst", "application/zstd"),
];

/// Types set by the user, by lower-case extension.
#[derive(Clone, Debug, Default)]
pub(super) struct ContentTypes(HashMap<String, HeaderValue>);

impl ContentTypes {
    pub(super) fn set(&mut self, extension: &str, value: HeaderValue) {
        self.0.insert(extension.to_ascii_lowercase(), value);
    }

    /// Returns the type of a file. Text is assumed to be UTF-8.
    pub(super) fn of(&self, path: &Path) -> HeaderValue {
        let extension = extension(path);
        if let Some(value) = self.0.get(&extension) {
            return value.clone();
        }
        if let Ok(i) = OWN.binary_search_by_key(&&extension[..], |(known, _)| known) {
            return HeaderValue::from_static(OWN[i].1);
        }
        match mime_guess::from_ext(&extension).first_raw() {
            Some(text) if text.starts_with("text/") => {
                HeaderValue::try_from(format!("{text}; charset=utf-8")).expect("internal: a type is a header value")
            }
            Some(other) => HeaderValue::from_static(other),
            None => HeaderValue::from_static("application/octet-stream"),
        }
    }

    /// Returns whether the name is that of a script, a style, an image or another file that is no page, by a known
    /// extension. A page is not a valid answer to a request for such a file.
    pub(super) fn is_subresource(&self, path: &Path) -> bool {
        let extension = extension(path);
        let is_known = self.0.contains_key(&extension)
            || OWN.binary_search_by_key(&&extension[..], |(known, _)| known).is_ok()
            || mime_guess::from_ext(&extension).first_raw().is_some();
        !extension.is_empty() && is_known && !self.of(path).as_bytes().starts_with(b"text/html")
    }
}

/// Returns the lower-case extension, empty if there is none or if it is no text.
fn extension(path: &Path) -> String {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
