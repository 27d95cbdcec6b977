//! Serves HTTP/1.1 and HTTP/2 on the connections of a listener, with limits and graceful shutdown.
//!
//! | I want to | use |
//! |---|---|
//! | serve a tower service, such as an axum `Router` | [`serve`](serve()) |
//! | serve it on a thread for each core | [`serve_cores`](serve_cores()) |
//! | change the limits | [`Server::limits`], [`Limits`] |
//! | stop without cutting requests off | [`Server::drain`], [`Drained`] |
//! | end event streams and gRPC streams when the server drains | [`until_drain`](until_drain()) |
//! | tell a WebSocket that the server drains | [`DrainSignal`] |
//! | know that a client has left | [`Connection::gone`] |
//! | know who the client is | [`Connection`], in the extensions of requests; behind proxies [`Trusted`] |
//! | give the requests of a connection values of my own | [`Server::on_connection`] |
//! | serve TLS | `tls::Tls` (features `tls-…`) |

// From the top down; imports run downwards only:
//
//   serve_cores       runs a server on several cores
//   serve             a server with its settings, and its run on one runtime
//   until_drain       ends endless responses when the server drains
//   accept/           accepts connections: who may come in, and who the client is
//   watch/            limits that depend on time, checked for all connections
//   connection/       the steps of a connection
//   request/          a request, from hyper to the service
//   response/         a response, from the service to hyper or to the stream
//   drain             the signal that the server drains, and the outcome of its connections
//   state/            state shared by connections, requests and the reaper
//   limits, trusted   settings of users
//   error, lock       used by all
//   tls/              TLS: configuration, certificates, streams
//
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
// 4. A connection that does not finish after the instruction to finish is reset.

pub(crate) mod accept;
mod connection;
mod drain;
mod error;
mod limits;
pub(crate) mod request;
pub(crate) mod response;
mod serve;
mod serve_cores;
mod state;
#[cfg(tls)]
pub mod tls;
mod trusted;
mod until_drain;
mod watch;

pub use accept::Connection;
pub use drain::{DrainSignal, Drained, Stayed};
pub use limits::Limits;
pub use request::BodyError;
pub use request::HttpService;
pub use request::RequestBody;
pub use serve::{Server, serve};
pub use serve_cores::serve_cores;
pub use state::ClientGone;
pub use trusted::Trusted;
pub use until_drain::{UntilDrain, until_drain};
