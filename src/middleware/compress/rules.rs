//! Which responses may be compressed, and what changes in their heads.

use http::StatusCode;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderMap, HeaderName, HeaderValue, VARY,
};
use http::response::Parts;

use crate::body::ContentCoding;

/// Fields whose values depend on the unchanged bytes.
const FIXED: [HeaderName; 6] = [
    CONTENT_ENCODING,
    CONTENT_RANGE,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// Subtypes of `application` that are compressed.
const COMPRESSED: [&str; 17] = [
    "epub+zip",
    "font-woff",
    "gzip",
    "java-archive",
    "vnd.android.package-archive",
    "vnd.rar",
    "x-7z-compressed",
    "x-brotli",
    "x-bzip",
    "x-bzip2",
    "x-compress",
    "x-gzip",
    "x-rar-compressed",
    "x-xz",
    "zip",
    "zlib",
    "zstd",
];

/// Returns whether the content of a response, or the content that a 304 refers to, may be transformed (RFC 9110 §7.7,
/// §15).
pub(super) fn may_change(parts: &Parts) -> bool {
    let status = parts.status;
    let has_content = !status.is_informational()
        && ![StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::PARTIAL_CONTENT].contains(&status);
    let fields = &parts.headers;
    has_content && !FIXED.iter().any(|name| fields.contains_key(name)) && !lists(fields, CACHE_CONTROL, "no-transform")
}

pub(super) fn is_compressible(fields: &HeaderMap) -> bool {
    let Some(value) = fields.get(CONTENT_TYPE) else { return true };
    let text = value.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (kind, subtype) = essence.split_once('/').unwrap_or((&essence, ""));
    match kind {
        "image" => matches!(subtype, "svg+xml" | "bmp" | "x-icon" | "vnd.microsoft.icon"),
        "video" | "audio" => false,
        "font" => !matches!(subtype, "woff" | "woff2"),
        // Frames of images.
        "multipart" => subtype != "x-mixed-replace",
        "application" => {
            let is_grpc = subtype == "grpc" || subtype.starts_with("grpc+") || subtype.starts_with("grpc-web");
            let is_office = subtype.starts_with("vnd.openxmlformats-officedocument.")
                || subtype.starts_with("vnd.oasis.opendocument.");
            !is_grpc && !is_office && !COMPRESSED.contains(&subtype) && !subtype.ends_with("+zip")
        }
        _ => true,
    }
}

/// Says that the response depends on `Accept-Encoding`.
pub(super) fn vary(fields: &mut HeaderMap) {
    if !lists(fields, VARY, "*") && !lists(fields, VARY, ACCEPT_ENCODING.as_str()) {
        fields.append(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
    }
}

/// Makes the head that of a compressed body.
pub(super) fn encode(fields: &mut HeaderMap, coding: ContentCoding) {
    fields.insert(CONTENT_ENCODING, coding.value());
    fields.remove(CONTENT_LENGTH);
    // Ranges refer to the bytes before compression.
    fields.remove(ACCEPT_RANGES);
    weaken(fields);
}

/// Makes `ETag` a weak one.
pub(super) fn weaken(fields: &mut HeaderMap) {
    if let Some(tag) = fields.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/")) {
        let weak = [b"W/", tag.as_bytes()].concat();
        match HeaderValue::from_maybe_shared(bytes::Bytes::from(weak)) {
            Ok(weak) => fields.insert(ETAG, weak),
            // Cannot happen: the bytes of a valid value are valid after other bytes.
            Err(_) => fields.remove(ETAG),
        };
    }
}

/// Returns whether the weak form of the response's tag is in the list of tags that the client holds.
pub(super) fn holds_weak(held: &HeaderValue, fields: &HeaderMap) -> bool {
    let Some(tag) = fields.get(ETAG) else { return false };
    held.as_bytes()
        .windows(tag.len() + 2)
        .any(|found| found.strip_prefix(b"W/").is_some_and(|opaque| opaque == tag.as_bytes()))
}

/// Returns the size that `Content-Length` states.
pub(super) fn stated_size(fields: &HeaderMap) -> Option<u64> {
    fields.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn lists(fields: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let lists = fields.get_all(name);
    let tokens = lists.iter().flat_map(|value| value.to_str().unwrap_or_default().split(',')).map(str::trim);
    tokens.into_iter().any(|found| found.eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests;
