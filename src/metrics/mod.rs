//! StreamStats about the process for operators.
//!
//! ```text
//!  Snapshot         counts since the start, and gauges of open objects
//!  Requests         results of requests that middleware::Measure has seen, by labels
//!  prometheus_text  all numbers in the text format of Prometheus
//!  record_metrics   all numbers for the metrics facade (feature `metrics`)
//! ```

#[cfg(feature = "metrics")]
mod export;
mod text;

pub use crate::counters::{Bucket, Histogram, Outcome, Quantile, Requests, Responses, Snapshot};
#[cfg(feature = "metrics")]
pub use export::record_metrics;
pub use text::prometheus_text;

use crate::sys::caps::{Capabilities, Support};

/// A capability by name, and the reason why it is not used, if it is not.
type Capability = (&'static str, Option<String>);

const CAPABILITY: (&str, &str) =
    ("millstream_capability", "What the machine can do: 1, or 0 and the reason why it is not used.");

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
