//! Tower layers: request ids and traces, paths of responses, measurements, allowed hosts, compression.
//!
//! | I want to | use |
//! |---|---|
//! | give each request an id and a trace | [`StampLayer`], [`RequestId`], [`TraceParent`] |
//! | measure each response to its last byte | [`Measure`]; its [`Route`] names a route |
//! | send a share of the responses by another I/O path | [`CanaryLayer`], [`CanaryHandle`] (feature `canary`) |
//! | compress responses | `CompressLayer` (feature `compress`) |
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
//! All work in any tower service for HTTP: under [`serve`], under axum, and around tonic's routes. They believe headers
//! of [trusted](crate::server::Trusted) peers only, and know the peer from the connection, never from a header:
//!
//! | server | source of the peer |
//! |---|---|
//! | [`serve`] | by itself |
//! | axum | `into_make_service_with_connect_info::<server::Connection>()`; `Stamp` also takes `SocketAddr` |
//! | tonic's own | [`Stamp`] by itself; [`Canary`] finds no connection: put tonic's routes under [`serve`] |
//! | hyper by hand | a [`Connection`] in the extensions of each request |
//!
//! Otherwise no peer is trusted, and [`Canary`] changes no path.
//!
//! [`serve`]: crate::server::serve()
//! [`Connection`]: crate::server::Connection

#[cfg(feature = "canary")]
mod canary;
#[cfg(feature = "compress")]
mod compress;
mod hosts;
mod measure;
mod request_id;
mod scratch;
mod stamp;
mod trace;

#[cfg(feature = "canary")]
pub use canary::{
    BreakerPin, BreakerState, Canary, CanaryBody, CanaryBuilder, CanaryFuture, CanaryHandle, CanaryLayer, CanaryState,
    PathState, ShareUnit, Thresholds,
};
#[cfg(feature = "compress")]
pub use compress::{CompressFuture, CompressLayer, CompressService};
pub use hosts::{AllowedHosts, AllowedHostsFuture, AllowedHostsLayer};
pub use measure::{Measure, MeasureBody, MeasureFuture, MeasureService, Route};
pub use request_id::RequestId;
pub use stamp::{Stamp, StampFuture, StampLayer};
pub use trace::{NoTraceParent, TraceParent};
