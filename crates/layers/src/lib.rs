//! Tower layers: event streams that are kept alive, request ids and traces, paths of responses, allowed hosts.
//!
//! | I want to | use |
//! |---|---|
//! | give each request an id and a trace | [`StampLayer`], [`RequestId`], [`TraceParent`] |
//! | send a share of the responses by another I/O path | [`CanaryLayer`], [`CanaryHandle`] |
//! | keep event streams alive, also before their first byte | [`KeepAliveLayer`] |
//! | keep web pages of other sites from a service without passwords | [`AllowedHostsLayer`] |
//!
//! ```text
//!  request  ──▶ Stamp ────────────▶ Canary ────────────────▶ your service
//!               id, trace           path of the connection
//!  response ◀── id, environment ◀── path, if reported ◀───── response, watched to its end
//!                                     │
//!                            breaker ◀┘ latency, errors, resets
//! ```
//!
//! All work in any tower service for HTTP: under [`serve`], under axum, and around tonic's routes. They use headers of
//! [trusted](millstream::server::Trusted) peers only. They get the peer from the connection, never from a header:
//!
//! | server | source of the peer |
//! |---|---|
//! | [`serve`] | by itself |
//! | axum | `into_make_service_with_connect_info::<server::Connection>()`; `Stamp` also takes `SocketAddr` |
//! | tonic's own | [`Stamp`] by itself; [`Canary`] finds no connection: put tonic's routes under [`serve`] |
//! | hyper by hand | a [`Connection`] in the extensions of each request |
//!
//! Otherwise no peer is trusted, and [`Canary`] changes no path. The rows of axum and tonic need the features `axum-08`
//! and `tonic-014` of millstream.
//!
//! [`serve`]: millstream::server::serve()
//! [`Connection`]: millstream::server::Connection

mod canary;
mod hosts;
mod keep_alive;
mod request_id;
mod scratch;
mod stamp;
mod trace;

pub use canary::{
    BreakerPin, BreakerState, Canary, CanaryBody, CanaryBuilder, CanaryFuture, CanaryHandle, CanaryLayer, CanaryState,
    PathState, ShareUnit, Thresholds,
};
pub use hosts::{AllowedHosts, AllowedHostsFuture, AllowedHostsLayer};
pub use keep_alive::{EarlyBody, KeepAliveFuture, KeepAliveLayer, KeepAliveService};
#[doc(inline)]
pub use millstream::internal::RequestId;
pub use stamp::{Stamp, StampFuture, StampLayer};
pub use trace::{NoTraceParent, TraceParent};

// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
