//! Which precompressed variant a request gets, [RFC 9110 §12.5.3](https://www.rfc-editor.org/rfc/rfc9110#section-12.5.3).

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, HeaderValue};

/// A content coding that files are kept in, the smallest first: among equals the first is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Brotli,
    Zstd,
    Gzip,
}

impl Encoding {
    pub(super) const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// What the variant's name has behind that of the file.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }

    /// The value of `Content-Encoding`.
    pub(super) const fn value(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        })
    }

    fn is_called(self, name: &str) -> bool {
        let names: &[&str] = match self {
            Self::Brotli => &["br"],
            Self::Zstd => &["zstd"],
            Self::Gzip => &["gzip", "x-gzip"],
        };
        names.iter().any(|n| n.eq_ignore_ascii_case(name))
    }
}

/// The best of the available encodings that the client accepts; `None` to send the file as it is.
pub(super) fn choose(headers: &HeaderMap, available: impl Fn(Encoding) -> bool) -> Option<Encoding> {
    let mut listed: [Option<u16>; 3] = [None; 3];
    let (mut identity, mut any) = (None, None);
    for value in headers.get_all(ACCEPT_ENCODING) {
        for (name, quality) in value.to_str().unwrap_or_default().split(',').filter_map(member) {
            if name == "*" {
                any = Some(quality);
            } else if name.eq_ignore_ascii_case("identity") {
                identity = Some(quality);
            } else if let Some(i) = Encoding::ALL.iter().position(|encoding| encoding.is_called(name)) {
                listed[i] = Some(quality);
            }
        }
    }
    let mut best = None;
    // Unless the client prefers the file as it is by name, any encoding that it takes is better.
    let mut beat = identity.unwrap_or(0);
    for (encoding, quality) in Encoding::ALL.into_iter().zip(listed) {
        let quality = quality.or(any).unwrap_or(0);
        let better = if best.is_none() { quality >= beat && quality > 0 } else { quality > beat };
        if better && available(encoding) {
            best = Some(encoding);
            beat = quality;
        }
    }
    best
}

/// A coding and its weight in thousandths; `None` if it is malformed.
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

/// `0`, `1`, and up to three digits behind the point.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !matches!(whole, "0" | "1") || fraction.len() > 3 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let fraction: u16 = format!("{fraction:0<3}").parse().ok()?;
    Some(if whole == "1" { 1000 } else { fraction })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Encoding::{Brotli, Gzip, Zstd};

    fn chosen(accept: &str, available: &[Encoding]) -> Option<Encoding> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(accept).unwrap());
        choose(&headers, |encoding| available.contains(&encoding))
    }

    #[test]
    fn weights_decide_and_then_our_order() {
        let all = &Encoding::ALL[..];
        for (accept, available, expected) in [
            ("gzip, deflate, br, zstd", all, Some(Brotli)),
            ("gzip, deflate, br, zstd", &[Gzip, Zstd], Some(Zstd)),
            ("gzip", all, Some(Gzip)),
            ("x-gzip", all, Some(Gzip)),
            ("GZip", all, Some(Gzip)),
            ("gzip;q=1, br;q=0.5", all, Some(Gzip)),
            ("gzip; q=0.8 , br;Q=0.801", all, Some(Brotli)),
            ("br;q=0", all, None),
            ("br;q=0, *", all, Some(Zstd)),
            ("br;q=0.000, zstd;q=0, *;q=0.1", all, Some(Gzip)),
            ("*", all, Some(Brotli)),
            ("*;q=0", all, None),
            ("*;q=0, gzip", all, Some(Gzip)),
            ("identity, gzip;q=0.5", all, None),
            ("identity;q=0.5, gzip;q=0.5", all, Some(Gzip)),
            ("identity;q=0, gzip", all, Some(Gzip)),
            ("identity", all, None),
            ("", all, None),
            ("br;q=2", all, None),
            ("br;q=0.1234", all, None),
            ("br;q=x", all, None),
            ("br;q=", all, None),
            ("br;v=1", all, None),
            ("deflate", all, None),
            ("br, gzip", &[], None),
        ] {
            assert_eq!(chosen(accept, available), expected, "{accept:?} of {available:?}");
        }
        assert_eq!(choose(&HeaderMap::new(), |_| true), None);
    }

    #[test]
    fn several_lines_are_one_list() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT_ENCODING, HeaderValue::from_static("deflate"));
        headers.append(ACCEPT_ENCODING, HeaderValue::from_static("zstd"));
        assert_eq!(choose(&headers, |_| true), Some(Zstd));
    }

    #[test]
    fn weights_are_parsed_as_the_grammar_says() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("1.000", Some(1000)),
            ("0.5", Some(500)),
            ("0.05", Some(50)),
            ("0.", Some(0)),
        ] {
            assert_eq!(thousandths(text), expected, "{text}");
        }
        for text in ["", ".5", "00", "0.5555", "-1", "0.5x", "2"] {
            assert_eq!(thousandths(text), None, "{text}");
        }
    }
}
