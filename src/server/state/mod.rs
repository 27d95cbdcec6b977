//! State shared by the steps of a connection, its requests and the reaper.
//!
//! - `conn_limiter`: permits for connections, in total and by address.
//! - `refused`: how many refused connections are being answered.
//! - `conn_state`: the state of a connection, and the reaper's instructions to it.
//! - `requests`: its requests, as far as limits and the end depend on them.
//! - `open`: a request whose response is not complete.
//! - `unread`: bytes of request bodies that HTTP/2 holds.
//! - `wait`: the timeout of a request body.
//! - `handover`: where a pending body waits to be taken from hyper.
//! - `gone`: tells tasks that the client has left.
//! - `peer`: its client.
//! - `moving`: moves a connection to the successor of its server.

mod conn_limiter;
mod conn_state;
mod gone;
mod handover;
mod moving;
mod open;
mod peer;
mod refused;
mod requests;
pub(super) mod unread;
mod wait;

pub(super) use conn_limiter::ConnLimiter;
pub(super) use conn_state::{ConnState, Protocol, ShutdownPhase};
pub use gone::ClientGone;
pub(super) use handover::{Driven, Output};
pub(super) use moving::Successor;
pub(super) use open::Open;
pub(super) use peer::{Peer, Slot};
pub(super) use refused::{RefusalPlace, Refused};
pub(super) use unread::{Part, Unread};
pub(super) use wait::Wait;
