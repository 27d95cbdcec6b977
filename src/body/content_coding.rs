//! Content codings and their negotiation, [RFC 9110 §12.5.3](https://www.rfc-editor.org/rfc/rfc9110#section-12.5.3).

use std::fmt;

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, HeaderValue};

/// A content coding ([RFC 9110 §8.4.1](https://www.rfc-editor.org/rfc/rfc9110#section-8.4.1)) of this crate's
/// responses. `Display` writes its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContentCoding {
    /// `br`, [RFC 7932](https://www.rfc-editor.org/rfc/rfc7932).
    Brotli,
    /// `zstd`, [RFC 8878](https://www.rfc-editor.org/rfc/rfc8878).
    Zstd,
    /// `gzip`, [RFC 1952](https://www.rfc-editor.org/rfc/rfc1952).
    Gzip,
}

impl ContentCoding {
    /// All codings. The one that makes the smallest files is first.
    pub(crate) const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// Returns the coding that the client prefers by the weights of its `Accept-Encoding`, among `available` ones. The
    /// first in `available` wins among equal weights. `None` stands for the identity: the client accepts none of them,
    /// or gives the identity more weight, or sends no such header.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use http::header::{ACCEPT_ENCODING, HeaderValue};
    /// use millstream::body::ContentCoding;
    ///
    /// let mut headers = HeaderMap::new();
    /// headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, br;q=0.5"));
    /// let chosen = ContentCoding::negotiate(&headers, [ContentCoding::Brotli, ContentCoding::Gzip]);
    /// assert_eq!(chosen, Some(ContentCoding::Gzip));
    /// ```
    pub fn negotiate(headers: &HeaderMap, available: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut listed: [Option<u16>; 3] = [None; 3];
        let (mut identity, mut any) = (None, None);
        for value in headers.get_all(ACCEPT_ENCODING) {
            for (name, quality) in value.to_str().unwrap_or_default().split(',').filter_map(member) {
                if name == "*" {
                    any = Some(quality);
                } else if name.eq_ignore_ascii_case("identity") {
                    identity = Some(quality);
                } else if let Some(i) = Self::ALL.iter().position(|coding| coding.is_called(name)) {
                    listed[i] = Some(quality);
                }
            }
        }
        let mut best = None;
        // Any accepted coding is better than `identity`, unless the client names `identity` with a higher weight.
        let mut beat = identity.unwrap_or(0);
        for coding in available {
            let quality = listed[coding as usize].or(any).unwrap_or(0);
            let better = if best.is_none() { quality >= beat && quality > 0 } else { quality > beat };
            if better {
                best = Some(coding);
                beat = quality;
            }
        }
        best
    }

    /// Returns the name that `Content-Encoding` has.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// Returns the value of `Content-Encoding`.
    pub(crate) const fn value(self) -> HeaderValue {
        HeaderValue::from_static(self.name())
    }

    /// Returns the suffix of the name of a compressed file.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }

    fn is_called(self, name: &str) -> bool {
        self.name().eq_ignore_ascii_case(name) || (self == Self::Gzip && name.eq_ignore_ascii_case("x-gzip"))
    }
}

impl fmt::Display for ContentCoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Parses a coding and its weight in thousandths; `None` if malformed.
fn member(text: &str) -> Option<(&str, u16)> {
    let (name, weight) = match text.split_once(';') {
        Some((name, weight)) => (name, Some(weight.trim())),
        None => (text, None),
    };
    let name = name.trim();
    let quality = match weight {
        None => 1000,
        Some(weight) => thousandths(weight.strip_prefix("q=").or_else(|| weight.strip_prefix("Q="))?)?,
    };
    (!name.is_empty()).then_some((name, quality))
}

fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !matches!(whole, "0" | "1") || fraction.len() > 3 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let fraction: u16 = format!("{fraction:0<3}").parse().ok()?;
    match whole {
        "0" => Some(fraction),
        _ => (fraction == 0).then_some(1000),
    }
}

#[cfg(test)]
mod tests;
