//! One connection: its steps, in order.
//!
//! - `protocols`: the options of hyper.
//! - `version`: detects HTTP/1 or HTTP/2.
//! - `connection`: the steps, from accept to end. `task`: runs them.
//! - `by_hyper`: HTTP/1 by hyper, until the connection is taken from it.
//! - `gated`: the stream of HTTP/2, which is not read while request bodies hold too much.
//! - `supervise`: runs a step under the instructions of the reaper.
//! - `leave`: detects a client that leaves during a response.
//! - `driver`: writes a response that was taken over, and waits for the next request. `shared_stream`: its stream.
//! - `linger`: ends a connection whose client may still send.

mod by_hyper;
mod connection;
mod driver;
mod gated;
mod leave;
mod linger;
mod protocols;
mod shared_stream;
mod supervise;
mod task;
mod version;

#[cfg(tls)]
pub(super) use connection::{ConnectionStep, Next, speak};
pub(super) use connection::{connection, write_last};
pub(super) use protocols::{Hooks, Protocols};
#[cfg(tls)]
pub(super) use supervise::aborted;
pub(super) use task::Run;
pub(super) use version::{Version, version};
