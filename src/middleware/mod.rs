//! Tower layers: measurements, compression.
//!
//! | I want to | use |
//! |---|---|
//! | measure each response to its last byte | [`Measure`]; its [`Route`] names a route |
//! | compress responses | `CompressLayer` (feature `compress`) |
//!
//! They work in any tower service for HTTP: under [`serve`](crate::server::serve()), under axum, and around tonic's
//! routes. The crate `millstream-layers` has more: event streams that are kept
//! alive, request ids and trace context, canaries of I/O paths, allowed hosts.

#[cfg(feature = "compress")]
mod compress;
pub(crate) mod measure;

#[cfg(feature = "compress")]
pub use compress::{CompressFuture, CompressLayer, CompressService};
pub use measure::{Measure, MeasureBody, MeasureFuture, MeasureService, Route};
