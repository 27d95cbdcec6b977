//! Header fields that a proxy changes: RFC 9110 §7.6.

use std::fmt::Write;
use std::net::IpAddr;
use std::num::IntErrorKind;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, MAX_FORWARDS, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version};

/// Connection fields, removed even if `Connection` does not name them.
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

const FORWARDED: HeaderName = HeaderName::from_static("forwarded");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Returns the elements of a list field, without empty ones (RFC 9110 §5.6.1).
fn words<'a>(fields: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    fields.get_all(name).into_iter().flat_map(elements)
}

fn elements(value: &HeaderValue) -> impl Iterator<Item = &str> {
    let words = value.as_bytes().split(|&byte| byte == b',');
    // Elements with other bytes are skipped; the elements beside them still count.
    let words = words.map(<[u8]>::trim_ascii).filter(|word| !word.is_empty() && word.is_ascii());
    words.filter_map(|word| std::str::from_utf8(word).ok())
}

/// Removes fields meant for the next hop only.
pub(crate) fn remove_hop_by_hop(fields: &mut HeaderMap) {
    // Most messages have none of them. One pass over all names costs less than a lookup of each of these names.
    if !fields.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return;
    }
    let named: Vec<HeaderName> = words(fields, &CONNECTION).filter_map(|name| name.parse().ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        // These belong to the message, even if `Connection` names them.
        if *name != HOST && *name != CONTENT_LENGTH {
            fields.remove(name);
        }
    }
}

/// Returns the protocol to which a message requests to switch, or agrees to switch. HTTP/2 is excluded: its requests
/// would bypass this proxy.
pub(crate) fn upgrade(fields: &HeaderMap) -> Option<HeaderValue> {
    let asked = words(fields, &CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"));
    let is_http2 = words(fields, &UPGRADE).any(|word| word.eq_ignore_ascii_case("h2c"));
    fields.get(UPGRADE).filter(|_| asked && !is_http2).cloned()
}

/// Returns the protocol to which a response switches, if the request has `asked` for it (RFC 9110 §7.8).
pub(crate) fn agreed(asked: &HeaderValue, fields: &HeaderMap) -> Option<HeaderValue> {
    let was_asked = |protocol: &str| elements(asked).any(|asked| asked.eq_ignore_ascii_case(protocol));
    upgrade(fields).filter(|protocol| elements(protocol).next().is_some() && elements(protocol).all(was_asked))
}

/// Returns whether the connection ends after the message.
pub(crate) fn closes(fields: &HeaderMap) -> bool {
    words(fields, &CONNECTION).any(|word| word.eq_ignore_ascii_case("close"))
}

/// Returns whether the body has a coding that this proxy does not remove: any but `chunked` (RFC 9112 §6.1).
pub(crate) fn has_other_coding(fields: &HeaderMap) -> bool {
    let mut codings = words(fields, &TRANSFER_ENCODING);
    let is_chunked = codings.next().is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    fields.contains_key(TRANSFER_ENCODING) && (!is_chunked || codings.next().is_some())
}

/// Makes `Content-Length` one decimal number, if the message has it (RFC 9110 §8.6). Returns `false` if the field is
/// invalid or has several different values.
pub(crate) fn normalize_length(fields: &mut HeaderMap) -> bool {
    let mut values = fields.get_all(CONTENT_LENGTH).iter();
    let Some(first) = values.next() else { return true };
    let is_alone = values.next().is_none();
    if is_alone && number(first.as_bytes()).is_some() && !first.as_bytes().starts_with(b"0") {
        return true;
    }
    let mut numbers =
        fields.get_all(CONTENT_LENGTH).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    let Some(length) = numbers.next().and_then(number) else { return false };
    if !numbers.all(|other| number(other) == Some(length)) {
        return false;
    }
    fields.insert(CONTENT_LENGTH, length.into());
    true
}

fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    // `parse` would also accept a sign.
    text.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(text).ok()?.parse().ok())?
}

/// Removes fields that are not allowed in trailers (RFC 9110 §6.5.1), and fields that HTTP/2 forbids everywhere.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap) {
    remove_hop_by_hop(trailers);
    trailers.remove(CONTENT_LENGTH);
    trailers.remove(HOST);
}

/// Removes fields that CGI, WSGI and PHP servers cannot distinguish from the fields that this proxy sets.
fn remove_lookalikes(fields: &mut HeaderMap) {
    let is_set = |name: &str| [FORWARDED_FOR, FORWARDED_PROTO].iter().any(|set| set.as_str() == name);
    let is_lookalike = |name: &&HeaderName| name.as_str().contains('_') && is_set(&name.as_str().replace('_', "-"));
    let lookalikes: Vec<HeaderName> = fields.keys().filter(is_lookalike).cloned().collect();
    for name in lookalikes {
        fields.remove(name);
    }
}

