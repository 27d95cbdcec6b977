//! Connecting by name.
//!
//! - `connector`, `unix_connector`: services for HTTP clients.
//! - `race`: attempts at several addresses.
//! - `connect_error`: the error, with every address tried.

#[cfg(feature = "client")]
mod connect_error;
#[cfg(feature = "client")]
mod connector;
#[cfg(feature = "client")]
mod race;
#[cfg(all(unix, feature = "client"))]
mod unix_connector;

#[cfg(feature = "client")]
pub use connect_error::ConnectError;
#[cfg(feature = "client")]
pub use connector::{Connecting, Connector};
#[cfg(all(unix, feature = "client"))]
pub use unix_connector::UnixConnector;
