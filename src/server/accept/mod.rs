//! Accepting connections, and who may come in.
//!
//! - `settings`: everything but the listener and the service.
//! - `accept_loop`: accepts, admits, and begins a task for each connection.
//! - `refuse`: answers connections over a limit.
//! - `identity`: who the client is, in the extensions of requests.
//! - `secure`: the TLS handshake before the first step of a connection.

mod accept_loop;
pub(crate) mod identity;
mod refuse;
#[cfg(tls)]
mod secure;
mod settings;

pub(super) use accept_loop::AcceptLoop;
pub use identity::Connection;
pub(super) use settings::Settings;
