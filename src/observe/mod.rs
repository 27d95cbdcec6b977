//! What happened, in numbers and, if asked for, in words.
//!
//! ```text
//!  counters   of the process, read as a Snapshot
//!  export     the counters for the metrics facade (feature metrics)
//!  log        events for tracing (feature tracing)
//! ```

pub(crate) mod counters;
#[cfg(feature = "metrics")]
mod export;
pub(crate) mod log;

pub use counters::Snapshot;
#[cfg(feature = "metrics")]
pub use export::record_metrics;
