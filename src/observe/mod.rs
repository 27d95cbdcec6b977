//! What happened, in numbers and, if asked for, in words.
//!
//! ```text
//!  counters   of the process, and what is open now, read as a Snapshot
//!  requests   what became of requests, by labels, read as Requests; filled by http::layer::Measure
//!  found      what the machine was found to do
//!  text       all of it as text for Prometheus
//!  export     all of it for the metrics facade (feature metrics)
//!  log, span  events, and spans of connections and requests, for tracing (feature tracing)
//! ```
//!
//! Each thread adds to numbers of its own, without locks or allocations; reading adds them up. Labels are bounded: never a
//! path or a header value.

pub(crate) mod counters;
#[cfg(feature = "metrics")]
mod export;
pub(crate) mod found;
mod histogram;
pub(crate) mod labels;
pub(crate) mod log;
pub(crate) mod requests;
mod shard;
pub(crate) mod span;
mod text;

pub use counters::Snapshot;
#[cfg(feature = "metrics")]
pub use export::record_metrics;
pub use histogram::{Bucket, Histogram, Quantile};
pub use labels::Outcome;
pub use requests::{Requests, Responses};
pub use text::prometheus_text;
