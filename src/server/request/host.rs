//! The host of a request: the value of `Host` and `:authority`, `uri-host [ ":" port ]` ([RFC 9110
//! §7.2](https://www.rfc-editor.org/rfc/rfc9110#section-7.2)).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::uri::Authority;
use http::{HeaderValue, Uri, Version};

/// A host as received: the name is not decoded, and may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "hidden, for crates of the same version")]
pub struct Host<'a> {
    /// The name or address, without the port.
    pub name: Name<'a>,
    /// `None` if it is left out or empty.
    pub port: Option<u16>,
}

/// The name of a [`Host`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "hidden, for crates of the same version")]
pub enum Name<'a> {
    /// A name of DNS or another registry.
    Registered(&'a str),
    /// An address of IPv4, or in brackets of IPv6.
    Address(IpAddr),
}

impl Name<'_> {
    /// Returns whether both are equal. Registered names are compared without case.
    pub fn is(self, other: Name<'_>) -> bool {
        match (self, other) {
            (Name::Registered(one), Name::Registered(other)) => one.eq_ignore_ascii_case(other),
            (one, other) => one == other,
        }
    }
}

impl<'a> Host<'a> {
    /// Parses a host with an optional port. User information, allowed in an authority, is invalid (RFC 9110 §4.2.4).
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                (Name::Address(address.parse::<Ipv6Addr>().ok()?.into()), port)
            }
            None => {
                let end = text.find(':').unwrap_or(text.len());
                let name = &text[..end];
                match name.parse::<Ipv4Addr>() {
                    Ok(address) => (Name::Address(address.into()), &text[end..]),
                    Err(_) if is_registered_name(name.as_bytes()) => (Name::Registered(name), &text[end..]),
                    Err(_) => return None,
                }
            }
        };
        let port = match port {
            // An empty port is valid, and means the default port (RFC 3986 §3.2.3).
            "" | ":" => None,
            _ => {
                let digits = port.strip_prefix(':').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
                Some(digits.parse().ok()?)
            }
        };
        Some(Self { name, port })
    }

    /// Reads the host of a request's target.
    pub fn of(authority: &'a Authority) -> Option<Self> {
        Self::parse(authority.as_str().as_bytes())
    }
}

/// Returns whether these are the characters of `reg-name` (RFC 3986 §3.2.2).
fn is_registered_name(mut name: &[u8]) -> bool {
    while let [first, rest @ ..] = name {
        name = match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => rest,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => rest,
            b'%' => match rest {
                [high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
                _ => return false,
            },
            _ => return false,
        };
    }
    true
}

/// Returns whether these bytes are a host with an optional port, as [`Host::parse`] does, which also tells its parts.
fn is_host(bytes: &[u8]) -> bool {
    /// The bytes of a name without escapes, and so of an IPv4 address.
    const PLAIN: [bool; 256] = {
        let (mut plain, mut at) = ([false; 256], 0);
        let all = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=";
        while at < all.len() {
            plain[all[at] as usize] = true;
            at += 1;
        }
        plain
    };
    let end = bytes.iter().position(|&b| !PLAIN[usize::from(b)]).unwrap_or(bytes.len());
    match &bytes[end..] {
        [] => true,
        // More digits may be too large a number.
        [b':', port @ ..] if port.len() <= 4 => port.iter().all(u8::is_ascii_digit),
        _ => Host::parse(bytes).is_some(),
    }
}

/// The fields `Host` of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum HostField<'a> {
    Missing,
    One(&'a HeaderValue),
    Several,
}

impl<'a> HostField<'a> {
    /// Adds a field.
    pub(super) fn and(self, value: &'a HeaderValue) -> Self {
        match self {
            Self::Missing => Self::One(value),
            Self::One(_) | Self::Several => Self::Several,
        }
    }
}

/// Returns whether a request names its host correctly: at most one `Host`, which HTTP/1.1 requires, and no invalid host
/// in it or in the target ([RFC 9112 §3.2](https://www.rfc-editor.org/rfc/rfc9112#section-3.2), [RFC 9113
/// §8.3.1](https://www.rfc-editor.org/rfc/rfc9113#section-8.3.1)). A target with an authority, as in HTTP/2, may come
/// with another `Host`, which is ignored: proxies made with hyper send their client's host besides the upstream's.
pub(super) fn is_valid(version: Version, uri: &Uri, field: HostField<'_>) -> bool {
    let is_good = match field {
        HostField::Missing => version != Version::HTTP_11,
        HostField::One(host) => is_host(host.as_bytes()),
        HostField::Several => false,
    };
    is_good && uri.authority().is_none_or(|authority| is_host(authority.as_str().as_bytes()))
}

#[cfg(test)]
mod tests;
