//! The client of a connection, as requests and layers see it.

use std::any::Any;
use std::net::IpAddr;
use std::sync::OnceLock;

/// Data that a layer keeps for a connection.
pub(in crate::server) type Slot = OnceLock<Box<dyn Any + Send + Sync>>;

/// The client of a connection.
#[derive(Debug, Default)]
pub(in crate::server) struct Peer {
    /// `None` for a client without an IP address.
    pub(in crate::server) ip: Option<IpAddr>,
    /// Whether the server ends the TLS of the connection.
    pub(in crate::server) is_tls: bool,
    pub(in crate::server) slot: Slot,
}
