//! Numbers about the process for operators.
//!
//! ```text
//!  Snapshot         counts since the start, and gauges of open objects
//!  Requests         results of requests measured by middleware::Measure, by labels
//!  prometheus_text  all numbers in the text format of Prometheus
//!  record_metrics   all numbers for the metrics facade (feature `metrics`)
//! ```

#[cfg(feature = "metrics")]
mod export;
mod text;

pub use crate::counters::{Bucket, Histogram, Quantile, Requests, ResponseOutcome, Responses, Snapshot};
#[cfg(feature = "metrics")]
pub use export::record_metrics;
pub use text::prometheus_text;

use crate::sys::caps::{Capabilities, Support};

/// Name of a capability, and the reason if it is not used.
type Capability = (&'static str, Option<String>);

const CAPABILITY: (&str, &str) =
    ("millstream_capability", "Capabilities of the machine: 1 if used, 0 with the reason if not.");

fn capabilities() -> [Capability; 8] {
    Capabilities::get().entries().map(|(name, support)| match support {
        Support::Yes => (name, None),
        Support::No(reason) => (name, Some(reason.clone())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
