//! The layout of `multipart/byteranges`, [RFC 9110 §14.6](https://www.rfc-editor.org/rfc/rfc9110#section-14.6).

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderValue;

/// A part of a body: text between the ranges, or a range of the representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(Bytes),
    Range(Range<u64>),
}

impl Part {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Range(range) => range.end - range.start,
        }
    }
}

pub(super) fn layout(ranges: &[Range<u64>], len: u64, content_type: &HeaderValue, boundary: &str) -> Vec<Part> {
    let mut parts = Vec::with_capacity(ranges.len() * 2 + 1);
    for (i, range) in ranges.iter().enumerate() {
        let mut head = BytesMut::with_capacity(160);
        if i > 0 {
            head.put_slice(b"\r\n");
        }
        head.put_slice(b"--");
        head.put_slice(boundary.as_bytes());
        head.put_slice(b"\r\nContent-Type: ");
        head.put_slice(content_type.as_bytes());
        head.put_slice(b"\r\nContent-Range: ");
        head.put_slice(content_range(range, len).as_bytes());
        head.put_slice(b"\r\n\r\n");
        parts.push(Part::Text(head.freeze()));
        parts.push(Part::Range(range.clone()));
    }
    parts.push(Part::Text(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
    parts
}

pub(super) fn content_range(range: &Range<u64>, len: u64) -> String {
    format!("bytes {}-{}/{len}", range.start, range.end - 1)
}

/// Returns an unpredictable separator: a predictable one could be placed in a file to forge parts.
pub(super) fn boundary() -> String {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let key = KEY.get_or_init(RandomState::new);
    let n = NEXT.fetch_add(2, Ordering::Relaxed);
    format!("{:016x}{:016x}", key.hash_one(n), key.hash_one(n + 1))
}

#[cfg(test)]
mod tests;