/// Joins the pieces into which HTTP/2 divides a cookie (RFC 9113 §8.2.3).
pub(crate) fn join_cookies(fields: &mut HeaderMap) {
    if fields.get_all(COOKIE).iter().nth(1).is_some() {
        let crumbs: Vec<&[u8]> = fields.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
        let joined = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]));
        fields.insert(COOKIE, joined.expect("internal: bytes of fields"));
    }
}

/// Counts this hop in `Max-Forwards` (RFC 9110 §7.6.2). Returns whether the request ends here.
pub(crate) fn ends_here<B>(request: &mut Request<B>) -> bool {
    if *request.method() != Method::OPTIONS && *request.method() != Method::TRACE {
        return false;
    }
    let hops = request.headers().get(MAX_FORWARDS).and_then(|hops| match hops.to_str().ok()?.parse::<u64>() {
        // A larger number is replaced by the largest that is supported.
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Some(u64::MAX),
        hops => hops.ok(),
    });
    if let Some(left) = hops.and_then(|hops| hops.checked_sub(1)) {
        request.headers_mut().insert(MAX_FORWARDS, left.into());
    }
    hops == Some(0)
}

/// Returns whether the client waits until the server wants the body (RFC 9110 §10.1.1).
pub(crate) fn expects_continue(fields: &HeaderMap) -> bool {
    words(fields, &EXPECT).any(|word| word.eq_ignore_ascii_case("100-continue"))
}

/// Sets the fields that request a change of protocol, or agree to it.
pub(crate) fn set_upgrade(fields: &mut HeaderMap, protocol: HeaderValue) {
    fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    fields.insert(UPGRADE, protocol);
}

/// Adds this proxy to the `Via` field (RFC 9110 §7.6.3).
pub(crate) fn add_via(fields: &mut HeaderMap, version: Version) {
    let via = match version {
        Version::HTTP_2 => "2.0 millstream",
        Version::HTTP_10 => "1.0 millstream",
        _ => "1.1 millstream",
    };
    fields.append(VIA, HeaderValue::from_static(via));
}

/// Turns the fields of a client's request into those for the upstream. Afterwards `Host` has the host, and `TE` has at
/// most the value that HTTP/2 allows. With `forwarded`, `Forwarded` (RFC 7239) is added too.
pub(crate) fn forward<B>(request: &mut Request<B>, client: Option<IpAddr>, scheme: &HeaderValue, forwarded: bool) {
    let version = request.version();
    let trailers = words(request.headers(), &TE).any(|word| word.eq_ignore_ascii_case("trailers"));
    let host = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    let fields = request.headers_mut();
    remove_hop_by_hop(fields);
    remove_lookalikes(fields);
    if trailers {
        // The only value that HTTP/2 allows; gRPC requires it.
        fields.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(host) = host {
        // The request line takes precedence (RFC 9112 §3.2.2), and HTTP/2 has no other place for the host.
        fields.insert(HOST, host);
    }
    add_via(fields, version);
    if let Some(client) = client {
        // Appends the client's address. Earlier values are kept, but the proxy cannot verify them.
        let mut all = String::new();
        words(fields, &FORWARDED_FOR).for_each(|word| all.extend([word, ", "]));
        write!(all, "{client}").expect("internal: a string takes every text");
        fields.insert(FORWARDED_FOR, HeaderValue::try_from(all).expect("internal: words of fields and an address"));
    }
    fields.insert(FORWARDED_PROTO, scheme.clone());
    if forwarded {
        add_forwarded(fields, client, scheme);
    }
}

/// Appends this hop to `Forwarded` (RFC 7239 §4): the client, the requested host, and the scheme. A value that is not a
/// token is quoted.
fn add_forwarded(fields: &mut HeaderMap, client: Option<IpAddr>, scheme: &HeaderValue) {
    let mut hop = Vec::new();
    match client {
        Some(IpAddr::V4(client)) => hop.extend(format!("for={client}").bytes()),
        Some(IpAddr::V6(client)) => hop.extend(format!("for=\"[{client}]\"").bytes()),
        None => hop.extend(b"for=unknown"),
    }
    let pairs = fields.get(HOST).map(|host| (&b";host="[..], host)).into_iter().chain([(&b";proto="[..], scheme)]);
    for (name, value) in pairs {
        hop.extend(name);
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        if !value.is_empty() && value.as_bytes().iter().all(is_token) {
            hop.extend(value.as_bytes());
        } else {
            hop.push(b'"');
            value.as_bytes().iter().for_each(|&byte| match byte {
                b'"' | b'\\' => hop.extend([b'\\', byte]),
                _ => hop.push(byte),
            });
            hop.push(b'"');
        }
    }
    // A further field line adds an element to the list (RFC 9110 §5.2).
    fields.append(FORWARDED, HeaderValue::from_maybe_shared(hop).expect("internal: bytes of fields"));
}

#[cfg(test)]
mod tests;
