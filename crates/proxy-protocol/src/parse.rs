//! Headers from bytes. Both versions come from trusted peers, and are read strictly: other bytes end the connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use crate::error::HeaderError;
use crate::fields::{BINARY_MAX, CRC32C, HEAD, LOCAL, PATH, PROXY, SIGNATURE, SSL, SSL_MALFORMED, field, is_ssl};
use crate::header::{Addresses, ProxyHeader};

/// Begins version 1.
const TEXT: &[u8] = b"PROXY ";
/// Maximum length of version 1 with its end, §2.1.
const LINE_MAX: usize = 107;

/// Why these bytes are not a header.
pub(crate) type Malformed = &'static str;

impl ProxyHeader {
    /// Parses the header that `bytes` begin with. Returns it with its length, or `None` if it is incomplete.
    ///
    /// [`ProxyListener`](crate::ProxyListener) does this for its connections. Use it where the bytes come another way.
    ///
    /// # Errors
    ///
    /// The bytes do not begin with a header, or the header is malformed, has more than 4096 bytes or a wrong checksum.
    /// Further bytes do not change that.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, HeaderError> {
        parse(bytes).map_err(HeaderError)
    }
}

/// Returns the header that `bytes` begin with, and its length; `None` if it is incomplete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>, Malformed> {
    if may_begin(bytes, SIGNATURE) {
        binary(bytes)
    } else if may_begin(bytes, TEXT) {
        text(bytes)
    } else {
        Err("the bytes do not begin with a PROXY header")
    }
}

fn may_begin(bytes: &[u8], start: &[u8]) -> bool {
    bytes.iter().zip(start).all(|(one, other)| one == other)
}

/// Version 1, §2.1.
fn text(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>, Malformed> {
    let Some(end) = bytes.iter().take(LINE_MAX).position(|&b| b == b'\n') else {
        return if bytes.len() < LINE_MAX { Ok(None) } else { Err("the line of the PROXY header is too long") };
    };
    let line = bytes[..end].strip_suffix(b"\r").and_then(|line| str::from_utf8(line).ok());
    let mut words = line.ok_or("the line of the PROXY header is malformed")?.split(' ').skip(1);
    let addresses = match words.next() {
        // The rest of the line is ignored.
        Some("UNKNOWN") => None,
        Some("TCP4") => Some(tcp::<Ipv4Addr>(words).ok_or("the IPv4 addresses of the PROXY header are malformed")?),
        Some("TCP6") => Some(tcp::<Ipv6Addr>(words).ok_or("the IPv6 addresses of the PROXY header are malformed")?),
        _ => return Err("the PROXY header names no known protocol"),
    };
    Ok(Some((ProxyHeader::new(addresses, &[]), end + 1)))
}

fn tcp<'a, A: FromStr + Into<IpAddr>>(mut words: impl Iterator<Item = &'a str>) -> Option<Addresses> {
    let mut address = || Some(words.next()?.parse::<A>().ok()?.into());
    let (source, destination): (IpAddr, IpAddr) = (address()?, address()?);
    let mut port = || {
        let word = words.next()?;
        let is_number = word.bytes().all(|b| b.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
        word.parse::<u16>().ok().filter(|_| is_number)
    };
    let (source_port, destination_port) = (port()?, port()?);
    words.next().is_none().then_some(Addresses::Ip {
        source: (source, source_port).into(),
        destination: (destination, destination_port).into(),
    })
}

/// Version 2, §2.2.
fn binary(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>, Malformed> {
    let Some((&[.., version, family, high, low], rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
    let is_local = match version {
        LOCAL => true,
        PROXY => false,
        _ => return Err("the PROXY header has an unknown version or command"),
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if HEAD + len > BINARY_MAX {
        return Err("the PROXY header is longer than 4096 bytes");
    }
    let Some(block) = rest.get(..len) else { return Ok(None) };
    if is_local {
        // The rest of the header is skipped.
        return Ok(Some((ProxyHeader::local(), HEAD + len)));
    }
    let (addresses, fields) = addresses(family, block)?;
    check(&bytes[..HEAD + len], fields)?;
    Ok(Some((ProxyHeader::new(addresses, fields), HEAD + len)))
}

/// Splits the block behind the head into addresses and fields. The lower half of `family` is TCP or UDP.
fn addresses(family: u8, block: &[u8]) -> Result<(Option<Addresses>, &[u8]), Malformed> {
    let split = match family {
        0x00 => return Ok((None, block)),
        0x11 | 0x12 => ip::<4>(block),
        0x21 | 0x22 => ip::<16>(block),
        0x31 | 0x32 => unix(block),
        _ => return Err("the PROXY header has an unknown family or protocol"),
    };
    let (addresses, fields) = split.ok_or("the PROXY header is too short for its addresses")?;
    Ok((Some(addresses), fields))
}

fn ip<const N: usize>(block: &[u8]) -> Option<(Addresses, &[u8])>
where
    IpAddr: From<[u8; N]>,
{
    let (source, rest) = block.split_first_chunk::<N>()?;
    let (destination, rest) = rest.split_first_chunk::<N>()?;
    let (source_port, rest) = rest.split_first_chunk()?;
    let (destination_port, fields) = rest.split_first_chunk()?;
    let addr = |ip: &[u8; N], port: &[u8; 2]| SocketAddr::new((*ip).into(), u16::from_be_bytes(*port));
    let (source, destination) = (addr(source, source_port), addr(destination, destination_port));
    Some((Addresses::Ip { source, destination }, fields))
}

fn unix(block: &[u8]) -> Option<(Addresses, &[u8])> {
    let (source, rest) = block.split_first_chunk::<PATH>()?;
    let (destination, fields) = rest.split_first_chunk::<PATH>()?;
    // The name of an abstract socket begins with NUL.
    let name = |bytes: &[u8; PATH]| {
        let end = bytes[1..].iter().position(|&b| b == 0).map_or(PATH, |at| at + 1);
        if bytes[..end] == [0] { Box::default() } else { Box::from(&bytes[..end]) }
    };
    Some((Addresses::Unix { source: name(source), destination: name(destination) }, fields))
}

/// Checks that fields are well-formed, and the checksum of the `whole` header if there is one.
fn check(whole: &[u8], mut fields: &[u8]) -> Result<(), Malformed> {
    while !fields.is_empty() {
        let (kind, value, rest) = field(fields).ok_or("a field of the PROXY header is cut")?;
        match kind {
            CRC32C => {
                let sum: [u8; 4] = value.try_into().map_err(|_| "the checksum of the PROXY header is malformed")?;
                let (before, after) = whole.split_at(whole.len() - rest.len() - sum.len());
                let crc = crc32c::crc32c_append(crc32c::crc32c(before), &[0; 4]);
                if crc32c::crc32c_append(crc, &after[sum.len()..]) != u32::from_be_bytes(sum) {
                    return Err("the checksum of the PROXY header is wrong");
                }
            }
            SSL if !is_ssl(value) => return Err(SSL_MALFORMED),
            _ => {}
        }
        fields = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
