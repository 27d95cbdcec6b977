//! Headers from their parts.

use std::net::SocketAddr;

use crate::error::HeaderError;
use crate::fields::{
    AUTHORITY, BINARY_MAX, CRC32C, HEAD, SSL, SSL_CN, SSL_MALFORMED, SSL_VERSION, UNIQUE_ID, is_ssl, put_field,
};
use crate::header::{Addresses, ProxyHeader, Ssl};

/// Maximum length of the id of a connection, §2.2.5.
const ID_MAX: usize = 128;
/// Bytes for fields: the head, addresses of IPv6 and the field of a checksum take the others.
const FIELDS_MAX: usize = BINARY_MAX - HEAD - 36 - 7;

/// The parts of a header, from [`ProxyHeader::builder`]. Only version 2 has the fields.
#[derive(Clone, Debug)]
#[must_use]
pub struct ProxyHeaderBuilder {
    addresses: Addresses,
    fields: Vec<(u8, Vec<u8>)>,
}

impl ProxyHeader {
    /// Returns a builder for the header of a client's connection: from `source`, the client, to `destination`, the
    /// address to which it has connected.
    ///
    /// ```
    /// use millstream_proxy_protocol::{ProxyHeader, ProxyVersion};
    ///
    /// let (client, server) = ("203.0.113.7:4711".parse().unwrap(), "10.0.0.1:443".parse().unwrap());
    /// let header = ProxyHeader::builder(client, server).authority("mill.example").build()?;
    /// assert_eq!(header.encode(ProxyVersion::V1), b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n");
    /// let bytes = header.encode(ProxyVersion::V2);
    /// assert_eq!(ProxyHeader::parse(&bytes)?, Some((header, bytes.len())));
    /// # Ok::<(), millstream_proxy_protocol::HeaderError>(())
    /// ```
    pub fn builder(source: SocketAddr, destination: SocketAddr) -> ProxyHeaderBuilder {
        ProxyHeaderBuilder { addresses: Addresses::Ip { source, destination }, fields: Vec::new() }
    }
}

impl ProxyHeaderBuilder {
    /// Adds the host name that the client asked for, as by SNI (`PP2_TYPE_AUTHORITY`).
    pub fn authority(self, name: &str) -> Self {
        self.field(AUTHORITY, name.as_bytes())
    }

    /// Adds an id of the connection (`PP2_TYPE_UNIQUE_ID`), of at most 128 bytes.
    pub fn unique_id(self, id: &[u8]) -> Self {
        self.field(UNIQUE_ID, id)
    }

    /// Adds the TLS properties of the client (`PP2_TYPE_SSL`).
    pub fn ssl(self, ssl: Ssl<'_>) -> Self {
        // A certificate counts as one of this connection and of its session.
        let client = u8::from(ssl.is_tls) | if ssl.has_certificate { 0b110 } else { 0 };
        let verify = u32::from(!(ssl.has_certificate && ssl.is_verified));
        let mut value = [&[client][..], &verify.to_be_bytes()].concat();
        for (kind, text) in [(SSL_VERSION, ssl.version), (SSL_CN, ssl.common_name)] {
            if let Some(text) = text {
                // The whole header is too long if this cuts a text.
                put_field(&mut value, kind, &text.as_bytes()[..text.len().min(BINARY_MAX)]);
            }
        }
        self.field(SSL, &value)
    }

    /// Adds a field of any type (`PP2_TYPE_…`) but the checksum, which is
    /// [added](crate::ProxyVersion::V2WithChecksum) to the encoded header.
    pub fn field(mut self, kind: u8, value: &[u8]) -> Self {
        self.fields.push((kind, value.to_vec()));
        self
    }

    /// Returns the header.
    ///
    /// # Errors
    ///
    /// The fields have more than 4037 bytes, an id has more than 128, the value of an SSL field is malformed, or there
    /// is a checksum.
    pub fn build(self) -> Result<ProxyHeader, HeaderError> {
        if self.fields.iter().map(|(_, value)| 3 + value.len()).sum::<usize>() > FIELDS_MAX {
            return Err(HeaderError("the fields of a PROXY header are longer than 4037 bytes together"));
        }
        let mut bytes = Vec::new();
        for (kind, value) in &self.fields {
            match *kind {
                CRC32C => return Err(HeaderError("a checksum is no part of a PROXY header: encode one with it")),
                UNIQUE_ID if value.len() > ID_MAX => {
                    return Err(HeaderError("the id in a PROXY header is longer than 128 bytes"));
                }
                SSL if !is_ssl(value) => return Err(HeaderError(SSL_MALFORMED)),
                kind => put_field(&mut bytes, kind, value),
            }
        }
        Ok(ProxyHeader::new(Some(self.addresses), &bytes))
    }
}
