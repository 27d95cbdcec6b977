//! Serves HTTP/1.1 and HTTP/2 on the connections of a listener, with limits and graceful shutdown.
//!
//! | I want to | use |
//! |---|---|
//! | serve a tower service, such as an axum `Router` | [`serve`](serve()) |
//! | serve it on a thread for each core | [`serve_cores`](serve_cores()) |
//! | change the limits | [`Serve::limits`], [`Limits`] |
//! | stop without cutting requests off | [`Serve::drain`], [`Drained`] |
//! | end event streams and gRPC streams when the server drains | [`until_drain`](until_drain()) |
//! | tell a WebSocket that the server drains | [`DrainSignal`] |
//! | know that a client has left | [`ClientGone`] |
//! | know who the client is | [`Serve::on_connection`], [`Peer`]; behind proxies [`Trusted`] |
//! | serve TLS | `tls::Tls` (features `tls-…`) |

//  listener ─▶ server: accepts ─┬─ over a limit: answered or reset (conn_limiter, refuse)
//                               └─▶ a task for each connection: version ─▶ hyper ─▶ adapter ─▶ your service
//                                        │ ▲                       ▲  │     └ request_body in, answer out
//                                        │ │          next request │  │ pending body (handover)
//                                        │ │                       │  ▼
//                                        │ │             driver: writes the body by takeover, in the framing of hyper
//                               activity │ │ instructions: finish, abort
//                                        ▼ │
//                                   conn_state ◀── reaper: one task, checks all connections a few times a second
//                                                    ▲
//                                          drain ────┘ the signal, the deadline
//
// Invariants:
// 1. No request, body or connection has a timer or an allocation for a limit, except a body that the service waits
//    for. Activity is recorded in atomics, which the reaper compares with their previous values. So limits take effect
//    within a second, and never early.
// 2. A connection counts until its socket is closed, also after an upgrade.
// 3. HTTP/1: a response whose body is pending, and a connection without a request, need no state of hyper. The bytes on
//    the wire are the same with and without takeover.
// 4. A connection that is instructed to finish and does not is reset.

mod accept_loop;
mod adapter;
mod answer;
pub(crate) mod body_error;
mod check;
mod conn_limiter;
mod conn_state;
mod connection;
mod cores;
mod drain;
mod driver;
mod error;
pub(crate) mod framing;
mod gated;
mod gone;
mod handover;
pub(crate) mod host;
mod http_service;
pub(crate) mod identity;
mod leave;
mod limits;
mod linger;
mod lock;
mod open;
mod peer;
mod protocols;
mod reaper;
mod refuse;
mod refused;
mod request_body;
mod requests;
#[cfg(tls)]
mod secure;
mod serve;
mod settings;
mod supervise;
mod takeover;
#[cfg(tls)]
pub mod tls;
mod trusted;
mod unread;
mod until_drain;
mod version;
mod wait;

pub use body_error::BodyError;
pub use cores::{DrainingCores, ServeCores, serve_cores};
pub use drain::{DrainSignal, Drained, Draining};
pub use gone::ClientGone;
pub use http_service::HttpService;
pub use identity::Connection;
pub use limits::Limits;
pub use peer::Peer;
pub use request_body::RequestBody;
pub use serve::{Serve, Serving, serve};
pub use trusted::Trusted;
pub use until_drain::{UntilDrain, until_drain};
