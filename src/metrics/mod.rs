//! Numbers about the process for operators.
//!
//! ```text
//!  Snapshot         counts since the start, and gauges of open objects
//!  Requests         results of requests measured by middleware::Measure, by labels
//!  prometheus_text  all numbers in the text format of Prometheus
//!  record_metrics   all numbers for the metrics facade (feature `metrics`)
//! ```

mod capabilities;
#[cfg(feature = "metrics")]
mod export;
mod text;

pub use crate::counters::{Bucket, Histogram, Quantile, Requests, ResponseOutcome, Responses, Snapshot};
#[cfg(feature = "metrics")]
pub use export::record_metrics;
pub use text::prometheus_text;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::caps::Capabilities;

    #[test]
    fn capabilities_are_exported() {
        let text = prometheus_text();
        for (name, support) in Capabilities::get().entries() {
            let line = format!("\nmillstream_capability{{name=\"{name}\",reason=\"");
            assert!(text.contains(&line), "{text}");
            assert_eq!(text.contains(&(line + "\"} 1\n")), support.is_yes(), "{name}");
        }
    }
}
