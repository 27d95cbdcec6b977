//! Headers, made as the specification says, without the code under test.

use std::net::{IpAddr, SocketAddr};

pub(crate) const LOCAL: u8 = 0x20;
pub(crate) const PROXY: u8 = 0x21;

/// Returns a field of version 2.
pub(crate) fn field(kind: u8, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [&[kind][..], &u16::try_from(value.len()).unwrap().to_be_bytes(), value].concat()
}

/// Returns a header of version 2.
pub(crate) fn v2(command: u8, family: u8, block: impl AsRef<[u8]>) -> Vec<u8> {
    let block = block.as_ref();
    let len = u16::try_from(block.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &len, block].concat()
}

/// Returns the header of a connection over TCP from `client`, with further fields.
pub(crate) fn tcp(client: &str, server: &str, fields: &[u8]) -> Vec<u8> {
    let [client, server]: [SocketAddr; 2] = [client, server].map(|addr| addr.parse().unwrap());
    let ip = |addr: SocketAddr| match addr.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let ports = [client.port().to_be_bytes(), server.port().to_be_bytes()].concat();
    let family = if client.is_ipv4() { 0x11 } else { 0x21 };
    v2(PROXY, family, [&ip(client)[..], &ip(server), &ports, fields].concat())
}

/// Returns the block of two Unix sockets.
pub(crate) fn unix(client: &[u8], server: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 216];
    block[..client.len()].copy_from_slice(client);
    block[108..][..server.len()].copy_from_slice(server);
    block
}

/// Adds the field of the checksum.
pub(crate) fn summed(mut header: Vec<u8>) -> Vec<u8> {
    header.extend(field(3, [0; 4]));
    let len = u16::try_from(header.len() - 16).unwrap();
    header[14..16].copy_from_slice(&len.to_be_bytes());
    let sum = crc32c(&header).to_be_bytes();
    let at = header.len() - 4;
    header[at..].copy_from_slice(&sum);
    header
}

/// CRC-32C, RFC 3720 appendix B.4, bit by bit.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

/// Returns the value of the SSL field: TLS, a certificate that is accepted or not, version and name.
pub(crate) fn ssl(verify: u32) -> Vec<u8> {
    [&[7][..], &verify.to_be_bytes(), &field(0x21, "TLSv1.3"), &field(0x22, "mill"), &field(0x23, "X")].concat()
}

