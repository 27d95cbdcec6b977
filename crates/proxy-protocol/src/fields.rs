//! The layout of version 2, §2.2: a head, addresses, and fields of type, length and value.

/// Begins version 2.
pub(crate) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of version 2 before its addresses.
pub(crate) const HEAD: usize = 16;
/// Maximum length of version 2, as in nginx. The format allows 64 KiB.
pub(crate) const BINARY_MAX: usize = 4096;
/// Length of the path of a Unix socket.
pub(crate) const PATH: usize = 108;

/// Version 2 with its commands.
pub(crate) const LOCAL: u8 = 0x20;
pub(crate) const PROXY: u8 = 0x21;

/// Types of fields.
pub(crate) const AUTHORITY: u8 = 0x02;
pub(crate) const CRC32C: u8 = 0x03;
pub(crate) const UNIQUE_ID: u8 = 0x05;
pub(crate) const SSL: u8 = 0x20;
pub(crate) const SSL_MALFORMED: &str = "the SSL field of the PROXY header is malformed";
pub(crate) const SSL_VERSION: u8 = 0x21;
pub(crate) const SSL_CN: u8 = 0x22;

/// Returns type and value of the first field, and the fields behind it.
pub(crate) fn field(fields: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, high, low], rest) = fields.split_first_chunk()?;
    let (value, rest) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())?;
    Some((kind, value, rest))
}

/// Returns types and values of well-formed fields.
pub(crate) fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, value, rest) = field(bytes)?;
        bytes = rest;
        Some((kind, value))
    })
}

/// Splits the value of an SSL field, §2.2.6: flags of the client, 0 if its certificate was verified, and fields.
pub(crate) fn ssl_fields(value: &[u8]) -> Option<(u8, u32, &[u8])> {
    let (&[client], rest) = value.split_first_chunk()?;
    let (verify, fields) = rest.split_first_chunk()?;
    Some((client, u32::from_be_bytes(*verify), fields))
}

/// Returns whether this is the value of an SSL field.
pub(crate) fn is_ssl(value: &[u8]) -> bool {
    let Some((.., mut fields)) = ssl_fields(value) else { return false };
    while let Some((.., rest)) = field(fields) {
        fields = rest;
    }
    fields.is_empty()
}

/// Appends a field.
///
/// # Panics
///
/// If the value has more than 65 535 bytes.
pub(crate) fn put_field(bytes: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let len = u16::try_from(value.len()).expect("internal: a header has at most 4096 bytes");
    bytes.push(kind);
    bytes.extend(len.to_be_bytes());
    bytes.extend(value);
}
