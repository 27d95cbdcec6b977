//! Headers as bytes.

use std::net::{IpAddr, SocketAddr};

use crate::fields::{BINARY_MAX, CRC32C, HEAD, LOCAL, PATH, PROXY, SIGNATURE, fields, put_field};
use crate::header::{Addresses, ProxyHeader};

/// A version of the PROXY protocol, for [`ProxyHeader::encode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProxyVersion {
    /// Version 1: a line of text with IP addresses. It has no fields.
    V1,
    /// Version 2: addresses and fields, as bytes.
    V2,
    /// Version 2 with a checksum (`PP2_TYPE_CRC32C`), which is left out if the header would be longer than 4096 bytes.
    V2WithChecksum,
}

impl ProxyHeader {
    /// Returns the bytes to send first on a connection, before TLS.
    ///
    /// In version 1, a header without IP addresses is `UNKNOWN`. In version 2, a [local](ProxyHeader::is_local) one is
    /// `LOCAL`, and another one without addresses is of `AF_UNSPEC`. If one of the two addresses is of IPv6, the other
    /// is sent in the form of IPv6. The transport is always TCP, or a stream of Unix sockets. A checksum that was
    /// received is left out.
    pub fn encode(&self, version: ProxyVersion) -> Vec<u8> {
        match version {
            ProxyVersion::V1 => text(self.addresses()),
            ProxyVersion::V2 => binary(self),
            ProxyVersion::V2WithChecksum => with_checksum(binary(self)),
        }
    }
}

/// Version 1, §2.1.
fn text(addresses: Option<&Addresses>) -> Vec<u8> {
    let Some(Addresses::Ip { source, destination }) = addresses else { return b"PROXY UNKNOWN\r\n".to_vec() };
    let (from, to) = of_one_family(source, destination);
    let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
    format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port()).into_bytes()
}

fn of_one_family(source: &SocketAddr, destination: &SocketAddr) -> (IpAddr, IpAddr) {
    let mapped = |ip| match ip {
        IpAddr::V4(ip) => IpAddr::V6(ip.to_ipv6_mapped()),
        IpAddr::V6(_) => ip,
    };
    let (source, destination) = (source.ip(), destination.ip());
    match source.is_ipv4() == destination.is_ipv4() {
        true => (source, destination),
        false => (mapped(source), mapped(destination)),
    }
}

/// Version 2, §2.2.
fn binary(header: &ProxyHeader) -> Vec<u8> {
    let mut bytes = [SIGNATURE, &[PROXY, 0, 0, 0]].concat();
    let (command, family) = (SIGNATURE.len(), SIGNATURE.len() + 1);
    match header.addresses() {
        None if header.is_local() => bytes[command] = LOCAL,
        None => {}
        Some(Addresses::Ip { source, destination }) => {
            let (from, to) = of_one_family(source, destination);
            bytes[family] = if from.is_ipv4() { 0x11 } else { 0x21 };
            for ip in [from, to] {
                match ip {
                    IpAddr::V4(ip) => bytes.extend(ip.octets()),
                    IpAddr::V6(ip) => bytes.extend(ip.octets()),
                }
            }
            bytes.extend([source.port().to_be_bytes(), destination.port().to_be_bytes()].as_flattened());
        }
        Some(Addresses::Unix { source, destination }) => {
            bytes[family] = 0x31;
            for name in [source, destination] {
                bytes.extend(name);
                bytes.resize(bytes.len() + PATH - name.len(), 0);
            }
        }
    }
    for (kind, value) in fields(header.fields()).filter(|(kind, _)| *kind != CRC32C) {
        put_field(&mut bytes, kind, value);
    }
    set_len(&mut bytes);
    bytes
}

fn set_len(bytes: &mut [u8]) {
    let len = u16::try_from(bytes.len() - HEAD).expect("internal: a header has at most 4096 bytes");
    bytes[HEAD - 2..HEAD].copy_from_slice(&len.to_be_bytes());
}

fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len();
    put_field(&mut bytes, CRC32C, &[0; 4]);
    if bytes.len() > BINARY_MAX {
        bytes.truncate(end);
        return bytes;
    }
    set_len(&mut bytes);
    let sum = crc32c::crc32c(&bytes).to_be_bytes();
    bytes[end + 3..].copy_from_slice(&sum);
    bytes
}

#[cfg(test)]
mod tests;
