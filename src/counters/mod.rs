//! Counts of the process, and messages for operators.
//!
//! ```text
//!  counter       the list of counts since the start and gauges of open objects
//!  count         counting
//!  snapshot      all numbers at one moment
//!  labels        labels of measured requests
//!  requests      results of measured requests by label set, read as Requests
//!  histogram     distributions of durations and sizes
//!  shard         the numbers of one thread
//!  log, span     events, and spans of connections and requests, for tracing (feature `tracing`)
//!  token_bucket  rates of bytes
//! ```
//!
//! Updates take no lock and do not allocate. Labels are bounded: they contain no path or header value.

mod count;
mod counter;
mod histogram;
pub(crate) mod labels;
pub(crate) mod log;
pub(crate) mod requests;
mod shard;
mod snapshot;
pub(crate) mod span;
pub(crate) mod token_bucket;

pub use count::{Present, count};
pub(crate) use count::{QUEUED, count_all};
pub use counter::{Counter, Gauge};
pub use histogram::{Bucket, Histogram, Quantile};
pub use labels::ResponseOutcome;
pub use requests::{Requests, Responses};
pub use snapshot::Snapshot;
