//! Tower layers: measurements, compression, event streams that are kept alive.
//!
//! | I want to | use |
//! |---|---|
//! | measure each response to its last byte | [`Measure`]; its [`Route`] names a route |
//! | compress responses | `CompressLayer` (feature `compress`) |
//! | keep event streams alive, also before their first byte | `KeepAliveLayer` (feature `sse`) |
//!
//! They work in any tower service for HTTP: under [`serve`](crate::server::serve()), under axum, and around tonic's
//! routes. The crate `millstream-layers` has more: request ids and trace context, canaries of I/O paths, allowed hosts.

#[cfg(feature = "compress")]
mod compress;
#[cfg(feature = "sse")]
pub(crate) mod keep_alive;
pub(crate) mod measure;

#[cfg(feature = "compress")]
pub use compress::{CompressFuture, CompressLayer, CompressService};
#[cfg(feature = "sse")]
pub use keep_alive::{EarlyBody, KeepAliveFuture, KeepAliveLayer, KeepAliveService};
pub use measure::{Measure, MeasureBody, MeasureFuture, MeasureService, Route};
