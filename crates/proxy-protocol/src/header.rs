//! The contents of a header.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::fields::{AUTHORITY, SSL, SSL_CN, SSL_VERSION, UNIQUE_ID, fields, put_field, ssl_fields};

/// The PROXY header of a connection. [`ProxyListener`](crate::ProxyListener) puts it into the extensions of requests.
/// [`builder`](Self::builder) and [`encode`](Self::encode) make one to send. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyHeader(Arc<Contents>);

#[derive(PartialEq, Eq)]
struct Contents {
    /// Whether the command is `LOCAL`. There are then neither addresses nor fields.
    is_local: bool,
    addresses: Option<Addresses>,
    /// Well-formed fields: type, length and value of each.
    fields: Box<[u8]>,
}

/// The two ends of the connection between the client and the load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Addresses {
    /// TCP or UDP.
    #[non_exhaustive]
    Ip {
        /// The client.
        source: SocketAddr,
        /// The address to which the client connected.
        destination: SocketAddr,
    },
    /// Unix sockets: paths, or names that begin with NUL.
    #[non_exhaustive]
    Unix {
        /// The client. Mostly empty.
        source: Box<[u8]>,
        /// The socket to which the client connected.
        destination: Box<[u8]>,
    },
}

/// The TLS connection between the client and the load balancer. Texts that are not UTF-8 are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ssl<'a> {
    /// Whether the client used TLS.
    pub is_tls: bool,
    /// Whether the client presented a certificate, in this connection or before in its session.
    pub has_certificate: bool,
    /// Whether the load balancer accepted the certificate of the client. `false` without a certificate.
    pub is_verified: bool,
    /// The version of TLS, such as `TLSv1.3`.
    pub version: Option<&'a str>,
    /// The common name in the certificate of the client.
    pub common_name: Option<&'a str>,
}

impl ProxyHeader {
    pub(crate) fn new(addresses: Option<Addresses>, fields: &[u8]) -> Self {
        Self(Arc::new(Contents { is_local: false, addresses, fields: fields.into() }))
    }

    /// Returns the header of a connection that the sender makes for itself, such as a health check (`LOCAL`, in version
    /// 1 `UNKNOWN`). The receiver then uses the addresses of the connection itself.
    pub fn local() -> Self {
        Self(Arc::new(Contents { is_local: true, addresses: None, fields: Box::default() }))
    }

    /// Returns the header of a client whose addresses are unknown (`PROXY` with `AF_UNSPEC`, in version 1 `UNKNOWN`).
    pub fn unknown() -> Self {
        Self::new(None, &[])
    }

    /// Returns the header without the fields of a type (`PP2_TYPE_…`), such as fields that hold for one hop only.
    #[must_use]
    pub fn without_field(&self, kind: u8) -> Self {
        if self.field(kind).is_none() {
            return self.clone();
        }
        let mut kept = Vec::new();
        for (kind, value) in fields(self.fields()).filter(|(found, _)| *found != kind) {
            put_field(&mut kept, kind, value);
        }
        Self::new(self.0.addresses.clone(), &kept)
    }

    /// Returns whether the sender has connected for itself, as for a health check (`LOCAL`). Version 1 has no such
    /// command.
    pub fn is_local(&self) -> bool {
        self.0.is_local
    }

    /// Returns the bytes of the fields.
    pub(crate) fn fields(&self) -> &[u8] {
        &self.0.fields
    }

    /// Returns the ends of the client's connection. `None` if the load balancer does not tell them (`UNKNOWN`,
    /// `AF_UNSPEC`), or has connected [for itself](Self::is_local).
    pub fn addresses(&self) -> Option<&Addresses> {
        self.0.addresses.as_ref()
    }

    /// Returns the address of the client, if it is one of IP.
    pub fn client(&self) -> Option<SocketAddr> {
        match self.addresses() {
            Some(Addresses::Ip { source, .. }) => Some(*source),
            Some(Addresses::Unix { .. }) | None => None,
        }
    }

    /// Returns the value of the first field of a type (`PP2_TYPE_…`, version 2), such as 0xEA for Amazon's.
    pub fn field(&self, kind: u8) -> Option<&[u8]> {
        first(fields(&self.0.fields), kind)
    }

    /// Returns the host name that the client asked for, as by SNI (`PP2_TYPE_AUTHORITY`). `None` if it is not UTF-8.
    pub fn authority(&self) -> Option<&str> {
        str::from_utf8(self.field(AUTHORITY)?).ok()
    }

    /// Returns the id that the load balancer gave the connection (`PP2_TYPE_UNIQUE_ID`).
    pub fn unique_id(&self) -> Option<&[u8]> {
        self.field(UNIQUE_ID)
    }

    /// Returns the TLS properties of the client that the load balancer reports (`PP2_TYPE_SSL`).
    pub fn ssl(&self) -> Option<Ssl<'_>> {
        let (client, verify, subfields) = ssl_fields(self.field(SSL)?)?;
        let text = |kind| str::from_utf8(first(fields(subfields), kind)?).ok();
        let has_certificate = client & 0b110 != 0;
        Some(Ssl {
            is_tls: client & 1 != 0,
            has_certificate,
            is_verified: has_certificate && verify == 0,
            version: text(SSL_VERSION),
            common_name: text(SSL_CN),
        })
    }
}

fn first<'a>(mut fields: impl Iterator<Item = (u8, &'a [u8])>, kind: u8) -> Option<&'a [u8]> {
    fields.find(|(found, _)| *found == kind).map(|(_, value)| value)
}

impl fmt::Debug for ProxyHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyHeader")
            .field("is_local", &self.is_local())
            .field("addresses", &self.addresses())
            .finish_non_exhaustive()
    }
}
