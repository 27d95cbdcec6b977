//! Lists of networks, `X-Forwarded-For` and `Host` against plain readings of them.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arbitrary::Arbitrary;
use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use libfuzzer_sys::fuzz_target;
use millstream_layers::AllowedHostsLayer;
use millstream::server::Trusted;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    networks: Vec<(Addr, u8)>,
    list: &'a str,
    peer: Addr,
    lines: Vec<Vec<Entry<'a>>>,
    hosts: Vec<&'a [u8]>,
    allowed: Vec<&'a str>,
}

/// Few different addresses, so that networks meet them.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Addr {
    Four(u8, u8),
    Six(u16, u16),
    Mapped(u8, u8),
}

#[derive(Arbitrary, Debug)]
enum Entry<'a> {
    Addr(Addr),
    WithPort(Addr, u16),
    Padded(Addr, &'a str),
    Text(&'a [u8]),
}

impl From<Addr> for IpAddr {
    fn from(addr: Addr) -> Self {
        match addr {
            Addr::Four(a, d) => Ipv4Addr::new(a, 0, 2, d).into(),
            Addr::Six(a, d) => Ipv6Addr::new(0x2001, 0xdb8, a, 0, 0, 0, 0, d).into(),
            Addr::Mapped(a, d) => Ipv4Addr::new(a, 0, 2, d).to_ipv6_mapped().into(),
        }
    }
}

/// An address as its family and bits. An IPv4 address in IPv6 form is that address.
fn bits(addr: IpAddr) -> (u32, u128) {
    match addr {
        IpAddr::V4(addr) => (32, u128::from(u32::from(addr))),
        IpAddr::V6(addr) => match u128::from(addr) {
            bits if bits >> 32 == 0xffff => (32, bits & 0xffff_ffff),
            bits => (128, bits),
        },
    }
}

fn holds(networks: &[(u32, u128, u32)], addr: IpAddr) -> bool {
    let (width, bits) = bits(addr);
    networks.iter().any(|&(family, network, len)| {
        let shift = family - len;
        family == width && (shift >= 128 || network >> shift == bits >> shift)
    })
}

impl Entry<'_> {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Addr(addr) => to.extend_from_slice(IpAddr::from(*addr).to_string().as_bytes()),
            Self::WithPort(addr, port) => {
                to.extend_from_slice(SocketAddr::new((*addr).into(), *port).to_string().as_bytes());
            }
            Self::Padded(addr, pad) => to.extend_from_slice(format!("{pad}{} \t", IpAddr::from(*addr)).as_bytes()),
            Self::Text(text) => to.extend_from_slice(text),
        }
    }
}

/// Reads an element of the list, which is an address, or one with a port.
fn element(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    let addr: Option<IpAddr> = text.parse().ok();
    addr.or_else(|| text.parse().ok().map(|addr: SocketAddr| addr.ip()))
}

fn same(one: IpAddr, other: IpAddr) -> bool {
    bits(one) == bits(other)
}

/// Returns whether a host is an address or `localhost`, or one of the allowed names.
fn is_allowed(host: &[u8], allowed: &[&str]) -> Option<bool> {
    let host = std::str::from_utf8(host).ok()?;
    let end = match host.strip_prefix('[') {
        Some(_) => host.find(']')? + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let number: Option<u16> = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        None => return Some(false),
        Some("") => None,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => Some(digits.parse().ok()?),
        Some(_) => return Some(false),
    };
    if let Some(address) = name.strip_prefix('[') {
        return Some(address.strip_suffix(']')?.parse::<Ipv6Addr>().is_ok());
    }
    if name.parse::<Ipv4Addr>().is_ok() {
        return Some(true);
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b)) {
        // Only the plain characters are judged here.
        return None;
    }
    let name = name.to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") {
        return Some(true);
    }
    Some(allowed.iter().any(|allowed| {
        let allowed = allowed.to_ascii_lowercase();
        allowed == name || number.is_some_and(|number| allowed == format!("{name}:{number}"))
    }))
}

fuzz_target!(|input: Input<'_>| {
    // Any text: it is parsed into what is written again, or refused.
    if let Ok(trusted) = input.list.parse::<Trusted>() {
        assert_eq!(trusted.to_string().parse::<Trusted>().unwrap(), trusted);
    }
    let networks: Vec<(u32, u128, u32)> = input
        .networks
        .iter()
        .map(|&(addr, len)| {
            let (width, bits) = bits(addr.into());
            let len = u32::from(len) % (width + 1);
            let host = if len == 0 { u128::MAX } else { (1 << (width - len)) - 1 };
            (width, bits & !host, len)
        })
        .collect();
    let list: Vec<String> = networks
        .iter()
        .map(|&(width, bits, len)| match width {
            32 => format!("{}/{len}", Ipv4Addr::from(bits as u32)),
            _ => format!("{}/{len}", Ipv6Addr::from(bits)),
        })
        .collect();
    let Ok(trusted) = list.join(",").parse::<Trusted>() else {
        // The only network that is refused: one whose address is an IPv4 address in IPv6 form.
        panic!("refused: {list:?}");
    };

    let mut headers = HeaderMap::new();
    let mut entries: Vec<Vec<u8>> = Vec::new();
    for line in &input.lines {
        let mut text = Vec::new();
        for (n, entry) in line.iter().enumerate() {
            if n > 0 {
                text.push(b',');
            }
            entry.write(&mut text);
        }
        if let Ok(value) = HeaderValue::from_bytes(&text) {
            entries.extend(value.as_bytes().split(|&b| b == b',').map(<[u8]>::to_vec));
            headers.append(HeaderName::from_static("x-forwarded-for"), value);
        }
    }
    let peer = IpAddr::from(input.peer);
    assert_eq!(trusted.contains(peer), holds(&networks, peer));
    let mut expected = peer;
    while holds(&networks, expected) {
        let Some(named) = entries.pop().and_then(|entry| element(&entry)) else { break };
        expected = named;
    }
    let client = trusted.client(peer, &headers);
    assert!(same(client, expected), "{client} instead of {expected} by {headers:?}");

    let mut layer = AllowedHostsLayer::local();
    let mut allowed = Vec::new();
    for name in &input.allowed {
        if let Ok(more) = layer.clone().and(name) {
            layer = more;
            allowed.push(*name);
        }
    }
    for host in &input.hosts {
        let Ok(value) = HeaderValue::from_bytes(host) else { continue };
        let request = Request::get("/").header(HOST, value).body(()).unwrap();
        let plain = allowed.iter().all(|name| !name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '.'));
        match is_allowed(request.headers()[HOST].as_bytes(), &allowed) {
            Some(expected) if plain => assert_eq!(layer.allows(&request), expected, "{:?}", request.headers()),
            Some(_) | None => drop(layer.allows(&request)),
        }
    }
});