/// Headers of all kinds, and the client that each names.
pub(crate) fn kinds() -> Vec<(Vec<u8>, Option<&'static str>)> {
    let v4 = "203.0.113.7:4711";
    let v6 = "[2001:db8::7]:4711";
    let worst = format!("PROXY UNKNOWN {0} {0} 65535 65535\r\n", ["ffff"; 8].join(":"));
    assert_eq!(worst.len(), 107);
    vec![
        (b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n".to_vec(), Some(v4)),
        (b"PROXY TCP6 2001:db8::7 ::1 4711 443\r\n".to_vec(), Some(v6)),
        (b"PROXY UNKNOWN\r\n".to_vec(), None),
        (worst.into_bytes(), None),
        (tcp(v4, "10.0.0.1:443", &[]), Some(v4)),
        (tcp(v6, "[::1]:443", &[]), Some(v6)),
        (summed(tcp(v4, "10.0.0.1:443", &field(2, "mill.example"))), Some(v4)),
        (summed(tcp(v6, "[::1]:443", &[field(4, [0; 9]), field(0x20, ssl(0))].concat())), Some(v6)),
        // The type of the checksum has no meaning inside of an SSL field.
        (tcp(v4, "10.0.0.1:443", &field(0x20, [&[1, 0, 0, 0, 0][..], &field(3, "sum!")].concat())), Some(v4)),
        (tcp(v4, "10.0.0.1:443", &field(0xea, [b'x'; 4065])), Some(v4)),
        (v2(PROXY, 0x12, &tcp(v4, "10.0.0.1:443", &[])[16..]), Some(v4)),
        (v2(LOCAL, 0x00, []), None),
        (v2(LOCAL, 0xff, [0xff; 30]), None),
        (v2(PROXY, 0x00, []), None),
        (summed(v2(PROXY, 0x00, field(5, "id"))), None),
        (v2(PROXY, 0x31, unix(b"/run/client", b"/run/mill")), None),
        (v2(PROXY, 0x32, [unix(b"", &[b'x'; 108]), field(5, "id")].concat()), None),
    ]
}

/// Invalid headers, and a word of the reason.
pub(crate) fn wrong() -> Vec<(Vec<u8>, &'static str)> {
    let text = |line: &str| line.as_bytes().to_vec();
    let v4 = |fields: &[u8]| tcp("203.0.113.7:4711", "10.0.0.1:443", fields);
    let sums_of_others = {
        let mut header = summed(v4(&[]));
        header[20] ^= 1;
        header
    };
    vec![
        (text("GET / HTTP/1.1\r\nHost: mill\r\n\r\n"), "do not begin"),
        (text("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "do not begin"),
        (text("proxy TCP4 203.0.113.7 10.0.0.1 4711 443\r\n"), "do not begin"),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(), "do not begin"),
        (b"\r\n\r\n\0\r\nQUIT\r\x21\x11\0\x0c".to_vec(), "do not begin"),
        (text("PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\n"), "line"),
        (b"PROXY TCP4 203.0.113.\xff 10.0.0.1 4711 443\r\n".to_vec(), "line"),
        ([&b"PROXY UNKNOWN "[..], &[b'x'; 92], b"\r\n"].concat(), "too long"),
        (text(&format!("PROXY TCP4 {}", "1".repeat(200))), "too long"),
        (text("PROXY \r\n"), "no known protocol"),
        (text("PROXY UDP4 203.0.113.7 10.0.0.1 4711 443\r\n"), "no known protocol"),
        (text("PROXY UNKNOWNX\r\n"), "no known protocol"),
        (text("PROXY  TCP4 203.0.113.7 10.0.0.1 4711 443\r\n"), "no known protocol"),
        (text("PROXY TCP4 203.0.113.7 10.0.0.1 4711\r\n"), "IPv4"),
        (text("PROXY TCP4 203.0.113.7 10.0.0.1 4711 443 \r\n"), "IPv4"),
        (text("PROXY TCP4 203.0.113.7 10.0.0.1 4711 65536\r\n"), "IPv4"),
        (text("PROXY TCP4 203.0.113.7 10.0.0.1 +471 443\r\n"), "IPv4"),
        (text("PROXY TCP4 203.0.113.7 10.0.0.1 04711 443\r\n"), "IPv4"),
        (text("PROXY TCP4 203.0.113.7  10.0.0.1 4711 443\r\n"), "IPv4"),
        (text("PROXY TCP4 2001:db8::7 ::1 4711 443\r\n"), "IPv4"),
        (text("PROXY TCP6 203.0.113.7 10.0.0.1 4711 443\r\n"), "IPv6"),
        (v2(0x11, 0x11, [0; 12]), "version or command"),
        (v2(0x22, 0x11, [0; 12]), "version or command"),
        (v2(PROXY, 0x10, [0; 12]), "family"),
        (v2(PROXY, 0x41, [0; 12]), "family"),
        (v2(PROXY, 0x11, [0; 11]), "too short"),
        (v2(PROXY, 0x21, [0; 35]), "too short"),
        (v2(PROXY, 0x31, [0; 215]), "too short"),
        // Longer than the limit: the head is enough to refuse it.
        (v2(PROXY, 0x11, [0; 4081]), "longer than 4096"),
        (v2(LOCAL, 0x00, [0; 65535]), "longer than 4096"),
        (v4(&[2, 0]), "field"),
        (v4(&[2, 0, 2, b'x']), "field"),
        (v4(&field(3, [0; 3])), "checksum"),
        (v4(&field(3, [0; 4])), "checksum"),
        (sums_of_others, "checksum"),
        (v4(&field(0x20, [0; 4])), "SSL"),
        (v4(&field(0x20, [1, 0, 0, 0, 0, 0x21, 0])), "SSL"),
        // A field of another kind inside: it is skipped, and cut.
        (v4(&field(0x20, [1, 0, 0, 0, 0, 3, 0, 4, 1])), "SSL"),
    ]
}
