//! Tower layers: who a request is, which way its answer goes, and what became of it.
//!
//! ```text
//!  request ──▶ Stamp ─────────────▶ Canary ────────────────▶ your service
//!              id, trace            path of the connection
//!  answer  ◀── id, environment ◀─── path, if asked for ◀──── response, watched to its end
//!                                     │
//!                     breaker ◀─┘ latency, errors, resets
//! ```
//!
//! [`AllowedHosts`] keeps web pages of other sites from reading a service that has no passwords. [`Measure`] stands in front of all or of one, and notes what became of each request in numbers and in a span.
//!
//! All work in any tower service for HTTP: under [`serve`](crate::server::serve()), under axum, and around tonic's routes. What they take
//! from a request they take from [trusted](Trusted) peers alone, and who the peer is they know from the connection, never
//! from a header:
//!
//! | server | how the peer gets known |
//! |---|---|
//! | [`serve`](crate::server::serve()) | [`Stamp::connected`] and [`Canary::connected`] in [`on_connection`](crate::server::Serve::on_connection) |
//! | axum | `app.into_make_service_with_connect_info::<layer::Connection>()`; `Stamp` alone also takes `SocketAddr` |
//! | tonic's own | [`Stamp`] by itself; [`Canary`] finds no connection there: put tonic's routes under [`serve`](crate::server::serve()) |
//! | hyper by hand | a [`Connection`] in the extensions of each request |
//!
//! With the features `axum` or `tonic`, [`Stamp`] alone also finds the address that [`serve`](crate::server::serve()) puts into the
//! extensions of requests.
//!
//! Otherwise nobody is trusted, and [`Canary`] changes no path.

#[cfg(feature = "canary")]
mod canary;
mod connection;
mod hosts;
mod measure;
mod request_id;
mod scratch;
mod stamp;
mod trace;

#[cfg(feature = "canary")]
pub use canary::{
    BreakerState, Canary, CanaryBody, CanaryBuilder, CanaryFuture, CanaryHandle, CanaryLayer, CanaryState, PathState,
    Pin, Thresholds, Unit,
};
pub use connection::Connection;
pub use hosts::{AllowedHosts, AllowedHostsFuture, AllowedHostsLayer};
pub use measure::{Measure, MeasureBody, MeasureFuture, MeasureService, Route};
pub use request_id::RequestId;
pub use stamp::{Stamp, StampFuture, StampLayer};
pub use trace::{NoTraceParent, TraceParent};
