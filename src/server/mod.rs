//! A server: connections of a listener, HTTP/1.1 or HTTP/2, to one service, with limits and an end.
//!
//! ```text
//!  listener ─▶ server: accepts ─┬─ over a limit: told so, or reset (addresses, refuse)
//!                               └─▶ a task for each connection: version ─▶ hyper ─▶ adapter ─▶ your service
//!                                        │ ▲                                └ request_body in, answer out
//!                       notes what it does│ │told to finish, or ended
//!                                        ▼ │
//!                                      watch ◀── sweep: one task, looks at all connections a few times a second
//!                                                  ▲
//!                                        drain: ───┘ the signal, the deadline
//! ```
//!
//! Invariants:
//!
//! 1. No request, body or connection has a timer or an allocation for a limit's sake, unless a body has to be waited for:
//!    what happens is noted in atomics, and the sweep compares them with what it saw before. So limits are kept to within
//!    a second, and never early.
//! 2. A connection counts until its socket is closed, also when an upgrade has handed it to somebody else.
//! 3. A connection that is told to finish and does not is ended.

mod adapter;
mod answer;
mod body_error;
mod check;
mod conn_limiter;
mod conn_state;
mod connection;
mod cores;
mod drain;
pub(crate) mod host;
mod http_service;
mod introduce;
mod leave;
mod limits;
mod linger;
mod peer;
mod protocols;
mod reaper;
mod refuse;
mod request_body;
#[cfg(feature = "tls")]
mod secure;
mod server;
#[cfg(feature = "tls")]
pub mod tls;
mod trusted;
mod version;
mod wait;

pub use body_error::BodyError;
pub use cores::{DrainingCores, ServeCores, serve_cores};
pub use drain::{DrainSignal, Drained, Draining};
pub use http_service::HttpService;
pub use limits::Limits;
pub use peer::Peer;
pub use request_body::RequestBody;
pub use server::{Serve, Serving, serve};
pub use trusted::Trusted;
